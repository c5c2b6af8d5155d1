//! What several crates' tests need. It never ships.

mod openmetrics;
mod server;
mod verbs_library;
mod xrdma_library;

pub use openmetrics::samples;
pub use server::Server;
pub use verbs_library::{link_verbs, load_verbs, program_on};
pub use xrdma_library::lay_out_xrdma;
