//! X-RDMA on a host: a [`Node`] is a `weft_msg::Context` on the machine's `libibverbs.so.1`, with the sockets that
//! set up channels (X-RDMA, section IV). One thread owns a node and polls it; nothing here locks, and the data path
//! makes no system calls.
//!
//! | subject | file |
//! | --- | --- |
//! | libibverbs, loaded at run time | `library.rs` |
//! | a device as `weft_msg::Verbs` | `device.rs`, `memory.rs` |
//! | channels by address and port, streams beside them | `node/`, `greeting.rs` |
//! | helpers for other languages | `options.rs`, `lending.rs` |
//! | the record for `weft stat`, the orders of `weft adm` | `node/show.rs` |
//!
//! The library is the one the loader finds: rdma-core's for hardware, ours under `weft run`.

mod clock;
mod device;
mod greeting;
mod lending;
mod library;
mod memory;
mod node;
mod options;

pub use device::{DeviceOptions, IbVerbs};
pub use lending::Lending;
pub use library::VerbsLibraryError;
pub use memory::Pages;
pub use node::{CallError, Event, Node, NodeError, Options, Show, Ticket};
pub use weft_msg::{
    Block, Call, Carrier, ChannelId, ChannelStatus, CloseReason, Config, ContextStats,
    Decomposition, Message, Parameter, Payload, Rule, SendError, Slice, Slow, SwitchError,
};
