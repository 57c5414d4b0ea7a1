//! What the programs cost: figures, not assertions.

use crate::is_root;
use crate::object::{Object, PROGRAMS};
use proxy_common::abi::Settings;

#[test]
fn every_program_loads_and_its_size_is_printed() {
    if !is_root() {
        return;
    }
    let object = Object::load(Settings::with_hz(250));
    for name in PROGRAMS {
        let info = object.program(name).info().unwrap();
        println!(
            "{name}: {:?} instructions verified, {} bytes translated, {} bytes of machine code",
            info.verified_instruction_count(),
            info.size_translated().unwrap_or_default(),
            info.size_jitted(),
        );
    }
}
