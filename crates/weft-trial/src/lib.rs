//! Weft's daemons on a lab ([`weft_lab`]), all on this machine: for `weft vpc try`, `weft route` with
//! `--lab`, tests and benches. No daemon depends on it.
//!
//! A [`Trial`] is an overlay: hosts with tenants, a daemon on each, and a fabric of several paths
//! between them. [`routers_of`] gives the route controller the routers of a lab, [`inventory`] those of
//! the lab that a configuration names.
#![forbid(unsafe_code)]

mod overlay;
mod routers;

pub use overlay::{Trial, TrialConfig, TrialError};
pub use routers::{inventory, routers_of};
