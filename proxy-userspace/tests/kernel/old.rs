//! The object as a kernel takes it that stands in for the oldest supported one, 5.15: none of
//! Debian's is that old, so 5.10 is tested in its place, without what it lacks.

use std::borrow::Cow;

use aya::util::KernelVersion;
use kube_lottery::dataplane::LogLevel;
use kube_lottery::dataplane::load::OBJECT;
use object::{Object as _, ObjectSection as _, SectionKind};
use proxy_common::abi::Settings;

use super::is_emulated;
use super::object::{Object, PROGRAMS};

/// Whether this kernel knows atomic operations beyond addition.
fn has_atomics() -> bool {
    KernelVersion::current().unwrap() >= KernelVersion::new(5, 12, 0)
}

/// The object, and these settings, as this kernel takes them.
pub(super) fn for_this_kernel(mut settings: Settings) -> (Cow<'static, [u8]>, Settings) {
    if has_atomics() {
        return (Cow::Borrowed(OBJECT), settings);
    }
    settings.has_atomics = 0;
    (Cow::Owned(without_atomics(OBJECT)), settings)
}

impl Object {
    /// Loads the programs that a test can run: its frames have MAC headers.
    pub(super) fn load(settings: Settings) -> Self {
        let programs = ["tc_in", "tc_in_port", "tc_eg", "noop", "sweeper"];
        Self::load_only(settings, &programs)
    }

    /// Loads every program.
    pub(super) fn load_all(settings: Settings) -> Self {
        let others = ["noop", "sweeper"];
        Self::load_only(settings, &[&PROGRAMS[..], &others].concat())
    }

    /// Loads some programs, which takes less time.
    pub(super) fn load_only(settings: Settings, programs: &[&str]) -> Self {
        let (object, settings) = for_this_kernel(settings);
        // None is evicted: the host's tables have no such limit.
        let flows = if is_emulated() { 1 << 17 } else { 1 << 20 };
        Self::load_with(&object, settings, LogLevel::Trace, flows, programs)
    }
}

/// The size of an instruction in bytes.
const INSTRUCTION: usize = 8;
/// `goto +0`.
const NOTHING: [u8; INSTRUCTION] = [0x05, 0, 0, 0, 0, 0, 0, 0];
/// The only instruction of twice the size: loads 64 bits.
const LOAD_WIDE: u8 = 0x18;
/// Atomic operations on 32 and on 64 bits; which one is in the immediate value, 0 for addition.
const ATOMIC: [u8; 2] = [0xc3, 0xdb];

/// With nothing in the place of atomic operations other than addition; the programs do not reach
/// them.
fn without_atomics(object: &[u8]) -> Vec<u8> {
    let mut bytes = object.to_vec();
    let file = object::File::parse(object).unwrap();
    let code = file
        .sections()
        .filter(|section| section.kind() == SectionKind::Text);
    for (start, size) in code.filter_map(|section| section.file_range()) {
        let (start, end) = (start as usize, (start + size) as usize);
        let mut at = start;
        while at < end {
            let instruction = &mut bytes[at..at + INSTRUCTION];
            let is_wide = instruction[0] == LOAD_WIDE;
            if ATOMIC.contains(&instruction[0]) && instruction[4..] != [0; 4] {
                instruction.copy_from_slice(&NOTHING);
            }
            at += if is_wide {
                2 * INSTRUCTION
            } else {
                INSTRUCTION
            };
        }
    }
    bytes
}

#[test]
fn the_object_has_atomic_operations_to_take_out() {
    let changed = without_atomics(OBJECT);
    assert_ne!(OBJECT, changed);
    assert_eq!(changed, without_atomics(&changed));
}
