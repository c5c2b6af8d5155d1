//! The overlay's daemon: one per host. It joins tenants' interfaces ([`weft_ports`]) and the host's
//! UDP sockets ([`weft_agent::udp`]) to the virtual switch ([`weft_vpc`]).
//!
//! A frame's way: [`Daemon::turn`] takes it from its port and gives it to the switch; packets that may
//! leave are laid into the outbox behind a VXLAN header (`underlay.rs`); on the other host the same
//! turn parses them and the switch places them in the tenant's buffers. [`control`] is how a running
//! daemon is asked and changed, [`config`] what it is started with.
#![forbid(unsafe_code)]

mod capture;
mod commands;
pub mod config;
pub mod control;
mod daemon;
mod reload;
mod seals;
mod status;
mod tenants;
pub mod trial;
mod underlay;
mod wait;

pub use daemon::{Daemon, OpenError};
pub use status::{NetworkStatus, PairStatus, PathStatus, PortStatus, Status};
