//! Loads the object: sizes, settings, maps, programs.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use aya::maps::{MapData, MapError};
use aya::programs::{ProgramError, SchedClassifier};
use aya::{Ebpf, EbpfError, EbpfLoader};
use aya_log::EbpfLogger;
use proxy_common::abi::{Meta, Settings};
use thiserror::Error;
use tracing::{info, warn};

use super::attach::{AttachMode, Programs};
use super::devices::Devices;
use super::former::{Former, copy_flows, pin_maps};
use super::maps::memory;
use super::monitor::Monitor;
use super::pins::{PinError, Place};
use super::plain::Plain;
use super::reader::{ReadError, Reader};
use super::sweeper::{self, Sweeper};
use super::tables::{Capacities, Tables};
use crate::plan::Floors;

/// The object that belongs to this controller.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/proxy-ebpf"));

/// The programs of the object.
pub const PROGRAMS: [&str; 6] = [
    "tc_in",
    "tc_eg",
    "tc_in_l3",
    "tc_eg_l3",
    "tc_in_port",
    "tc_in_uplink_port",
];

/// How much the programs log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum LogLevel {
    /// Nothing: the verifier deletes all logging code.
    #[default]
    Off = 0,
    /// Errors.
    Error = aya_log::Level::Error as u8,
    /// Warnings too.
    Warn = aya_log::Level::Warn as u8,
    /// Information too.
    Info = aya_log::Level::Info as u8,
    /// Dropped packets too.
    Debug = aya_log::Level::Debug as u8,
    /// Everything.
    Trace = aya_log::Level::Trace as u8,
}

/// How to load.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the programs are told.
    pub settings: Settings,
    /// How large the maps are made.
    pub capacities: Capacities,
    /// How much the programs log.
    pub log_level: LogLevel,
    /// Where maps and links are pinned; nowhere if not given, and then they end with the process.
    pub place: Option<Place>,
    /// Another object than the one that belongs to this controller.
    pub object: Option<PathBuf>,
    /// By what programs are attached to devices.
    pub attach: AttachMode,
}

impl Options {
    /// Defaults with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            capacities: Capacities::default(),
            log_level: LogLevel::Off,
            place: None,
            object: None,
            attach: AttachMode::default(),
        }
    }
}

/// A loaded object; nothing is attached.
pub struct Dataplane {
    /// The maps.
    pub tables: Tables,
    /// The programs.
    pub programs: Programs,
    /// Reads the maps for those who only look.
    pub reader: Reader,
    /// Removes flows that are over.
    pub sweeper: Sweeper,
    /// What the programs tell while somebody listens.
    pub monitor: Monitor,
    /// Reads what the programs log, if they can. Dropping it would end their logging.
    pub logger: Option<EbpfLogger<&'static dyn log::Log>>,
    /// Kernel memory of each map in bytes.
    pub memory: Vec<(String, u64)>,
    /// What the numbers of a plan for these tables must not fall below.
    pub floors: Floors,
    /// Maps that are not pinned yet.
    pub fresh: Fresh,
}

/// Maps that are not pinned yet: tables are, once they are true.
#[derive(Debug)]
pub struct Fresh {
    place: Option<Place>,
    maps: Vec<(&'static str, OwnedFd)>,
    /// Maps of flows that some of them take the place of.
    flows: Vec<(&'static str, MapData)>,
}

impl Fresh {
    /// Pins them; from then on the next run finds them. Flows are copied now, because programs are
    /// attached next: what begins in between is lost.
    pub fn pin(self) -> Result<(), PinError> {
        if let Err(error) = copy_flows(&self.flows, &self.maps) {
            warn!(%error, "not all flows could be copied to maps of another size");
        }
        match self.place {
            Some(place) => pin_maps(&place, self.maps),
            None => Ok(()),
        }
    }
}

/// Why the object cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The object file cannot be read.
    #[error("cannot read the object {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The object is not accepted, or its maps cannot be created.
    #[error("cannot load the object")]
    Object(#[from] EbpfError),
    /// The object lacks a map.
    #[error("the object has no map {0}")]
    NoMap(String),
    /// A map is not what it should be.
    #[error("map {map} cannot be used")]
    Map {
        /// The map.
        map: String,
        /// Why.
        source: MapError,
    },
    /// A map cannot be mapped into memory.
    #[error("cannot share the memory of map {map}")]
    Share {
        /// The map.
        map: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A map cannot be read.
    #[error(transparent)]
    Reader(#[from] ReadError),
    /// The object lacks a program.
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
    /// The kernel refuses a program.
    #[error("the kernel refuses program {program}")]
    Program {
        /// The program.
        program: &'static str,
        /// Why.
        source: ProgramError,
    },
    /// Pins cannot be used.
    #[error(transparent)]
    Pins(#[from] PinError),
    /// Filters cannot be looked at.
    #[error("cannot open a netlink socket for filters")]
    Filters(#[source] io::Error),
    /// A map of a former run cannot be copied.
    #[error("cannot use map {map} of the former run")]
    Copy {
        /// The map.
        map: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The log of the programs cannot be read.
    #[error("cannot read the log of the programs")]
    Log(#[from] aya_log::Error),
}

/// Loads the object and all its programs.
pub fn load(options: &Options) -> Result<Dataplane, LoadError> {
    let settings = Plain(options.settings);
    let log_level = options.log_level as u8;
    let mut loader = EbpfLoader::new();
    loader
        .override_global("SETTINGS", &settings, true)
        // Absent where the object has no log statement.
        .override_global(aya_log::LEVEL, &log_level, false);
    for (map, entries) in options.capacities.by_map() {
        loader.map_max_entries(map, entries);
    }
    let netns = options.place.as_ref().map_or(0, Place::netns);
    let meta = Meta::new(options.settings.hz, netns, 1);
    let former = match &options.place {
        Some(place) => {
            place.make()?;
            let former = Former::look(place, &meta, &options.capacities);
            for name in former.adopted() {
                loader.map_pin_path(name, place.pins().join(name));
            }
            former
        }
        None => Former::default(),
    };
    let mut ebpf = match &options.object {
        None => loader.load(OBJECT)?,
        Some(path) => {
            let object = std::fs::read(path).map_err(|source| LoadError::Read {
                path: path.clone(),
                source,
            })?;
            loader.load(&object)?
        }
    };
    let logger = match EbpfLogger::init(&mut ebpf) {
        Ok(logger) => Some(logger),
        Err(aya_log::Error::MapNotFound) => None,
        Err(error) => return Err(error.into()),
    };
    for program in PROGRAMS.into_iter().chain([sweeper::PROGRAM]) {
        load_program(&mut ebpf, program)?;
    }
    let memory = memory_by_map(&ebpf)?;
    former.copy(&ebpf)?;
    let maps = former.fresh(&ebpf)?;
    let reader = Reader::of(&ebpf)?;
    let devices = Devices::take(&mut ebpf)?;
    let sweeper = Sweeper::of(&ebpf)?;
    let monitor = Monitor::take(&mut ebpf)?;
    let mut tables = Tables::take(&mut ebpf)?;
    if !former.adopted().contains(&"META") {
        tables.meta.set(0, &meta).map_err(|source| LoadError::Map {
            map: "META".to_owned(),
            source,
        })?;
    }
    if !former.adopted().is_empty() {
        info!(
            maps = former.adopted().len(),
            "maps of the former run adopted"
        );
    }
    Ok(Dataplane {
        reader,
        sweeper,
        monitor,
        tables,
        programs: Programs::new(ebpf, devices, options.place.clone(), options.attach)
            .map_err(LoadError::Filters)?,
        logger,
        memory,
        floors: former.floors(),
        fresh: Fresh {
            place: options.place.clone(),
            maps,
            flows: former.flows(),
        },
    })
}

pub(super) fn load_program(ebpf: &mut Ebpf, program: &'static str) -> Result<(), LoadError> {
    let found = ebpf
        .program_mut(program)
        .ok_or(LoadError::NoProgram(program))?;
    let classifier: Result<&mut SchedClassifier, _> = found.try_into();
    classifier
        .and_then(SchedClassifier::load)
        .map_err(|source| LoadError::Program { program, source })
}

fn memory_by_map(ebpf: &Ebpf) -> Result<Vec<(String, u64)>, LoadError> {
    let measure = |(name, map)| {
        let bytes = memory(map).map_err(|error| LoadError::Map {
            map: String::from(name),
            source: MapError::IoError(error),
        })?;
        Ok((String::from(name), bytes))
    };
    ebpf.maps().map(measure).collect()
}
