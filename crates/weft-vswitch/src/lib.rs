//! The overlay's daemon: one per host. It joins tenants' interfaces ([`weft_ports`]) and the host's
//! UDP sockets ([`weft_agent::udp`]) to the virtual switch ([`weft_vpc`]).
//!
//! A frame's way: a thread's turn (`worker.rs`) takes it from its port and gives it to the switch; packets that
//! may leave are laid into the outbox behind a VXLAN header and sealed there (`underlay.rs`); on the other host the same
//! turn opens and parses them and the switch places them in the tenant's buffers. A port belongs to one of the host's
//! threads, to which the kernel brings what is for its connections (`redirect.rs`); what comes or goes elsewhere is
//! handed over (`post.rs`). [`control`] is how a running daemon is asked and changed, [`config`] what it is started with.
#![forbid(unsafe_code)]

mod capture;
mod commands;
pub mod config;
pub mod control;
mod crew;
mod crowd;
mod daemon;
#[cfg(any(test, fuzzing))]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod post;
mod redirect;
mod reload;
mod routes;
mod status;
mod tenants;
pub mod trial;
mod underlay;
mod wait;
mod worker;

/// What the fuzz targets of `fuzz/` call; nothing that ships has it.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::control::properties::control_socket;
}

pub use daemon::{Daemon, OpenError};
pub use status::{
    EncryptionStatus, NetworkStatus, PairStatus, PathStatus, PortStatus, Status, ThreadStatus,
};
