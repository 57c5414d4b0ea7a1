//! The controller of kube-lottery: reads what a cluster declares, plans the tables of the data
//! path and keeps them, and the devices of this node, as planned.
//!
//! [`manifests`] and [`cluster`] turn API objects into the [`model`], [`plan`] turns the model into
//! operations on tables and does no I/O, [`dataplane`] alone touches the kernel's tables and
//! programs, [`netfilter`] alone touches nftables, [`node`] watches this node's devices.
//! [`controller`] connects them, [`explain`] says of one packet what they come to.

pub mod cli;
pub mod cluster;
pub mod config;
pub mod control;
pub mod controller;
pub mod dataplane;
pub mod explain;
pub mod fairness;
pub mod log;
pub mod manifests;
pub mod metrics;
pub mod model;
pub mod netfilter;
pub mod node;
pub mod plan;
