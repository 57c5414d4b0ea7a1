//! How long a flow half counts, in seconds.
//!
//! The values are conntrack's defaults, so that a flow lives as long here as it would there.

use crate::abi::{FlowState, Kind, State, Tier};
use crate::net::Proto;

/// A UDP flow that was not answered.
pub const UDP_UNREPLIED: u32 = 30;
/// A UDP flow that was.
pub const UDP_REPLIED: u32 = 120;
/// A UDP flow that is older than this and answered has proved itself.
pub const UDP_PROVED: u32 = 2;
/// A TCP connection that was not established.
pub const TCP_OPENING: u32 = 60;
/// An established TCP connection.
pub const TCP_ESTABLISHED: u32 = 24 * 60 * 60;
/// A TCP connection of which one side has said FIN.
pub const TCP_CLOSING: u32 = 60;

/// How long the ports of a TCP connection stay taken that both sides have closed (TIME-WAIT,
/// RFC 9293, 3.3.2).
pub const TCP_TIME_WAIT: u32 = 120;
/// How long those of one that was reset do.
pub const TCP_RESET: u32 = 10;

/// An SCTP association that was not established.
pub const SCTP_OPENING: u32 = 3;
/// An established SCTP association.
pub const SCTP_ESTABLISHED: u32 = 210;
/// An SCTP association of which one side has said SHUTDOWN.
pub const SCTP_CLOSING: u32 = 3;
/// How long the ports of an SCTP association stay taken that is over.
pub const SCTP_CLOSED: u32 = 10;

/// How old the noted time may be before it is written again: TCP and SCTP.
pub const REFRESH_TCP: u32 = 4;
/// How old the noted time may be before it is written again: UDP.
pub const REFRESH_UDP: u32 = 2;

/// Whether a half no longer stands for anything.
#[inline(always)]
pub fn is_over(proto: Proto, tier: Tier, flow: &FlowState, now: u32) -> bool {
    let is_closed = proto != Proto::UDP && flow.marks.state().is_closed();
    // Another CPU may have noted a later second than the one this packet started in.
    is_closed || now.saturating_sub(flow.last_seen) > idle_limit(proto, tier, flow)
}

/// After how many seconds of silence a half is over that nothing has closed.
#[inline(always)]
fn idle_limit(proto: Proto, tier: Tier, flow: &FlowState) -> u32 {
    let state = flow.marks.state();
    if proto == Proto::UDP {
        return udp(state);
    }
    // A note of direct traffic may stay in the half-open tier although the connection has begun.
    let tier = match flow.marks.kind() {
        Kind::PASS | Kind::OWN if state.any(State::REPLIED) => Tier::Established,
        Kind::PASS | Kind::OWN => Tier::HalfOpen,
        _ => tier,
    };
    limits(proto).of(tier, state)
}

/// Whether the table may forget a half.
///
/// Later than [`is_over`] says so: what is left of a connection on its way must not be taken for
/// something new. And one RST or FIN can be anybody's, for nothing here knows what sequence numbers
/// it would have to have: of an established connection both sides must have said FIN, unless room
/// is short (`hurry`).
#[inline(always)]
pub fn may_go(proto: Proto, tier: Tier, flow: &FlowState, now: u32, hurry: bool) -> bool {
    now.saturating_sub(flow.last_seen) > kept_for(proto, tier, flow, hurry)
}

/// For how many seconds without a packet the table keeps a half, see [`may_go`].
#[inline(always)]
pub fn kept_for(proto: Proto, tier: Tier, flow: &FlowState, hurry: bool) -> u32 {
    let state = flow.marks.state();
    if proto == Proto::UDP || !state.is_closing() {
        return idle_limit(proto, tier, flow);
    }
    let limits = limits(proto);
    if state.is_finished() {
        limits.finished
    } else if tier == Tier::Established && !hurry {
        limits.established
    } else if state.is_closed() {
        limits.reset
    } else {
        limits.closing
    }
}

/// Idle time after which a UDP flow is over.
#[inline(always)]
pub const fn udp(state: State) -> u32 {
    if state.any(State::REPLIED) {
        UDP_REPLIED
    } else {
        UDP_UNREPLIED
    }
}

/// Idle times after which a connection is over, or may be forgotten.
struct Limits {
    opening: u32,
    established: u32,
    closing: u32,
    finished: u32,
    reset: u32,
}

impl Limits {
    #[inline(always)]
    const fn of(&self, tier: Tier, state: State) -> u32 {
        if state.is_closing() {
            return self.closing;
        }
        match tier {
            Tier::Established => self.established,
            Tier::HalfOpen | Tier::Renewal => self.opening,
        }
    }
}

#[inline(always)]
const fn limits(proto: Proto) -> Limits {
    match proto {
        Proto::SCTP => Limits {
            opening: SCTP_OPENING,
            established: SCTP_ESTABLISHED,
            closing: SCTP_CLOSING,
            finished: SCTP_CLOSED,
            reset: SCTP_CLOSED,
        },
        _ => Limits {
            opening: TCP_OPENING,
            established: TCP_ESTABLISHED,
            closing: TCP_CLOSING,
            finished: TCP_TIME_WAIT,
            reset: TCP_RESET,
        },
    }
}

/// Whether the noted time is old enough to be written again.
#[inline(always)]
pub const fn is_stale(proto: Proto, last_seen: u32, now: u32) -> bool {
    let limit = if proto.connects() {
        REFRESH_TCP
    } else {
        REFRESH_UDP
    };
    now.saturating_sub(last_seen) >= limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Marks;
    use bytemuck::Zeroable as _;

    fn half(state: State, last_seen: u32) -> FlowState {
        FlowState {
            last_seen,
            marks: Marks::new(Kind::DNAT, state),
            ..FlowState::zeroed()
        }
    }

    #[test]
    fn a_closed_connection_is_over_at_once_and_goes_later() {
        let fins = State::FIN_CLIENT.with(State::FIN_ENDPOINT);
        for (tier, state, limit) in [
            (Tier::Established, fins, TCP_TIME_WAIT),
            (Tier::HalfOpen, fins, TCP_TIME_WAIT),
            (Tier::HalfOpen, State::RST_ENDPOINT, TCP_RESET),
        ] {
            let half = half(state, 1_000);
            for (proto, limit) in [(Proto::TCP, limit), (Proto::SCTP, SCTP_CLOSED)] {
                assert!(is_over(proto, tier, &half, 1_000));
                assert!(!may_go(proto, tier, &half, 1_000 + limit, false));
                assert!(may_go(proto, tier, &half, 1_001 + limit, false));
            }
        }
    }

    #[test]
    fn what_one_packet_can_claim_ends_nothing_that_is_established_unless_room_is_short() {
        let tier = Tier::Established;
        for (state, hurried) in [
            (State::RST_CLIENT, TCP_RESET),
            (State::RST_ENDPOINT, TCP_RESET),
            (State::FIN_CLIENT, TCP_CLOSING),
        ] {
            let half = half(state, 1_000);
            let end = 1_000 + TCP_ESTABLISHED;
            assert!(!may_go(Proto::TCP, tier, &half, end, false));
            assert!(may_go(Proto::TCP, tier, &half, end + 1, false));
            assert!(!may_go(Proto::TCP, tier, &half, 1_000 + hurried, true));
            assert!(may_go(Proto::TCP, tier, &half, 1_001 + hurried, true));
        }
    }

    #[test]
    fn what_is_open_goes_when_it_is_over() {
        for (proto, tier, state, limit) in [
            (Proto::TCP, Tier::HalfOpen, State::NEW, TCP_OPENING),
            (
                Proto::TCP,
                Tier::Established,
                State::REPLIED,
                TCP_ESTABLISHED,
            ),
            (Proto::TCP, Tier::HalfOpen, State::FIN_CLIENT, TCP_CLOSING),
            (Proto::SCTP, Tier::HalfOpen, State::NEW, SCTP_OPENING),
            (
                Proto::SCTP,
                Tier::Established,
                State::REPLIED,
                SCTP_ESTABLISHED,
            ),
            (Proto::SCTP, Tier::HalfOpen, State::FIN_CLIENT, SCTP_CLOSING),
            (Proto::UDP, Tier::HalfOpen, State::NEW, UDP_UNREPLIED),
            (Proto::UDP, Tier::Established, State::REPLIED, UDP_REPLIED),
        ] {
            let half = half(state, 1_000);
            assert!(!may_go(proto, tier, &half, 1_000 + limit, false));
            assert!(may_go(proto, tier, &half, 1_001 + limit, false));
        }
    }
}
