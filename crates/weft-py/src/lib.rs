//! `weft._weft`: the native part of the Python package `weft`. It waits, sends and returns events; `python/weft/`
//! dispatches them.
//!
//! | subject | file |
//! | --- | --- |
//! | a node, and the interpreter's lock while it waits | `node.rs`, `shared.rs` |
//! | bodies without a copy, in both directions | `message.rs`, `memory.rs` |
//! | collectives, on a separate thread | `group.rs` |
//! | errors as exceptions | `error.rs` |
//! | the simulator | `sim/` |
//!
//! A server and its client in one program; `tests/python.rs` runs it:
//!
//! ```python
//! import threading
//!
//! import weft
//!
//! with weft.Server("127.0.0.1:0", lambda message: message.body) as server:
//!     thread = threading.Thread(target=server.serve_forever)
//!     thread.start()
//!     with weft.connect(server.address) as channel:
//!         answer = channel.call(b"hello", timeout=5)
//!         assert bytes(answer) == b"hello"
//!     server.stop()
//!     thread.join()
//! ```

use pyo3::prelude::*;

mod body;
mod error;
mod event;
mod group;
mod memory;
mod message;
mod node;
mod shared;
mod sim;

/// The module.
#[pymodule]
mod _weft {
    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

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
    #[pymodule_export]
    use crate::sim::{
        PathView, Table, built_in_names, check_congestion, check_policy, compare_balancers,
        list_experiments, read_scenario, run_experiment, run_scenario,
    };
}
