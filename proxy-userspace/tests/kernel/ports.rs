//! Ports of a bridge: what the kernel says of the way to an endpoint, in a network namespace that
//! has such a bridge.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread;

use bytemuck::Zeroable as _;
use proxy_common::abi::{Device, DeviceClass, Network4, Network6};
use proxy_common::datapath::memory::Fib;
use proxy_common::datapath::memory::world::endpoint_addr;
use proxy_common::datapath::packet::NextHop;
use proxy_common::net::Mac;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Index of the bridge.
pub(super) const BRIDGE: u32 = 30;
/// Index of its port.
pub(super) const PORT: u32 = 31;
/// MAC address of the port.
pub(super) const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 7, 1];

/// Endpoints with these numbers are no neighbours although their addresses are on link: one is
/// routed by another device, one by a gateway.
const ELSEWHERE: [(u32, &str); 2] = [(9, "dev other"), (10, "via")];
/// From this number on the kernel does not know where the endpoints are.
const UNRESOLVED: u32 = 11;

/// Where the `n`th endpoint is.
fn mac(n: u32) -> Mac {
    Mac::from([2, 0, 0, 0, 9, n as u8])
}

/// Runs `work` in a network namespace of its own.
pub(super) fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        // SAFETY: only this thread's network changes, and descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `ip` in this thread's namespace.
pub(super) fn ip(lines: &[String]) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text = lines.join("\n") + "\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
}

/// Makes the bridge, and says what the kernel will answer about the endpoints.
pub(super) fn bridge(prefixes: [&str; 2]) -> Fib {
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        fs::write(format!("/proc/sys/net/{setting}"), "1").unwrap();
    }
    let port_mac = Mac::from(PORT_MAC);
    let mut lines = vec![
        format!("link add br0 index {BRIDGE} type bridge"),
        format!("link add port index {PORT} address {port_mac} type veth peer name end"),
        "link set port master br0 up".to_owned(),
        "link add other type veth peer name nobody".to_owned(),
        "link set other up".to_owned(),
        "link set nobody up".to_owned(),
        "link set end up".to_owned(),
        "link set br0 up".to_owned(),
    ];
    for prefix in prefixes {
        let flag = if prefix.contains(':') { "nodad" } else { "" };
        lines.push(format!("address add {prefix} dev br0 {flag}"));
    }
    let mut fib = Fib::new();
    for is_v6 in [false, true] {
        for n in 1..UNRESOLVED {
            let addr = endpoint_addr(is_v6, n);
            if let Some((_, way)) = ELSEWHERE.iter().find(|(other, _)| *other == n) {
                let gateway = if *way == "via" {
                    endpoint_addr(is_v6, 250).to_string()
                } else {
                    String::new()
                };
                lines.push(format!("route add {addr} {way} {gateway}"));
                continue;
            }
            lines.push(neighbour(addr, n));
            fib.insert((BRIDGE, addr), NextHop::Neighbour(mac(n)));
        }
        for n in UNRESOLVED..20 {
            fib.insert((BRIDGE, endpoint_addr(is_v6, n)), NextHop::Unresolved);
        }
    }
    ip(&lines);
    fib
}

fn neighbour(addr: IpAddr, n: u32) -> String {
    let mac = mac(n);
    format!("neighbour replace {addr} lladdr {mac} dev br0 nud permanent")
}

/// Tells the kernel where an address is.
pub(super) fn learn(addr: IpAddr) {
    ip(&[neighbour(addr, 1)]);
}

/// Gives endpoint `n` another MAC address, which may be its first one.
pub(super) fn move_to(fib: &mut Fib, n: u32, place: u32) {
    let addrs = [false, true].map(|is_v6| endpoint_addr(is_v6, n));
    ip(&addrs.map(|addr| neighbour(addr, place)));
    for addr in addrs {
        fib.insert((BRIDGE, addr), NextHop::Neighbour(mac(place)));
    }
}

/// Makes the kernel forget where endpoint `n` is.
pub(super) fn forget(fib: &mut Fib, n: u32) {
    let addrs = [false, true].map(|is_v6| endpoint_addr(is_v6, n));
    ip(&addrs.map(|addr| format!("neighbour delete {addr} dev br0")));
    for addr in addrs {
        fib.insert((BRIDGE, addr), NextHop::Unresolved);
    }
}

/// What the programs are told of the port.
pub(super) fn device(prefixes: [(IpAddr, u8); 2], bridge_mac: [u8; 6]) -> Device {
    let mut device = Device {
        class: DeviceClass::POD_PORT,
        bridge_mac: bridge_mac.into(),
        ..Device::zeroed()
    };
    for (addr, prefix_len) in prefixes {
        match addr {
            IpAddr::V4(addr) => device.networks4[1] = Network4::new(BRIDGE, addr, prefix_len),
            IpAddr::V6(addr) => device.networks6[1] = Network6::new(BRIDGE, addr, prefix_len),
        }
    }
    device
}
