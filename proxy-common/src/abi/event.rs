//! Events: what happened to single flows and packets, told to whoever listens at that moment.

use bytemuck::{Pod, Zeroable};

use super::counter::Counter;
use super::flow::Hook;
use super::marks::FlowFlags;
use crate::net::{Port, Proto};

/// What happened: a kind in the lowest byte, the reason in the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct What(u32);

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// A flow was opened.
    New = 1,
    /// A flow has ended.
    Closed = 2,
    /// A packet was dropped, or is to be rejected.
    Dropped = 3,
    /// A half of a flow was lost before its time.
    Evicted = 4,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::New, Self::Closed, Self::Dropped, Self::Evicted];

    /// Its bit in [`Watch::kinds`].
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Closed => "closed",
            Self::Dropped => "dropped",
            Self::Evicted => "evicted",
        }
    }
}

impl What {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// A flow was opened.
    pub const OPENED: Self = Self::of(EventKind::New, 0);
    /// A closed, expired or orphaned flow drew its endpoint again.
    pub const REPICKED: Self = Self::of(EventKind::New, 1);
    /// Both sides have said that they send no more.
    pub const FINISHED: Self = Self::of(EventKind::Closed, 0);
    /// One side has reset it.
    pub const RESET: Self = Self::of(EventKind::Closed, 1);
    /// It was silent for too long, and the controller had it removed.
    pub const EXPIRED: Self = Self::of(EventKind::Closed, 2);
    /// A packet found one half of its flow missing, and it was rebuilt from the other.
    pub const REBUILT: Self = Self::of(EventKind::Evicted, 0);
    /// The controller had it removed before its time, because a table was filling up.
    pub const HURRIED: Self = Self::of(EventKind::Evicted, 1);

    const fn of(kind: EventKind, reason: u8) -> Self {
        Self(kind as u32 | (reason as u32) << 8)
    }

    /// A packet was dropped or is to be rejected, as this counter counts.
    #[inline(always)]
    pub const fn dropped(reason: Counter) -> Self {
        Self::of(EventKind::Dropped, reason as u8)
    }

    /// The bit of its kind in [`Watch::kinds`].
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1_u32.wrapping_shl(self.0 & 0xff)
    }

    /// Its kind.
    pub fn kind(self) -> Option<EventKind> {
        let mut all = EventKind::ALL.into_iter();
        all.find(|kind| *kind as u32 == self.0 & 0xff)
    }

    /// The counter that counts the packet as well, if that is what it is about.
    #[inline(always)]
    pub const fn counter(self) -> Option<Counter> {
        if self.bit() == EventKind::Dropped.bit() {
            Counter::from_index(self.0 >> 8 & 0xff)
        } else {
            None
        }
    }

    /// The reason, as one word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::OPENED => "opened",
            Self::REPICKED => "repicked",
            Self::FINISHED => "finished",
            Self::RESET => "reset",
            Self::EXPIRED => "expired",
            Self::REBUILT => "rebuilt",
            Self::HURRIED => "hurried",
            other => match other.counter() {
                Some(counter) => {
                    let name = counter.name();
                    name.strip_prefix("drop-").unwrap_or(name)
                }
                None => "unknown",
            },
        }
    }
}

/// An event, as it stands in the ring buffer.
///
/// Addresses are as on the wire, an IPv4 one in the first word; all zero is none. Of a dropped packet
/// only one of frontend and endpoint is known, by where it was going or came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Event {
    /// When, in nanoseconds since the machine was started (`CLOCK_BOOTTIME`).
    pub time: u64,
    /// Address that the client sends from.
    pub client: [u32; 4],
    /// Address that it sends to.
    pub frontend: [u32; 4],
    /// Address where its packets go.
    pub endpoint: [u32; 4],
    /// Port that the client sends from.
    pub client_port: Port,
    /// Port that it sends to.
    pub frontend_port: Port,
    /// Port where its packets go.
    pub endpoint_port: Port,
    /// Port that the endpoint sees the client send from.
    pub source_port: Port,
    /// Number of the service port; 0 if there is none, or no port to tell by.
    pub service: u32,
    /// Index of the endpoint's slot.
    pub slot: u32,
    /// Index of the device; 0 if it was no packet.
    pub device: u32,
    /// What happened.
    pub what: What,
    /// What was decided of the flow.
    pub flags: FlowFlags,
    /// Transport protocol.
    pub proto: Proto,
    /// Where the packet was seen.
    pub hook: Hook,
    /// 1 for IPv6.
    pub is_v6: u8,
    /// Zero.
    pub pad: u8,
}

const _: () = assert!(size_of::<Event>() == 88);

/// What is listened for; the one element of its map. All zero is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Watch {
    /// Until when, in seconds by the clock of the programs: whoever listens puts it off again and
    /// again, so that nothing is told to nobody for long.
    pub until: u32,
    /// Bits of [`EventKind`]s.
    pub kinds: u32,
    /// Most events of each CPU in a second.
    pub per_second: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<Watch>() == 16);

impl Watch {
    /// Whether somebody listens for such events at this time.
    #[inline(always)]
    pub const fn wants(&self, what: What, now: u32) -> bool {
        self.kinds & what.bit() != 0 && now < self.until
    }
}

/// How much one CPU has told; the one element of its map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Meter {
    /// The second that is running.
    pub second: u32,
    /// Events in it.
    pub used: u32,
    /// Events that were too many in their second.
    pub limited: u64,
    /// Events for which the ring buffer had no room.
    pub full: u64,
}

const _: () = assert!(size_of::<Meter>() == 24);

impl Meter {
    /// Whether one more may be told in this second.
    #[inline(always)]
    pub const fn take(&mut self, now: u32, per_second: u32) -> bool {
        if self.second != now {
            self.second = now;
            self.used = 0;
        }
        if self.used >= per_second {
            self.limited += 1;
            return false;
        }
        self.used += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_kind_and_a_reason() {
        let all = [
            (What::OPENED, EventKind::New, "opened"),
            (What::REPICKED, EventKind::New, "repicked"),
            (What::FINISHED, EventKind::Closed, "finished"),
            (What::RESET, EventKind::Closed, "reset"),
            (What::EXPIRED, EventKind::Closed, "expired"),
            (What::REBUILT, EventKind::Evicted, "rebuilt"),
            (What::HURRIED, EventKind::Evicted, "hurried"),
        ];
        for (what, kind, reason) in all {
            assert_eq!((Some(kind), reason), (what.kind(), what.reason()));
            assert_eq!(kind.bit(), what.bit());
            assert_eq!(None, what.counter());
        }
        for counter in Counter::ALL {
            let what = What::dropped(*counter);
            assert_eq!(Some(*counter), what.counter());
            assert_eq!(EventKind::Dropped.bit(), what.bit());
            assert!(counter.name().ends_with(what.reason()));
        }
    }

    #[test]
    fn nobody_is_told_for_longer_than_they_listen() {
        let watch = Watch {
            until: 10,
            kinds: EventKind::New.bit(),
            per_second: 1,
            pad: 0,
        };
        assert!(watch.wants(What::OPENED, 9));
        assert!(!watch.wants(What::OPENED, 10));
        assert!(!watch.wants(What::RESET, 9));
        assert!(!Watch::default().wants(What::OPENED, 0));
    }

    #[test]
    fn a_second_has_so_many_events_and_the_others_are_counted() {
        let mut meter = Meter::default();
        for second in [7, 8, 100] {
            let told = (0..10).filter(|_| meter.take(second, 3)).count();
            assert_eq!(3, told);
        }
        assert_eq!(21, meter.limited);
        assert!(!meter.take(101, 0));
    }
}
