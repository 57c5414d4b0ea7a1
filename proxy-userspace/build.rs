//! Embeds the eBPF object.

fn main() -> anyhow::Result<()> {
    xtask::ebpf::embed()
}
