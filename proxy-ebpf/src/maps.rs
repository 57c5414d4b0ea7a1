//! Every map. Capacities are defaults, the loader sets them.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray};
use proxy_common::abi::settings::TestSources;
use proxy_common::abi::{
    Counter, Device, Endpoint4, Endpoint6, EndpointKey4, EndpointKey6, Flow4, Flow6, FlowKey4,
    FlowKey6, Frontend, FrontendKey4, FrontendKey6, Frontends4, Frontends6, Meta, Seen, Slot, bits,
    capacity,
};

#[map]
pub(crate) static FRONTENDS4: HashMap<FrontendKey4, Frontend> =
    HashMap::with_max_entries(capacity::FRONTENDS, 0);
#[map]
pub(crate) static FRONTENDS6: HashMap<FrontendKey6, Frontend> =
    HashMap::with_max_entries(capacity::FRONTENDS, 0);

#[map]
pub(crate) static SETS: Array<Slot> = Array::with_max_entries(capacity::SET_SLOTS, BPF_F_MMAPABLE);

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

/// For the controller, which tells by it whether it can adopt all the others.
#[map]
static META: Array<Meta> = Array::with_max_entries(1, 0);

/// By the index of the device, for those that are looked into.
#[map]
pub(crate) static SEEN: HashMap<u32, Seen> = HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static TEST_SOURCES: Array<TestSources> = Array::with_max_entries(1, 0);
