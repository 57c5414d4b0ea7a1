//! Every map. Capacities are defaults, the loader sets them.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf};
use proxy_common::abi::settings::TestSources;
use proxy_common::abi::{
    Affinity, AffinityKey4, AffinityKey6, Counter, Detector, Device, Endpoint4, Endpoint6,
    EndpointKey4, EndpointKey6, Flow4, Flow6, FlowKey4, FlowKey6, Fragment4, Fragment6,
    FragmentKey4, FragmentKey6, Frontend, FrontendKey4, FrontendKey6, Frontends4, Frontends6, Meta,
    Meter, Seen, Slot, Source4, Source6, Watch, bits, capacity,
};

#[map]
pub(crate) static FRONTENDS4: HashMap<FrontendKey4, Frontend> =
    HashMap::with_max_entries(capacity::FRONTENDS, 0);
#[map]
pub(crate) static FRONTENDS6: HashMap<FrontendKey6, Frontend> =
    HashMap::with_max_entries(capacity::FRONTENDS, 0);

#[map]
pub(crate) static SETS: Array<Slot> = Array::with_max_entries(capacity::SET_SLOTS, BPF_F_MMAPABLE);

/// One element for each of `SETS`.
#[map]
pub(crate) static DRAWS: Array<u64> = Array::with_max_entries(capacity::SET_SLOTS, BPF_F_MMAPABLE);

#[map]
pub(crate) static ENDPOINTS4: Array<Endpoint4> = Array::with_max_entries(capacity::ENDPOINTS, 0);
#[map]
pub(crate) static ENDPOINTS6: Array<Endpoint6> = Array::with_max_entries(capacity::ENDPOINTS, 0);

#[map]
pub(crate) static PICKS4: Array<u64> = Array::with_max_entries(capacity::ENDPOINTS, 0);
#[map]
pub(crate) static PICKS6: Array<u64> = Array::with_max_entries(capacity::ENDPOINTS, 0);

#[map]
pub(crate) static REVERSE4: HashMap<EndpointKey4, Frontends4> =
    HashMap::with_max_entries(capacity::FRONTENDS, 0);
#[map]
pub(crate) static REVERSE6: HashMap<EndpointKey6, Frontends6> =
    HashMap::with_max_entries(capacity::FRONTENDS, 0);

/// The value says nothing.
#[map]
pub(crate) static SOURCES4: LpmTrie<Source4, u32> =
    LpmTrie::with_max_entries(capacity::SOURCES, BPF_F_NO_PREALLOC);
#[map]
pub(crate) static SOURCES6: LpmTrie<Source6, u32> =
    LpmTrie::with_max_entries(capacity::SOURCES, BPF_F_NO_PREALLOC);

/// Filled anew by every controller, like the devices.
#[map]
pub(crate) static DETECTOR: Array<Detector> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static AFFINITY4: LruHashMap<AffinityKey4, Affinity> =
    LruHashMap::with_max_entries(capacity::AFFINITY, 0);
#[map]
pub(crate) static AFFINITY6: LruHashMap<AffinityKey6, Affinity> =
    LruHashMap::with_max_entries(capacity::AFFINITY, 0);

#[map]
pub(crate) static FLOWS4: LruHashMap<FlowKey4, Flow4> =
    LruHashMap::with_max_entries(capacity::FLOWS, 0);
#[map]
pub(crate) static FLOWS6: LruHashMap<FlowKey6, Flow6> =
    LruHashMap::with_max_entries(capacity::FLOWS / 2, 0);
#[map]
pub(crate) static HALF4: LruHashMap<FlowKey4, Flow4> =
    LruHashMap::with_max_entries(capacity::HALF_OPEN, 0);
#[map]
pub(crate) static HALF6: LruHashMap<FlowKey6, Flow6> =
    LruHashMap::with_max_entries(capacity::HALF_OPEN / 2, 0);

#[map]
pub(crate) static FRAGMENTS4: LruHashMap<FragmentKey4, Fragment4> =
    LruHashMap::with_max_entries(capacity::FRAGMENTS, 0);
#[map]
pub(crate) static FRAGMENTS6: LruHashMap<FragmentKey6, Fragment6> =
    LruHashMap::with_max_entries(capacity::FRAGMENTS, 0);

#[map]
pub(crate) static VIP_BITS: Array<u64> = Array::with_max_entries(bits::WORDS, 0);
#[map]
pub(crate) static ENDPOINT_BITS: Array<u64> = Array::with_max_entries(bits::WORDS, 0);

/// By the index of the device. Not adopted by the next controller, which fills one of its own
/// before its programs are attached.
#[map]
pub(crate) static DEVICES: HashMap<u32, Device> =
    HashMap::with_max_entries(capacity::DEVICES, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static TRACES: Array<u32> = Array::with_max_entries(bits::TRACES, 0);

#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::COUNT, 0);

/// Read by the controller whose programs write it: neither this nor the two below are adopted by the
/// next one.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(capacity::EVENT_BYTES, 0);
#[map]
pub(crate) static WATCH: Array<Watch> = Array::with_max_entries(1, 0);
#[map]
pub(crate) static METER: PerCpuArray<Meter> = PerCpuArray::with_max_entries(1, 0);

/// For the controller, which tells by it whether it can adopt all the others.
#[map]
static META: Array<Meta> = Array::with_max_entries(1, 0);

/// By the index of the device, for those that are looked into.
#[map]
pub(crate) static SEEN: HashMap<u32, Seen> = HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static TEST_SOURCES: Array<TestSources> = Array::with_max_entries(1, 0);
