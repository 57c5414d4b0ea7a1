//! The maps as the data path wants to see them.

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::generated::{bpf_jiffies64, bpf_ktime_get_boot_ns};
use aya_ebpf::maps::Array;
use aya_ebpf::maps::lpm_trie::Key;
use proxy_common::abi::Marks;
use proxy_common::abi::bits::{bit_of, socket_bit_of};
use proxy_common::abi::flow::Flow as _;
use proxy_common::abi::{
    Affinity, Counter, Detector, Device, Event, Family, Frontend, Hop, Kind, Meter, Slot, Source4,
    Source6, State, Tier, V4, V6, Watch,
};
use proxy_common::datapath::flow::Path;
use proxy_common::datapath::tables::{Past, Touch};
use proxy_common::datapath::verdict::Step;
use proxy_common::datapath::work::{Part, Work};
use proxy_common::datapath::{Insert, Tables};
use proxy_common::net::{Port, Proto};

use crate::{atomic, draw, global, maps, parts, scratch};

const NO_EXIST: u64 = 1;
const ANY: u64 = 0;
const EEXIST: i32 = -17;

/// All maps of this object.
pub(crate) struct Maps;

#[inline(always)]
fn has_bit(map: &Array<u64>, (word, mask): (u32, u64)) -> bool {
    map.get(word).is_some_and(|bits| bits & mask != 0)
}

#[inline(always)]
fn seconds() -> u32 {
    if global::test_sources() != 0 {
        let index = 0;
        return maps::TEST_SOURCES.get(index).map_or(0, |s| s.now);
    }
    // SAFETY: the helper has no preconditions.
    let jiffies = unsafe { bpf_jiffies64() };
    jiffies.checked_div(global::hz().into()).unwrap_or(0) as u32
}

#[inline(always)]
fn nanos() -> u64 {
    if global::test_sources() != 0 {
        return u64::from(seconds()) * 1_000_000_000;
    }
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_boot_ns() }
}

#[inline(always)]
fn inserted(result: Result<(), i32>) -> Insert {
    match result {
        Ok(()) => Insert::Done,
        Err(EEXIST) => Insert::Exists,
        Err(_) => Insert::Refused,
    }
}

macro_rules! tables {
    ($family:ty, $frontends:ident, $endpoints:ident, $picks:ident, $reverse:ident, $flows:ident,
     $half_open:ident, $fragments:ident, $affinity:ident, $sources:ident, $source:ident, $parts:ident, $sweep:ident) => {
        impl Tables<$family> for Maps {
            #[inline(always)]
            fn may_be_frontend(&self, addr: <$family as Family>::Addr) -> bool {
                has_bit(&maps::VIP_BITS, bit_of(addr))
            }

            #[inline(always)]
            fn may_be_endpoint(&self, addr: <$family as Family>::Addr) -> bool {
                has_bit(&maps::ENDPOINT_BITS, bit_of(addr))
            }

            #[inline(always)]
            fn may_be_served(
                &self,
                addr: <$family as Family>::Addr,
                port: Port,
                proto: Proto,
            ) -> bool {
                has_bit(&maps::ENDPOINT_BITS, socket_bit_of(addr, port, proto))
            }

            #[inline(always)]
            fn trace(&self, index: u32) -> u32 {
                maps::TRACES.get(index).copied().unwrap_or_default()
            }

            #[inline(always)]
            fn leave_trace(&mut self, index: u32, now: u32) {
                if let Some(trace) = maps::TRACES.get_ptr_mut(index) {
                    // SAFETY: a live element of the array; one aligned word.
                    unsafe { trace.write(now) };
                }
            }

            #[inline(always)]
            fn frontend(&self, key: &<$family as Family>::FrontendKey) -> Option<Frontend> {
                // SAFETY: copied out before anything else happens to the map.
                unsafe { maps::$frontends.get(key).copied() }
            }

            #[inline(always)]
            fn slot(&self, index: u32) -> Option<Slot> {
                maps::SETS.get(index).copied()
            }

            #[inline(always)]
            fn endpoint(&self, index: u32) -> Option<<$family as Family>::Endpoint> {
                maps::$endpoints.get(index).copied()
            }

            #[inline(always)]
            fn frontend_of(
                &self,
                key: &<$family as Family>::EndpointKey,
                index: usize,
            ) -> Option<(<$family as Family>::Addr, Port)> {
                // SAFETY: copied out before anything else happens to the map.
                unsafe { <$family>::frontend_at(maps::$reverse.get(key)?, index) }
            }

            #[inline(always)]
            fn is_in_ranges(&self, service: u32, source: <$family as Family>::Addr) -> bool {
                let key = Key::new($source::WHOLE, <$family>::source(service, source));
                maps::$sources.get(&key).is_some()
            }

            #[inline(always)]
            fn detector(&self) -> Option<&Detector> {
                let index = 0;
                maps::DETECTOR.get(index)
            }

            #[inline(always)]
            fn affinity(&self, key: &<$family as Family>::AffinityKey) -> Option<Affinity> {
                // SAFETY: copied out before anything else happens to the map.
                unsafe { maps::$affinity.get(key).copied() }
            }

            #[inline(always)]
            fn remember(
                &mut self,
                key: &<$family as Family>::AffinityKey,
                affinity: &Affinity,
            ) -> Insert {
                inserted(maps::$affinity.insert(key, affinity, NO_EXIST))
            }

            #[inline(always)]
            fn keep(&mut self, key: &<$family as Family>::AffinityKey, now: u32) {
                if let Some(affinity) = maps::$affinity.get_ptr_mut(key) {
                    // SAFETY: a live element; other CPUs see the old word or the new one.
                    unsafe { (&raw mut (*affinity).last_used).write_volatile(now) };
                }
            }

            #[inline(always)]
            fn forget(&mut self, key: &<$family as Family>::AffinityKey) {
                // Whoever removed it first has done what was wanted.
                let _gone = maps::$affinity.remove(key);
            }

            #[inline(always)]
            fn flow(
                &self,
                tier: Tier,
                key: &<$family as Family>::FlowKey,
            ) -> Option<&<$family as Family>::Flow> {
                // SAFETY: the borrow of `self` ends before the next change by this program. Another
                // CPU may recycle the element: what is read then is another flow's, as if this
                // packet had come a moment later.
                unsafe {
                    match tier {
                        Tier::Established => maps::$flows.get(key),
                        Tier::HalfOpen | Tier::Renewal => maps::$half_open.get(key),
                    }
                }
            }

            #[inline(always)]
            fn half(
                &self,
                tier: Tier,
                path: &Path<$family>,
                kind: Kind,
            ) -> Option<&<$family as Family>::Flow> {
                let key = scratch::key(tier, path, kind)?;
                Tables::<$family>::flow(self, tier, key)
            }

            #[inline(always)]
            fn insert(
                &mut self,
                tier: Tier,
                path: &Path<$family>,
                kind: Kind,
                past: Past,
            ) -> Insert {
                let Some((key, flow)) = scratch::half(tier, path, kind, past) else {
                    return Insert::Refused;
                };
                inserted(match tier {
                    Tier::Established => maps::$flows.insert(key, flow, NO_EXIST),
                    Tier::HalfOpen | Tier::Renewal => maps::$half_open.insert(key, flow, NO_EXIST),
                })
            }

            #[inline(always)]
            fn replace(
                &mut self,
                tier: Tier,
                path: &Path<$family>,
                kind: Kind,
                past: Past,
            ) -> bool {
                let Some((key, flow)) = scratch::half(tier, path, kind, past) else {
                    return false;
                };
                match tier {
                    Tier::Established => maps::$flows.insert(key, flow, ANY).is_ok(),
                    Tier::HalfOpen | Tier::Renewal => {
                        maps::$half_open.insert(key, flow, ANY).is_ok()
                    }
                }
            }

            #[inline(always)]
            fn remove(&mut self, tier: Tier, path: &Path<$family>, kind: Kind) {
                if let Some(key) = scratch::key(tier, path, kind) {
                    Tables::<$family>::remove_key(self, tier, key);
                }
            }

            #[inline(always)]
            fn remove_key(&mut self, tier: Tier, key: &<$family as Family>::FlowKey) {
                // Whoever removed it first has done what was wanted.
                let _gone = match tier {
                    Tier::Established => maps::$flows.remove(key),
                    Tier::HalfOpen | Tier::Renewal => maps::$half_open.remove(key),
                };
            }

            #[inline(always)]
            fn touch(
                &mut self,
                tier: Tier,
                path: &Path<$family>,
                kind: Kind,
                touch: Touch,
            ) -> bool {
                let Some(key) = scratch::key(tier, path, kind) else {
                    return false;
                };
                let found = match tier {
                    Tier::Established => maps::$flows.get_ptr_mut(key),
                    Tier::HalfOpen | Tier::Renewal => maps::$half_open.get_ptr_mut(key),
                };
                let Some(flow) = found else {
                    return false;
                };
                // SAFETY: a live element; the words are aligned, and other CPUs change the marks
                // by atomic operations only.
                unsafe {
                    let state = (*flow).state_mut();
                    state.last_seen = touch.now;
                    if touch.proof != 0 {
                        state.proof = touch.proof;
                    }
                    let marks = (&raw mut state.marks).cast::<u32>();
                    if touch.set != State::NEW {
                        atomic::or(marks, Marks::word(touch.set));
                    }
                    if touch.clear != State::NEW {
                        atomic::and(marks, !Marks::word(touch.clear));
                    }
                }
                true
            }

            #[inline(always)]
            fn set_hop(
                &mut self,
                tier: Tier,
                key: &<$family as Family>::FlowKey,
                hop: Hop,
            ) -> bool {
                let found = match tier {
                    Tier::Established => maps::$flows.get_ptr_mut(key),
                    Tier::HalfOpen | Tier::Renewal => maps::$half_open.get_ptr_mut(key),
                };
                let Some(flow) = found else {
                    return false;
                };
                // SAFETY: a live element; other CPUs see the old word or the new one.
                unsafe { (&raw mut (*flow).state_mut().hop).write_volatile(hop) };
                true
            }

            #[inline(always)]
            fn fragment(
                &self,
                key: &<$family as Family>::FragmentKey,
            ) -> Option<&<$family as Family>::Fragment> {
                // SAFETY: the borrow of `self` ends before the next change by this program. Another
                // CPU may recycle the element: what is read then is another datagram's, as it may
                // be of a fragment that comes too late.
                unsafe { maps::$fragments.get(key) }
            }

            #[inline(always)]
            fn note_fragment(
                &mut self,
                key: &<$family as Family>::FragmentKey,
                fragment: &<$family as Family>::Fragment,
            ) {
                // The others of the datagram find nothing then.
                let _noted = maps::$fragments.insert(key, fragment, ANY);
            }

            #[inline(always)]
            fn forget_fragment(&mut self, key: &<$family as Family>::FragmentKey) {
                // Mostly there is nothing to forget.
                let _gone = maps::$fragments.remove(key);
            }

            #[inline(always)]
            fn device(&self, index: u32) -> Option<&Device> {
                // SAFETY: the borrow of `self` ends before the next change by this program. What
                // the controller writes meanwhile is another element.
                unsafe { maps::DEVICES.get(index) }
            }

            #[inline(always)]
            fn part(&mut self, part: Part, work: &mut Work<$family>) -> Step {
                scratch::escape(work);
                Step::of_word(match part {
                    Part::Miss => parts::$parts::miss(),
                    Part::Whole => parts::$parts::whole(),
                    Part::Renew => parts::$parts::renew(),
                    Part::Note => parts::$parts::note(),
                    Part::RepairReply => parts::$parts::repair_reply(),
                    Part::RepairForward => parts::$parts::repair_forward(),
                    Part::RepairHairpin => parts::$parts::repair_hairpin(),
                    Part::Probe => parts::$parts::probe(),
                    Part::Choose => parts::$parts::choose(),
                    Part::Recall => parts::$parts::recall(),
                    Part::Remember => parts::$parts::remember(),
                    Part::Claim => parts::$parts::claim(),
                    Part::ClaimHalf => parts::$parts::claim_half(),
                    Part::Enter => parts::$parts::enter(),
                    Part::Leaves => parts::$parts::leaves(),
                    Part::Arrives => parts::$parts::arrives(),
                    Part::GoesOn => parts::$parts::goes_on(),
                    Part::Answers => parts::$parts::answers(),
                    Part::Direct => parts::$parts::direct(),
                    Part::NoteDirect => parts::$parts::note_direct(),
                    Part::NoteHalf => parts::$parts::note_half(),
                    Part::NoteFragment => parts::$parts::note_fragment(),
                    Part::Quote => parts::$parts::quote(),
                    Part::Sweep => parts::$sweep::sweep(),
                    Part::Report => parts::$parts::report(),
                    Part::CountOut => parts::$parts::count_out(),
                })
            }

            #[inline(always)]
            fn pick(&mut self, n: u32) -> u32 {
                draw::pick(n)
            }

            #[inline(always)]
            fn pick_port(&mut self) -> Port {
                Port::new((global::rewrite_low() + draw::below(global::rewrite_count())) as u16)
            }

            #[inline(always)]
            fn count_draw(&mut self, element: u32) {
                if let Some(count) = maps::DRAWS.get_ptr_mut(element) {
                    // SAFETY: a live element of the array.
                    unsafe { atomic::add(count, 1) };
                }
            }

            #[inline(always)]
            fn picked(&mut self, endpoint: u32) {
                if let Some(count) = maps::$picks.get_ptr_mut(endpoint) {
                    // SAFETY: a live element of the array.
                    unsafe { atomic::add(count, 1) };
                }
            }

            #[inline(always)]
            fn count(&mut self, counter: Counter) {
                if let Some(count) = maps::COUNTERS.get_ptr_mut(counter as u32) {
                    // SAFETY: a live element of the array. Atomic, because a softirq may count
                    // between the load and the store of this CPU's word.
                    unsafe { atomic::add(count, 1) };
                }
            }

            #[inline(always)]
            fn watch(&self) -> Option<&Watch> {
                let index = 0;
                maps::WATCH.get(index)
            }

            #[inline(always)]
            fn meter(&mut self) -> Option<&mut Meter> {
                let index = 0;
                // SAFETY: a live element of this CPU, on which no other program runs in between; on
                // older kernels one may come between two of the sweeper's, and a number is off by
                // one then.
                unsafe { maps::METER.get_ptr_mut(index).map(|meter| &mut *meter) }
            }

            #[inline(always)]
            fn tell(&mut self, fill: impl FnOnce(&mut Event)) -> bool {
                let Some(mut entry) = maps::EVENTS.reserve::<Event>(0) else {
                    return false;
                };
                // SAFETY: memory of that size that the kernel has lent, to which any bytes are a
                // value.
                fill(unsafe { &mut *entry.as_mut_ptr() });
                // Nobody is woken, for that would cost the packet: the controller comes to look.
                entry.submit(BPF_RB_NO_WAKEUP.into());
                true
            }

            #[inline(always)]
            fn nanos(&self) -> u64 {
                nanos()
            }

            #[inline(always)]
            fn now(&self) -> u32 {
                seconds()
            }

            #[inline(always)]
            fn is_tcp_loose(&self) -> bool {
                global::tcp_loose() != 0
            }

            #[inline(always)]
            fn is_hairpin_anywhere(&self) -> bool {
                global::hairpin_anywhere() != 0
            }

            #[inline(always)]
            fn masquerade_mark(&self) -> u32 {
                global::masquerade_mark()
            }

            #[inline(always)]
            fn reject_mark(&self) -> u32 {
                global::reject_mark()
            }
        }
    };
}

tables!(
    V4, FRONTENDS4, ENDPOINTS4, PICKS4, REVERSE4, FLOWS4, HALF4, FRAGMENTS4, AFFINITY4, SOURCES4,
    Source4, v4, sweep4
);
tables!(
    V6, FRONTENDS6, ENDPOINTS6, PICKS6, REVERSE6, FLOWS6, HALF6, FRAGMENTS6, AFFINITY6, SOURCES6,
    Source6, v6, sweep6
);
