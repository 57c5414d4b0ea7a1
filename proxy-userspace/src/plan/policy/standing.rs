//! Why an endpoint is in a list, or is not.

/// Why an endpoint is in a list of its service port, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// In: it is ready.
    Ready,
    /// In: it is ready, and its hints name this node.
    HintsNode,
    /// In: it is ready, and its hints name this node's zone.
    HintsZone,
    /// In: it ends and still serves, and none is ready.
    Fallback,
    /// Out: it does not serve.
    NotServing,
    /// Out: it serves, but is not ready and does not end either.
    NotReady,
    /// Out: it is not ready, and others are.
    OthersReady,
    /// Out: the hints of all endpoints count, and its own name other nodes.
    OtherNodes,
    /// Out: the hints of all endpoints count, and its own name other zones.
    OtherZones,
    /// Out: it is on another node, and the policy is Local.
    Elsewhere,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Ready,
        Self::HintsNode,
        Self::HintsZone,
        Self::Fallback,
        Self::NotServing,
        Self::NotReady,
        Self::OthersReady,
        Self::OtherNodes,
        Self::OtherZones,
        Self::Elsewhere,
    ];

    /// Whether the endpoint is in the list.
    pub const fn is_in(self) -> bool {
        matches!(
            self,
            Self::Ready | Self::HintsNode | Self::HintsZone | Self::Fallback
        )
    }

    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::HintsNode => "hints-this-node",
            Self::HintsZone => "hints-this-zone",
            Self::Fallback => "terminating-fallback",
            Self::NotServing => "not-serving",
            Self::NotReady => "not-ready",
            Self::OthersReady => "others-ready",
            Self::OtherNodes => "hints-other-nodes",
            Self::OtherZones => "hints-other-zones",
            Self::Elsewhere => "other-node",
        }
    }

    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::HintsNode => "ready; its hints name this node",
            Self::HintsZone => "ready; its hints name this zone",
            Self::Fallback => "terminating, still serving; used because none is ready",
            Self::NotServing => "neither ready nor serving",
            Self::NotReady => "serving, but not ready and not terminating",
            Self::OthersReady => "not ready, and others are",
            Self::OtherNodes => "its hints name other nodes",
            Self::OtherZones => "its hints name other zones",
            Self::Elsewhere => "on another node, and the policy is Local",
        }
    }
}
