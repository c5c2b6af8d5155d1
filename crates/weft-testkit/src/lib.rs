//! Helpers for the tests of several crates. This crate never ships.

#[cfg(feature = "certificates")]
mod certificates;
mod figure_rows;
mod openmetrics;
mod server;
mod skip;
mod verbs_library;
mod xrdma_library;

#[cfg(feature = "certificates")]
pub use certificates::{Authority, Issued, Validity};
pub use figure_rows::{ROWS, figure_row};
pub use openmetrics::samples;
pub use server::Server;
pub use skip::{HASH_SEED, can_run, lab_is_missing, skip, skip_on_this_machine};
pub use verbs_library::{link_verbs, load_verbs, program_on};
pub use xrdma_library::lay_out_xrdma;
// The JSON values that rows are made of.
pub use serde_json::{Value, json};
