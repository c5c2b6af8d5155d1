//! `weft._weft`: what the Python package `weft` asks of a node. It waits, sends and says what happened; whom to tell
//! is Python's matter (`python/weft/`).
//!
//! | what | where |
//! | --- | --- |
//! | a node, and the interpreter's lock while it waits | `node.rs`, `shared.rs` |
//! | bodies without a copy, in both directions | `message.rs`, `memory.rs` |
//! | collectives, on a thread of their own | `group.rs` |
//! | errors as exceptions | `error.rs` |

use pyo3::prelude::*;

mod body;
mod error;
mod event;
mod group;
mod memory;
mod message;
mod node;
mod shared;

/// The module.
#[pymodule]
mod _weft {
    #[pymodule_export]
    use crate::event::Event;
    #[pymodule_export]
    use crate::group::{Group, Work};
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::message::Message;
    #[pymodule_export]
    use crate::node::Node;
}
