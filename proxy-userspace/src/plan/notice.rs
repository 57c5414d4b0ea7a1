//! What an operator should know about the plan.

use std::net::IpAddr;

use proxy_common::net::Proto;
use thiserror::Error;

use super::op::{ProtoName, Socket};
use crate::model::{Family, ObjectName};

/// Something that is declared and not served, or not served in full.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Notice {
    /// An external IP is one of those that are not to be served.
    #[error("external IP {addr} is not served: --external-ips does not allow it")]
    ExternalIp {
        /// The address.
        addr: IpAddr,
    },
    /// Two service ports, of two Services or of one, want one frontend.
    #[error("{frontend} belongs to Service {owner}, whose claim comes first")]
    FrontendTaken {
        /// The frontend.
        frontend: Socket,
        /// The Service that has it.
        owner: ObjectName,
    },
    /// No room for a frontend.
    #[error("{frontend} is not served: all {capacity} {} frontends are in use (--max-frontends)", frontend.family())]
    FrontendsFull {
        /// The frontend.
        frontend: Socket,
        /// How many there can be.
        capacity: u32,
    },
    /// No room for some endpoints.
    #[error(
        "port {port}/{}: {missing} {family} endpoints are left out: all {capacity} slots are in use (--max-endpoints)",
        ProtoName(*proto)
    )]
    EndpointsFull {
        /// Name of the port.
        port: String,
        /// Protocol of the port.
        proto: Proto,
        /// Family of the endpoints.
        family: Family,
        /// How many endpoints are left out.
        missing: usize,
        /// How many slots there are.
        capacity: u32,
    },
    /// More endpoints than a Service can have.
    #[error(
        "port {port}/{}: {missing} {family} endpoints are left out: a Service port has at most {}",
        ProtoName(*proto),
        super::MAX_ENDPOINTS
    )]
    TooManyEndpoints {
        /// Name of the port.
        port: String,
        /// Protocol of the port.
        proto: Proto,
        /// Family of the endpoints.
        family: Family,
        /// How many endpoints are left out.
        missing: usize,
    },
    /// No room for a changed set.
    #[error(
        "port {port}/{}: the former {family} endpoints stay: no room for a set of {len} (--max-endpoints)",
        ProtoName(*proto)
    )]
    SetsFull {
        /// Name of the port.
        port: String,
        /// Protocol of the port.
        proto: Proto,
        /// Family of the endpoints.
        family: Family,
        /// Length of the set that did not fit.
        len: usize,
    },
    /// No room for some source ranges.
    #[error(
        "port {port}/{}: {missing} {family} source ranges are left out, their clients are kept away: all {capacity} are in use",
        ProtoName(*proto)
    )]
    SourcesFull {
        /// Name of the port.
        port: String,
        /// Protocol of the port.
        proto: Proto,
        /// Family of the ranges.
        family: Family,
        /// How many ranges are left out.
        missing: usize,
        /// How many there can be.
        capacity: u32,
    },
    /// Numbers ran out.
    #[error("not served: no service port number is left; restart to begin anew")]
    NumbersEnded,
}

impl Notice {
    /// What kind of notice it is.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ExternalIp { .. } => "external-ip",
            Self::FrontendTaken { .. } => "frontend-taken",
            Self::FrontendsFull { .. } => "frontends-full",
            Self::EndpointsFull { .. } => "endpoints-full",
            Self::TooManyEndpoints { .. } => "too-many-endpoints",
            Self::SetsFull { .. } => "sets-full",
            Self::SourcesFull { .. } => "sources-full",
            Self::NumbersEnded => "numbers-ended",
        }
    }

    /// Whether it tells of what is configured to be so.
    pub const fn is_by_choice(&self) -> bool {
        matches!(self, Self::ExternalIp { .. })
    }

    /// Whether waiting may help: room may become free.
    pub(super) const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::FrontendsFull { .. }
                | Self::EndpointsFull { .. }
                | Self::SetsFull { .. }
                | Self::SourcesFull { .. }
        )
    }
}
