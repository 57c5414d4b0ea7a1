//! Loads the object: sizes, settings, maps, programs.

use std::io;
use std::path::PathBuf;

use aya::maps::MapError;
use aya::programs::{ProgramError, SchedClassifier};
use aya::{Ebpf, EbpfError, EbpfLoader};
use aya_log::EbpfLogger;
use proxy_common::abi::Settings;
use thiserror::Error;

use super::attach::Programs;
use super::maps::memory;
use super::plain::Plain;
use super::reader::{ReadError, Reader};
use super::tables::{Capacities, Tables};

/// The object that belongs to this controller.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/proxy-ebpf"));

/// The programs of the object.
const PROGRAMS: [&str; 4] = ["tc_in", "tc_eg", "tc_in_l3", "tc_eg_l3"];

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
    /// Another object than the one that belongs to this controller.
    pub object: Option<PathBuf>,
}

impl Options {
    /// Defaults with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            capacities: Capacities::default(),
            log_level: LogLevel::Off,
            object: None,
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
    /// Reads what the programs log, if they can. Dropping it would end their logging.
    pub logger: Option<EbpfLogger<&'static dyn log::Log>>,
    /// Kernel memory of each map in bytes.
    pub memory: Vec<(String, u64)>,
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
    /// The set array cannot be mapped into memory.
    #[error("cannot share the memory of map SETS")]
    Share(#[source] io::Error),
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
    for program in PROGRAMS {
        load_program(&mut ebpf, program)?;
    }
    let memory = memory_by_map(&ebpf)?;
    Ok(Dataplane {
        reader: Reader::of(&ebpf)?,
        tables: Tables::take(&mut ebpf)?,
        programs: Programs::new(ebpf),
        logger,
        memory,
    })
}

fn load_program(ebpf: &mut Ebpf, program: &'static str) -> Result<(), LoadError> {
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
