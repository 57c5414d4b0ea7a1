//! Holds the data path against kube-proxy: cases from files, or made at random and observed on the
//! real one.
#![forbid(unsafe_code)]

pub mod case;
pub mod cluster;
pub mod draws;
pub mod hunt;
mod memory;
pub mod oracle;
pub mod random;
pub mod run;
mod shrink;
mod why;
pub mod world;
