//! The object in the kernel, with the maps of a [`MemoryTables`].

use std::collections::HashMap as Table;

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use bytemuck::Pod;
use kube_lottery::dataplane::load::OBJECT;
use kube_lottery::dataplane::{Plain, Sweeper};
use proxy_common::abi::settings::TestSources;
use proxy_common::abi::{Counter, Family, Settings, Tier};
use proxy_common::datapath::memory::{FamilyMaps, MemoryTables, Stored};

/// The four classifiers.
pub(super) const PROGRAMS: [&str; 4] = ["tc_in", "tc_eg", "tc_in_l3", "tc_eg_l3"];

/// Those that are loaded when something moves or is looked into.
pub(super) const MOVING: [&str; 6] = [
    "tc_in_once",
    "tc_eg_once",
    "tc_in_l3_once",
    "tc_eg_l3_once",
    "see_first",
    "see_last",
];

/// A loaded object.
pub(super) struct Object {
    ebpf: Ebpf,
}

/// What a run of a program did.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) action: i32,
    pub(super) bytes: Vec<u8>,
}

impl Object {
    /// Loads every program with these settings.
    pub(super) fn load(settings: Settings) -> Self {
        let settings = Plain(settings);
        let mut loader = EbpfLoader::new();
        loader.override_global("SETTINGS", &settings, true);
        for (map, entries) in [
            ("FLOWS4", 1 << 20),
            ("FLOWS6", 1 << 20),
            ("HALF4", 1 << 20),
            ("HALF6", 1 << 20),
        ] {
            loader.map_max_entries(map, entries);
        }
        let mut ebpf = loader.load(OBJECT).unwrap();
        for name in PROGRAMS.into_iter().chain(["noop", "sweeper"]) {
            let program: &mut SchedClassifier = ebpf.program_mut(name).unwrap().try_into().unwrap();
            if let Err(error) = program.load() {
                panic!("{name}: {error:#?}");
            }
        }
        Self { ebpf }
    }

    /// What removes flows that are over.
    pub(super) fn sweeper(&self) -> Sweeper {
        Sweeper::of(&self.ebpf).unwrap()
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
        let result = self
            .program(name)
            .test_run(options)
            .map_err(std::io::Error::other)?;
        out.truncate(result.data_size_out as usize);
        Ok(Run {
            action: result.return_value as i32,
            bytes: out,
        })
    }

    /// Runs a program once and returns only what it said.
    pub(super) fn poke(program: &SchedClassifier, packet: &[u8]) -> i32 {
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        program.test_run(options).unwrap().return_value as i32
    }

    /// Runs a program many times over the same packet and returns the mean, in nanoseconds.
    pub(super) fn time(&self, name: &str, packet: &[u8], repeat: u32) -> f64 {
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.repeat = repeat;
        let result = self.program(name).test_run(options).unwrap();
        // The kernel reports the mean already.
        result.duration.as_secs_f64() * 1e9
    }

    pub(super) fn array<T: Pod>(&mut self, name: &str) -> Array<&mut MapData, Plain<T>> {
        self.ebpf.map_mut(name).unwrap().try_into().unwrap()
    }

    fn hash<K: Pod, V: Pod>(&mut self, name: &str) -> HashMap<&mut MapData, Plain<K>, Plain<V>> {
        self.ebpf.map_mut(name).unwrap().try_into().unwrap()
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
    }

    /// All flow halves of a tier.
    pub(super) fn flows<F: Stored>(&mut self, tier: Tier) -> Table<F::FlowKey, F::Flow> {
        let name = match (tier, F::IS_V6) {
            (Tier::Established, false) => "FLOWS4",
            (Tier::Established, true) => "FLOWS6",
            (Tier::HalfOpen, false) => "HALF4",
            (Tier::HalfOpen, true) => "HALF6",
        };
        self.hash::<F::FlowKey, F::Flow>(name)
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

    /// New flows per element of an endpoint array.
    pub(super) fn picks(&mut self, is_v6: bool, n: u32) -> Vec<u64> {
        let name = if is_v6 { "PICKS6" } else { "PICKS4" };
        let map = self.array::<u64>(name);
        (0..n).map(|index| map.get(&index, 0).unwrap().0).collect()
    }
}
