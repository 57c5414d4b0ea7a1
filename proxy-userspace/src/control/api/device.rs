//! Devices, as they are told of.

use serde::{Deserialize, Serialize};

/// How the devices are.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// Attached to.
    pub attached: Vec<String>,
    /// Not attached to.
    pub refused: Vec<DeviceNotice>,
    /// Attached to, but not served as they should be.
    pub impaired: Vec<DeviceNotice>,
}

/// Something about a device.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNotice {
    /// Its name.
    pub name: String,
    /// What.
    pub reason: String,
}

/// A device of the node.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What its driver calls itself; `hardware` where it says nothing.
    pub kind: String,
    /// Where its packets come from: `pod`, `pod-port`, `uplink` or `uplink-port`.
    pub class: Option<String>,
    /// What its packets start with: `ethernet`, or `ip` for those without a MAC header.
    pub framing: Option<String>,
    /// How programs are attached: `tcx` or `clsact`.
    pub mode: Option<String>,
    /// How it is.
    pub state: DeviceState,
    /// Why, where it is not attached.
    pub reason: Option<String>,
    /// What is wrong although it is attached.
    pub warnings: Vec<String>,
}

/// How a device is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// Programs are attached.
    Attached,
    /// None of those that are attached to.
    LeftAlone,
    /// About to be attached to.
    Pending,
    /// It must not be attached to as things are; looked at again every second.
    Refused,
    /// The kernel refuses; tried again every second.
    Failed,
}

impl std::fmt::Display for DeviceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Attached => "attached",
            Self::LeftAlone => "left-alone",
            Self::Pending => "pending",
            Self::Refused => "refused",
            Self::Failed => "failed",
        })
    }
}
