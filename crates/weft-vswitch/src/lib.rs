//! The overlay's daemon: one per host. It joins tenants' interfaces ([`weft_ports`]) and the host's
//! UDP sockets ([`weft_udp::sockets`]) to the virtual switch ([`weft_vpc`]).
//!
//! A frame's way: a thread's turn (`worker.rs`) reads it from its port and passes it to the switch; packets that
//! may leave are written into the outbox after a VXLAN header and sealed there (`underlay.rs`); on the other host
//! the same turn opens and parses them and the switch places them in the tenant's buffers. A port belongs to one of
//! the host's threads, to which the kernel steers the packets of its connections (`redirect.rs`); frames and
//! packets at other threads are handed over (`mailbox.rs`). [`control`] queries and changes a running daemon,
//! [`config`] is its configuration.
//!
//! ```
//! use weft_vswitch::config::Config;
//!
//! let config: Config = toml::from_str(
//!     r#"
//!     [host]
//!     address = "10.1.0.2"
//!     mtu = 1500
//!
//!     [[network]]
//!     vni = 100
//!     peers = ["10.2.0.2"]
//!
//!     [[port]]
//!     name = "web"
//!     vni = 100
//!     mac = "02:00:00:00:07:01"
//!     tap = { interface = "eth0", namespace = "web" }
//!     "#,
//! )?;
//! config.check()?;
//! // The VXLAN port, and the network's MTU less the headers.
//! assert_eq!(config.host.socket().to_string(), "10.1.0.2:4789");
//! assert!(config.host.tenant_mtu() < 1500);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With that, `Daemon::open` and `Daemon::run` serve the ports; it needs `CAP_NET_ADMIN`.
#![forbid(unsafe_code)]

mod capture;
mod changes;
mod commands;
pub mod config;
pub mod control;
mod daemon;
mod error;
pub mod evpn;
pub mod fleet;
mod flow_log;
#[cfg(any(test, fuzzing))]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod looks;
mod mailbox;
mod mirror;
mod node;
mod observer;
mod port_poller;
mod ports;
mod redirect;
mod reload;
mod routes;
mod snapshot;
mod state;
mod status;
mod tenants;
mod underlay;
mod worker;
mod worker_pool;

/// The functions that the fuzz targets of `fuzz/` call; no released build has them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::control::properties::control_socket;
    pub use crate::fleet::properties::fleet_values;
}

pub use daemon::{Daemon, Notice};
pub use error::OpenError;
pub use flow_log::{FlowLogSettings, FlowLogStatus};
pub use mirror::{MirrorCounts, MirrorSettings};
pub use status::{
    EncryptionStatus, NetworkStatus, PairStatus, PathStatus, PortStatus, Reloaded, Status,
    ThreadStatus,
};
