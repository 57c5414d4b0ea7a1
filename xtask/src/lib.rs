//! What the build script, the command line and the tests share.

pub mod ebpf;
