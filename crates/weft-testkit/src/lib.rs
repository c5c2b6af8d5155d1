//! Helpers for the tests of several crates. This crate never ships.
//!
//! ```
//! use std::process::Command;
//! use weft_testkit::Server;
//!
//! // A server prints its port, and is killed when the value is dropped.
//! let mut program = Command::new("sh");
//! program.args(["-c", "echo listening at 0.0.0.0:4791; exec sleep 60"]);
//! let mut server = Server::of(program);
//! assert_eq!(server.at, "127.0.0.1:4791");
//! assert!(server.child.try_wait()?.is_none(), "it runs");
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(feature = "certificates")]
mod certificates;
#[cfg(feature = "etcd")]
pub mod etcd;
mod figure_rows;
mod initramfs;
mod nccl_library;
mod openmetrics;
mod pause;
pub mod rxe;
mod server;
mod skip;
mod verbs_library;
mod xrdma_library;
mod xtask;

#[cfg(feature = "certificates")]
pub use certificates::{Authority, Issued, Validity};
pub use figure_rows::{ROWS, figure_row};
pub use initramfs::{Files, Kernel, installed};
pub use nccl_library::link_nccl;
pub use openmetrics::samples;
pub use pause::pause;
pub use server::Server;
pub use skip::{HASH_SEED, can_run, lab_is_missing, skip, skip_on_this_machine};
pub use verbs_library::{link_malloc, link_nic_ports, link_verbs, load_verbs, program_on};
pub use xrdma_library::install_xrdma;
// The JSON values of figure rows.
pub use serde_json::{Value, json};
