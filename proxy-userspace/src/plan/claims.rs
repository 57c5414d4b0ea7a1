//! Who may have a frontend that several service ports want: the one whose claim comes first,
//! whatever was there before. Every node comes to the same, after a restart as well.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::op::Socket;
use super::wanted::{FrontendKind, PortKey, Wanted, WantedFrontend};
use crate::model::ObjectName;

/// What a service port wants of a frontend. The least of several has it: as with kube-proxy,
/// whoever has no endpoint for it stands back, and node ports are looked for last. Between equals
/// kube-proxy leaves it to chance; here the older Service goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    is_empty: bool,
    kind: FrontendKind,
    by: Arc<Claimant>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claimant {
    /// When the Service was made, or the end of time if that is not known.
    created: i64,
    service: ObjectName,
    key: PortKey,
}

impl Claim {
    /// The claims of one service port, each socket once.
    pub(super) fn all(
        service: &ObjectName,
        created: Option<i64>,
        wanted: &Wanted,
    ) -> Vec<(Socket, Self)> {
        let by = Arc::new(Claimant {
            created: created.unwrap_or(i64::MAX),
            service: service.clone(),
            key: wanted.key.clone(),
        });
        let has_cluster = wanted.endpoints.iter().any(|own| own.in_cluster);
        let has_local = wanted.endpoints.iter().any(|own| own.in_local);
        let mut seen = HashSet::with_capacity(wanted.frontends.len());
        let first = wanted.frontends.iter().filter(|own| seen.insert(own.at));
        let claim = |own: &WantedFrontend| Self {
            is_empty: !own.finds_any(has_cluster, has_local),
            kind: own.kind,
            by: Arc::clone(&by),
        };
        first.map(|own| (own.at, claim(own))).collect()
    }

    /// The Service that makes it.
    pub(super) fn service(&self) -> &ObjectName {
        &self.by.service
    }

    /// The service port that makes it.
    pub(super) fn key(&self) -> &PortKey {
        &self.by.key
    }

    /// What the frontend would be to it.
    pub(super) const fn kind(&self) -> FrontendKind {
        self.kind
    }

    /// Whether it has no endpoint for the frontend.
    pub(super) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Whether it is of this service port.
    pub(super) fn is_by(&self, service: &ObjectName, key: &PortKey) -> bool {
        self.by.service == *service && self.by.key == *key
    }
}

/// The claims of all Services, found by frontend.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// In order, never empty.
    at: HashMap<Socket, Vec<Claim>>,
    by_service: HashMap<ObjectName, Vec<(Socket, Claim)>>,
}

impl Claims {
    /// Replaces the claims of a Service. Adds those to `concerned` that claim a frontend for which
    /// another claim is the first now.
    pub(super) fn set(
        &mut self,
        service: &ObjectName,
        new: Vec<(Socket, Claim)>,
        concerned: &mut BTreeSet<ObjectName>,
    ) {
        let old = self.by_service.remove(service).unwrap_or_default();
        if old == new {
            if !new.is_empty() {
                self.by_service.insert(service.clone(), new);
            }
            return;
        }
        let mut first: HashMap<Socket, Option<Arc<Claimant>>> = HashMap::new();
        let sockets = old.iter().chain(&new).map(|(at, _)| *at);
        for at in sockets {
            let by = self.first(at).map(|claim| Arc::clone(&claim.by));
            first.entry(at).or_insert(by);
        }
        for (at, claim) in &old {
            self.remove(*at, claim);
        }
        for (at, claim) in &new {
            let all = self.at.entry(*at).or_default();
            let place = all.partition_point(|other| other < claim);
            all.insert(place, claim.clone());
        }
        for (at, before) in first {
            let now = self.first(at);
            let is_same = match (&before, now) {
                (Some(before), Some(now)) => now.is_by(&before.service, &before.key),
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                let all = self.at.get(&at).into_iter().flatten();
                concerned.extend(all.map(|claim| claim.service().clone()));
            }
        }
        if !new.is_empty() {
            self.by_service.insert(service.clone(), new);
        }
    }

    /// Whether a service port may have a frontend that it claims.
    pub(super) fn is_first(&self, at: Socket, service: &ObjectName, key: &PortKey) -> bool {
        self.first(at)
            .is_some_and(|claim| claim.is_by(service, key))
    }

    /// All claims of a frontend, the first of which has it.
    pub(super) fn at(&self, at: Socket) -> &[Claim] {
        self.at.get(&at).map_or(&[], Vec::as_slice)
    }

    /// The claim that comes first.
    pub(super) fn first(&self, at: Socket) -> Option<&Claim> {
        self.at.get(&at)?.first()
    }

    fn remove(&mut self, at: Socket, claim: &Claim) {
        let Some(all) = self.at.get_mut(&at) else {
            return;
        };
        if let Ok(place) = all.binary_search(claim) {
            all.remove(place);
        }
        if all.is_empty() {
            self.at.remove(&at);
        }
    }
}
