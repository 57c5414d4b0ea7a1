//! The `kube-lottery` binary.
fn main() {}
