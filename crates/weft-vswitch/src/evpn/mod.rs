//! EVPN, the overlay's control plane of ordinary VXLAN routers: this host announces its ports' machines by BGP, and learns from
//! routers and other hosts the places of theirs.
//!
//! | what | where |
//! | --- | --- |
//! | the table `[evpn]` of a host's file | `settings.rs` |
//! | the thread with the TCP connections, which drives the engine ([`weft_evpn`]) | `driver.rs` |
//! | the events of its sessions in the daemon's log | `log.rs` |
//! | that thread's owner, and its reports to the daemon | `handle.rs`, `report.rs` |
//! | the daemon's side: entries of tables, hosts that receive floods, machines that return | `apply.rs` |
//!
//! The engine decides on the place of a machine; the daemon sets it. A `[[route]]` of the file counts before both.

mod apply;
mod driver;
mod handle;
mod log;
mod report;
mod settings;
mod status;

pub(crate) use handle::Evpn;
pub use settings::{EvpnNeighbour, EvpnSettings};
pub use status::{EvpnNeighbourStatus, EvpnStatus};
