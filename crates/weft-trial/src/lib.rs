//! Weft's daemons on a lab ([`weft_lab`]), all on this machine: for `weft vpc try`, `weft route` with
//! `--lab`, tests and benches. No daemon depends on it.
//!
//! A [`Trial`] is an overlay: hosts with tenants, a daemon on each, and a fabric of several paths
//! between them. [`routers_of`] gives the route controller the routers of a lab, [`inventory`] those of
//! the lab that a configuration names.
//!
//! ```
//! use weft_steer::SteerConfig;
//! use weft_trial::{TrialConfig, inventory};
//!
//! // Two tenants on three hosts and four spines. As root, `Trial::up` builds them and starts the daemons.
//! let mut config = TrialConfig::named("three");
//! config.lab.leaves = 3;
//! assert_eq!(config.tenants, ["red", "blue"]);
//!
//! // A route controller has the routers that its configuration lists, or those of a lab that is up.
//! let listed = SteerConfig::parse(
//!     "[[router]]
//!      name = 'spine-0'
//!      agent = '10.0.0.2'
//!      apply = 'kernel'",
//! )?;
//! assert_eq!(inventory(&listed)?.routers[0].name, "spine-0");
//! let missing = inventory(&SteerConfig::parse("lab = 'not-up'")?);
//! assert!(missing.unwrap_err().to_string().contains("not-up"));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod overlay;
mod routers;

pub use overlay::{Trial, TrialConfig, TrialError};
pub use routers::{inventory, routers_of};
