//! What is known of this node, as far as it decides where packets go.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::model::{Family, Node};

/// This node.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Facts {
    /// Name of its Node object.
    pub(in crate::plan) node: Arc<str>,
    /// Its zone.
    pub(in crate::plan) zone: Option<Arc<str>>,
    /// The first of its Node's addresses of each family.
    pub(in crate::plan) primary: Vec<IpAddr>,
    /// The ranges of its pods, in the order of its Node.
    pub(in crate::plan) pod_cidrs: Vec<IpNet>,
    /// The addresses of its interfaces, loopback left out.
    pub(in crate::plan) own: Arc<BTreeSet<IpAddr>>,
}

impl Facts {
    /// A node of which no more than the name is known.
    pub(in crate::plan) fn new(node: &str) -> Self {
        Self {
            node: node.into(),
            zone: None,
            primary: Vec::new(),
            pod_cidrs: Vec::new(),
            own: Arc::default(),
        }
    }

    /// Takes in this node's Node object, or that there is none; whether anything is new.
    pub(in crate::plan) fn follow(&mut self, node: Option<&Node>) -> bool {
        let zone = node.and_then(|node| node.zone.clone());
        let addresses = node.map_or(&[][..], |node| &node.addresses);
        let first = |family| addresses.iter().find(|addr| Family::of(**addr) == family);
        let known = Family::ALL.into_iter().filter_map(first);
        // kube-proxy takes a loopback address for an unknown one.
        let primary: Vec<_> = known.filter(|addr| !addr.is_loopback()).copied().collect();
        let pod_cidrs = node.map_or(Vec::new(), |node| node.pod_cidrs.clone());
        let is_new = zone != self.zone || primary != self.primary || pod_cidrs != self.pod_cidrs;
        self.zone = zone;
        self.primary = primary;
        self.pod_cidrs = pod_cidrs;
        is_new
    }

    /// Whether packets to `addr` are delivered on this node.
    pub(super) fn is_own(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.own.contains(&addr)
    }
}
