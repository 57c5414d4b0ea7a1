//! What the programs are told about this machine.

use proxy_common::abi::Settings;
use rustix::time::{ClockId, clock_getres};
use tracing::debug;

const TCP_LOOSE: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose";

/// The settings that fit this machine, with the defaults for the rest.
pub fn detect() -> Settings {
    let mut settings = Settings::with_hz(hz());
    settings.tcp_loose = tcp_loose();
    settings
}

/// Ticks of `jiffies` a second: the coarse clock advances once a tick.
fn hz() -> u32 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    let nanos = u64::try_from(tick.tv_nsec).unwrap_or_default().max(1);
    u32::try_from((1_000_000_000 + nanos / 2) / nanos).unwrap_or(u32::MAX)
}

fn tcp_loose() -> u32 {
    match std::fs::read_to_string(TCP_LOOSE) {
        Ok(text) => u32::from(text.trim() != "0"),
        Err(error) => {
            debug!(%error, "no connection tracking here, mid-flow segments open flows");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_one_of_the_kernels_choices() {
        assert!([100, 250, 300, 1000].contains(&hz()), "{}", hz());
    }
}
