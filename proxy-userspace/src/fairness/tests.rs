//! The statistics against simulations.

mod tail;
