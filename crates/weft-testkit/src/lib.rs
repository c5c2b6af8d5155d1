//! What several crates' tests need. It never ships.

mod verbs_library;

pub use verbs_library::{link_verbs, program_on};
