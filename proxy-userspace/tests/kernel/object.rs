//! The object in the kernel, with the maps of a [`MemoryTables`].

use std::collections::HashMap as Table;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use bytemuck::Pod;
use kube_lottery::dataplane::{LogLevel, Monitor, Plain, Reader, Sweeper};
use proxy_common::abi::settings::TestSources;
use proxy_common::abi::{Affinity, Counter, Event, Family, Settings, Tier};
use proxy_common::datapath::memory::{FamilyMaps, MemoryTables, Stored};

pub(super) use kube_lottery::dataplane::load::PROGRAMS;

/// Those that are loaded when something moves or is looked into.
pub(super) const MOVING: [&str; 8] = [
    "tc_in_once",
    "tc_in_port_once",
    "tc_in_uplink_port_once",
    "tc_eg_once",
    "tc_in_l3_once",
    "tc_eg_l3_once",
    "see_first",
    "see_last",
];

/// A loaded object.
pub(super) struct Object {
    ebpf: Ebpf,
    /// What it tells, once somebody has listened.
    monitor: Option<Monitor>,
    /// Index of the device that packets come in by, if it is not the loopback device.
    pub(super) device: Option<u32>,
}

/// Size of a `struct __sk_buff`, and the offsets of its fields `mark` and `ifindex`, in bytes.
const CONTEXT: usize = 192;
const MARK: usize = 8;
const IFINDEX: usize = 40;

/// A mark that packets have before programs see them: its bits are none of ours.
pub(super) const MARKED: u32 = 0x0f00_0001;

/// What a run of a program did.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) action: i32,
    pub(super) bytes: Vec<u8>,
    pub(super) mark: u32,
}

impl Object {
    /// Loads these `programs` of an object, with flow maps for so many `flows`.
    pub(super) fn load_with(
        object: &[u8],
        settings: Settings,
        log: LogLevel,
        flows: u32,
        programs: &[&str],
    ) -> Self {
        let settings = Plain(settings);
        let log = log as u8;
        let mut loader = EbpfLoader::new();
        loader
            .override_global("SETTINGS", &settings, true)
            .override_global(aya_log::LEVEL, &log, false);
        for map in ["FLOWS4", "FLOWS6", "HALF4", "HALF6"] {
            loader.map_max_entries(map, flows);
        }
        let mut ebpf = loader.load(object).unwrap();
        for name in programs {
            let program: &mut SchedClassifier = ebpf.program_mut(name).unwrap().try_into().unwrap();
            if let Err(error) = program.load() {
                panic!("{name}: {error:#?}");
            }
        }
        Self {
            ebpf,
            monitor: None,
            device: None,
        }
    }

    /// What removes flows that are over.
    pub(super) fn sweeper(&self) -> Sweeper {
        Sweeper::of(&self.ebpf).unwrap()
    }

    /// What has the programs tell what happens.
    pub(super) fn monitor(&mut self) -> &mut Monitor {
        let Self { ebpf, monitor, .. } = self;
        monitor.get_or_insert_with(|| Monitor::take(ebpf).unwrap())
    }

    /// What was told since the last time.
    pub(super) fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.monitor().drain(usize::MAX, |event| events.push(event));
        events
    }

    /// What reads the maps.
    pub(super) fn reader(&self) -> Reader {
        Reader::new(|name| {
            let (Map::Array(data)
            | Map::HashMap(data)
            | Map::LruHashMap(data)
            | Map::PerCpuArray(data)) = self.ebpf.map(name).unwrap()
            else {
                panic!("{name} is of another kind");
            };
            let fd = data.fd().as_fd().try_clone_to_owned().unwrap();
            MapData::from_fd(fd)
        })
        .unwrap()
    }

    /// Loads more programs.
    pub(super) fn load_programs(&mut self, names: &[&str]) {
        for name in names {
            let program: &mut SchedClassifier =
                self.ebpf.program_mut(name).unwrap().try_into().unwrap();
            if let Err(error) = program.load() {
                panic!("{name}: {error:#?}");
            }
        }
    }

    pub(super) fn program(&self, name: &str) -> &SchedClassifier {
        self.ebpf.program(name).unwrap().try_into().unwrap()
    }

    /// Runs a program once.
    pub(super) fn run(&self, name: &str, packet: &[u8]) -> Result<Run, std::io::Error> {
        let mut out = vec![0; packet.len() + 256];
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.data_out = Some(&mut out);
        let context = self.context();
        let mut context_out = [0; CONTEXT];
        options.ctx_in = Some(&context);
        options.ctx_out = Some(&mut context_out);
        let result = self
            .program(name)
            .test_run(options)
            .map_err(std::io::Error::other)?;
        out.truncate(result.data_size_out as usize);
        Ok(Run {
            action: result.return_value as i32,
            bytes: out,
            mark: bytemuck::pod_read_unaligned(&context_out[MARK..MARK + 4]),
        })
    }

    /// Runs a program on a packet of which a device has summed up all bytes: the sum must follow
    /// what the program writes, or the stack takes the packet for a broken one.
    ///
    /// The test run checks that itself, since 6.16; nothing is known on an older kernel.
    #[expect(unsafe_code, reason = "aya has no flags for test runs")]
    pub(super) fn keeps_the_sum(&self, name: &str, packet: &[u8]) {
        const TEST_RUN: i32 = 10;
        const CHECKSUM_COMPLETE: u32 = 1 << 2;
        /// `union bpf_attr` of a test run.
        #[repr(C)]
        struct Attr {
            program: i32,
            result: u32,
            len_in: u32,
            len_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
            context_len_in: u32,
            context_len_out: u32,
            context_in: u64,
            context_out: u64,
            flags: u32,
            cpu: u32,
            batch: u32,
            pad: u32,
        }
        let context = self.context();
        let mut attr = Attr {
            program: self.program(name).fd().unwrap().as_fd().as_raw_fd(),
            result: 0,
            len_in: packet.len() as u32,
            len_out: 0,
            data_in: packet.as_ptr() as u64,
            data_out: 0,
            repeat: 1,
            duration: 0,
            context_len_in: CONTEXT as u32,
            context_len_out: 0,
            context_in: context.as_ptr() as u64,
            context_out: 0,
            flags: CHECKSUM_COMPLETE,
            cpu: 0,
            batch: 0,
            pad: 0,
        };
        // SAFETY: the pointers lead to as many bytes as the lengths say.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, TEST_RUN, &raw mut attr, size_of::<Attr>()) };
        let error = std::io::Error::last_os_error();
        let is_unknown = result < 0 && error.raw_os_error() == Some(libc::EINVAL);
        let has_flag = KernelVersion::current().unwrap() >= KernelVersion::new(6, 16, 0);
        assert!(
            result == 0 || (is_unknown && !has_flag),
            "{name}: {error}: {packet:02x?}"
        );
    }

    /// A `struct __sk_buff` that names the device and has a mark.
    pub(super) fn context(&self) -> [u8; CONTEXT] {
        let mut context = [0; CONTEXT];
        context[MARK..MARK + 4].copy_from_slice(&MARKED.to_ne_bytes());
        if let Some(device) = self.device {
            context[IFINDEX..IFINDEX + 4].copy_from_slice(&device.to_ne_bytes());
        }
        context
    }

    /// Runs a program once and returns only what it said.
    pub(super) fn poke(program: &SchedClassifier, packet: &[u8]) -> i32 {
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        program.test_run(options).unwrap().return_value as i32
    }

    pub(super) fn array<T: Pod>(&mut self, name: &str) -> Array<&mut MapData, Plain<T>> {
        self.ebpf.map_mut(name).unwrap().try_into().unwrap()
    }

    fn hash<K: Pod, V: Pod>(&mut self, name: &str) -> HashMap<&mut MapData, Plain<K>, Plain<V>> {
        self.ebpf.map_mut(name).unwrap().try_into().unwrap()
    }

    /// A hash map, to be written while programs run.
    pub(super) fn take_hash<K: Pod, V: Pod>(
        &mut self,
        name: &str,
    ) -> HashMap<MapData, Plain<K>, Plain<V>> {
        self.ebpf.take_map(name).unwrap().try_into().unwrap()
    }

    /// An array map, to be written while programs run.
    pub(super) fn take_array<T: Pod>(&mut self, name: &str) -> Array<MapData, Plain<T>> {
        self.ebpf.take_map(name).unwrap().try_into().unwrap()
    }

    /// Sets the clock and the generator.
    pub(super) fn set_sources(&mut self, now: u32, random: u64) {
        let sources = TestSources {
            random,
            now,
            pad: 0,
        };
        self.array("TEST_SOURCES")
            .set(0, Plain(sources), 0)
            .unwrap();
    }

    /// The state of the generator.
    pub(super) fn random(&mut self) -> u64 {
        let sources: Plain<TestSources> = self.array("TEST_SOURCES").get(&0, 0).unwrap();
        sources.0.random
    }

    /// Writes all tables.
    pub(super) fn write(&mut self, tables: &MemoryTables) {
        let mut sets = self.array("SETS");
        for (index, slot) in tables.sets.iter().enumerate() {
            sets.set(index as u32, Plain(*slot), 0).unwrap();
        }
        for (name, bits) in [
            ("VIP_BITS", &tables.frontend_bits),
            ("ENDPOINT_BITS", &tables.endpoint_bits),
        ] {
            let mut map = self.array(name);
            for (index, word) in bits.iter().enumerate().filter(|(_, word)| **word != 0) {
                map.set(index as u32, Plain(*word), 0).unwrap();
            }
        }
        let mut devices = self.hash("DEVICES");
        for (index, device) in &tables.devices {
            devices.insert(Plain(*index), Plain(*device), 0).unwrap();
        }
        self.array("DETECTOR")
            .set(0, Plain(tables.detector), 0)
            .unwrap();
        self.write_family("4", &tables.v4);
        self.write_family("6", &tables.v6);
    }

    fn write_family<F: Family>(&mut self, suffix: &str, maps: &FamilyMaps<F>) {
        let mut frontends = self.hash(&format!("FRONTENDS{suffix}"));
        for (key, value) in &maps.frontends {
            frontends.insert(Plain(*key), Plain(*value), 0).unwrap();
        }
        let mut endpoints = self.array(&format!("ENDPOINTS{suffix}"));
        for (index, value) in &maps.endpoints {
            endpoints.set(*index, Plain(*value), 0).unwrap();
        }
        let mut reverse = self.hash(&format!("REVERSE{suffix}"));
        for (key, value) in &maps.reverse {
            reverse.insert(Plain(*key), Plain(*value), 0).unwrap();
        }
        let sources = self.ebpf.map_mut(&format!("SOURCES{suffix}")).unwrap();
        let mut sources: LpmTrie<&mut MapData, Plain<F::Source>, u32> = sources.try_into().unwrap();
        for (bits, range) in &maps.sources {
            sources
                .insert(&Key::new(*bits, Plain(*range)), 1, 0)
                .unwrap();
        }
    }

    /// The flow map of a tier.
    pub(super) fn flow_map<F: Stored>(
        &mut self,
        tier: Tier,
    ) -> HashMap<&mut MapData, Plain<F::FlowKey>, Plain<F::Flow>> {
        self.hash(match (tier, F::IS_V6) {
            (Tier::Established, false) => "FLOWS4",
            (Tier::Established, true) => "FLOWS6",
            (Tier::HalfOpen | Tier::Renewal, false) => "HALF4",
            (Tier::HalfOpen | Tier::Renewal, true) => "HALF6",
        })
    }

    /// What clients had last.
    pub(super) fn affinity<F: Stored>(&mut self) -> Table<F::AffinityKey, Affinity> {
        let name = if F::IS_V6 { "AFFINITY6" } else { "AFFINITY4" };
        let map = self.hash::<F::AffinityKey, Affinity>(name);
        map.iter()
            .map(|entry| entry.map(|(key, value)| (key.0, value.0)).unwrap())
            .collect()
    }

    /// What became of the first fragments of datagrams.
    pub(super) fn fragments<F: Stored>(&mut self) -> Table<F::FragmentKey, F::Fragment> {
        let name = if F::IS_V6 { "FRAGMENTS6" } else { "FRAGMENTS4" };
        let map = self.hash::<F::FragmentKey, F::Fragment>(name);
        map.iter()
            .map(|entry| entry.map(|(key, value)| (key.0, value.0)).unwrap())
            .collect()
    }

    /// Removes a flow half.
    pub(super) fn lose<F: Stored>(&mut self, tier: Tier, key: &F::FlowKey) {
        self.flow_map::<F>(tier).remove(&Plain(*key)).unwrap();
    }

    /// All flow halves of a tier.
    pub(super) fn flows<F: Stored>(&mut self, tier: Tier) -> Table<F::FlowKey, F::Flow> {
        self.flow_map::<F>(tier)
            .iter()
            .map(|entry| entry.map(|(key, flow)| (key.0, flow.0)).unwrap())
            .collect()
    }

    /// The counters, summed over the CPUs.
    pub(super) fn counters(&self) -> Vec<u64> {
        let map: &Map = self.ebpf.map("COUNTERS").unwrap();
        let map: PerCpuArray<&MapData, u64> = map.try_into().unwrap();
        (0..Counter::COUNT)
            .map(|index| map.get(&index, 0).unwrap().iter().sum())
            .collect()
    }

    /// When flows were last noted.
    pub(super) fn traces(&mut self) -> Vec<u32> {
        let map = self.array::<u32>("TRACES");
        map.iter().map(|trace| trace.unwrap().0).collect()
    }

    /// Draws of those elements of the set array that were drawn.
    pub(super) fn draws(&mut self) -> Table<u32, u64> {
        let map = self.array::<u64>("DRAWS");
        let all = (0..).zip(map.iter().map(|count| count.unwrap().0));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// New flows per element of an endpoint array.
    pub(super) fn picks(&mut self, is_v6: bool, n: u32) -> Vec<u64> {
        let name = if is_v6 { "PICKS6" } else { "PICKS4" };
        let map = self.array::<u64>(name);
        (0..n).map(|index| map.get(&index, 0).unwrap().0).collect()
    }
}
