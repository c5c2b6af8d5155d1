//! X-RDMA on a host: a [`Node`] is a `weft_msg::Context` on the machine's `libibverbs.so.1`, with the sockets that
//! set up channels (X-RDMA, section IV). One thread owns a node and polls it; nothing here locks, and the data path
//! makes no system calls.
//!
//! | subject | file |
//! | --- | --- |
//! | libibverbs, loaded at run time | `library.rs` |
//! | a device as `weft_msg::Verbs` | `device/`, `memory.rs` |
//! | channels by address and port, streams beside them | `node/`, `greeting.rs` |
//! | helpers for other languages | `options.rs`, `lending.rs` |
//! | the record for `weft stat`, the requests of `weft adm` | `node/show.rs` |
//!
//! The library is the one the loader finds: rdma-core's for hardware, ours under `weft run`.
//!
//! ```
//! use weft_xrdma::{Options, Pages};
//!
//! // The text form, for command lines and other languages.
//! let options: Options = "pages=huge spin=50us depth=64".parse()?;
//! assert_eq!((options.device.pages, options.config.depth), (Pages::Huge, 64));
//! let error = "dept=64".parse::<Options>().unwrap_err();
//! assert!(error.to_string().contains("depth"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With a device (`weft run` has one for every program):
//!
//! ```no_run
//! use weft_xrdma::{Node, Options, Payload};
//!
//! let mut node = Node::new(Options::default())?;
//! let channel = node.connect_and_wait("10.0.0.1:7000".parse()?)?;
//! let answer = node.call(channel, Payload::Copy(b"hello"), None)?;
//! assert_eq!(node.context().body(&answer), b"hello");
//! let now = node.now();
//! node.context().release(now, answer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clock;
mod device;
mod greeting;
mod lending;
mod library;
mod memory;
mod memory_file;
mod node;
mod options;

pub use device::{DeviceOptions, IbVerbs, PacketLabels};
pub use lending::Lending;
pub use library::VerbsLibraryError;
pub use memory::Pages;
pub use node::{CallError, Event, Node, NodeError, Options, Show, Ticket};
pub use weft_msg::{
    Block, CallRole, Carrier, ChannelId, ChannelStatus, CloseReason, Config, ContextStats,
    Decomposition, Message, Parameter, Payload, Rule, SendError, Slice, Slow, SwitchError,
};
