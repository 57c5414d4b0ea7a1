//! How large the programs are at most: with every log statement and the longest cascade. What they
//! cost as they are shipped is measured by the benchmark.

use aya::util::KernelVersion;
use proxy_common::abi::Settings;

use super::is_root;
use super::object::{Object, PROGRAMS};

#[test]
fn every_program_loads_and_its_size_is_printed() {
    if !is_root() {
        return;
    }
    let mut settings = Settings::with_hz(250);
    settings.cascade_limit = Settings::MAX_CASCADE_LIMIT;
    let object = Object::load_all(settings);
    for name in PROGRAMS {
        let info = object.program(name).info().unwrap();
        let verified = info.verified_instruction_count().unwrap_or_default();
        println!(
            "{name:8} {verified:7} instructions verified, {:6} bytes of bytecode, {:6} of machine code",
            info.size_translated().unwrap_or_default(),
            info.size_jitted(),
        );
        // Told since 5.16.
        let is_told = KernelVersion::current().unwrap() >= KernelVersion::new(5, 16, 0);
        // A third of the verifier's limit: room for what is to come.
        let sane = u32::from(is_told)..333_000;
        assert!(sane.contains(&verified), "{name}: {verified}");
    }
}
