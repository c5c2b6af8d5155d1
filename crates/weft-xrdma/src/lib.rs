//! X-RDMA on a host: a [`Node`] is a `weft_msg::Context` on whatever `libibverbs.so.1` the machine has, with the
//! sockets that bring two ends together (X-RDMA, section IV). A thread owns a node and polls it; nothing here
//! locks, and nothing on the data path asks the kernel.
//!
//! | what | where |
//! | --- | --- |
//! | libibverbs, loaded at run time | `library.rs` |
//! | a device as `weft_msg::Verbs` | `device.rs`, `memory.rs` |
//! | channels by address and port, streams beside them | `node/`, `greeting.rs` |
//!
//! The library is the one the loader finds: rdma-core's for hardware, ours under `weft run`.

#[path = "../../weft-verbs/src/abi/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "all of verbs.h, described once")]
mod abi;
mod clock;
mod device;
mod greeting;
mod library;
mod memory;
mod node;

pub use device::{DeviceOptions, IbVerbs};
pub use library::VerbsLibraryError;
pub use memory::Pages;
pub use node::{CallError, Event, Node, NodeError, Options, Ticket};
pub use weft_msg::{
    Block, Call, Carrier, ChannelId, ChannelStatus, CloseReason, Config, ContextStats,
    Decomposition, Message, Parameter, Payload, Rule, SendError, Slice, Slow, SwitchError,
};
