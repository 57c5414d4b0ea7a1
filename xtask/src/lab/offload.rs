//! Devices that do their work in software.

use anyhow::Result;

use super::command;
use super::namespace::Namespace;

/// Switches off what a device may put off or leave to others.
pub(super) fn switch_off(namespace: &Namespace) -> Result<()> {
    set(namespace, &["tx", "off", "gso", "off", "tso", "off"])
}

/// Has devices merge segments of one flow that come in together.
pub(super) fn merge(namespace: &Namespace) -> Result<()> {
    set(namespace, &["gro", "on"])
}

fn set(namespace: &Namespace, features: &[&str]) -> Result<()> {
    for kind in ["veth", "bridge", "vxlan"] {
        let mut list = namespace.command("ip");
        let list = list.args(["-brief", "link", "show", "type", kind]);
        for line in command::output(list)?.lines() {
            // NAME@PEER STATE ...
            let Some(name) = line.split(['@', ' ']).next() else {
                continue;
            };
            let mut ethtool = namespace.command("ethtool");
            command::output(ethtool.args(["-K", name]).args(features))?;
        }
    }
    Ok(())
}
