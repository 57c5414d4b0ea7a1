//! Embeds the eBPF object.

fn main() -> std::process::ExitCode {
    xtask::ebpf::embed()
}
