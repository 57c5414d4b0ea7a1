//! Devices that do their work in software.

use anyhow::Result;

use super::command;
use super::namespace::Namespace;

/// Switches off what a device may put off or leave to others.
pub(super) fn switch_off(namespace: &Namespace) -> Result<()> {
    let mut list = namespace.command("ip");
    let list = list.args(["-brief", "link", "show", "type", "veth"]);
    for line in command::output(list)?.lines() {
        // NAME@PEER STATE ...
        let Some(name) = line.split(['@', ' ']).next() else {
            continue;
        };
        let mut ethtool = namespace.command("ethtool");
        command::output(ethtool.args(["-K", name, "tx", "off", "gso", "off", "tso", "off"]))?;
    }
    Ok(())
}
