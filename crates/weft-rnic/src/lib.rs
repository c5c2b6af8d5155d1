//! An RDMA NIC in software: verbs objects and their semantics (IBTA volume 1, chapters 9 to 11) over
//! every path of the network. It owns no clock, no socket, no thread, and no memory but its queues.
//!
//! [`Device`] is the whole of it. Its owner makes objects (contexts, protection domains, regions,
//! completion queues, queue pairs), posts work requests, tells it what arrived (`handle_packet`) and
//! what time it is (`handle_timeout`), and drains what it wants to do (`poll_transmit`, `poll_cq`,
//! `poll_event`, `poll_timeout`). Payload is the owner's: the device says through [`Memory`] what to
//! copy where, after it has checked key, bounds, rights and domain.
//!
//! A message's way through this crate:
//!
//! | step | out | in |
//! | --- | --- | --- |
//! | work request | `queue_pair/send_queue.rs` | `receive_queue.rs`, `completion.rs` |
//! | in its turn | `device/requester.rs` | `device/responder.rs`, `queue_pair/inbox.rs` |
//! | key, address → owner, address | `memory/emtt.rs` | `memory/emtt.rs` |
//! | message ↔ packets | `device/transport.rs`, then `weft-transport` | the same |
//!
//! What it is not: it does not choose paths or find losses (`weft-transport` does), reads no memory, and
//! knows no file descriptors or C structures. Why it is so: `docs/design/rnic.md`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod completion;
mod device;
mod error;
mod event;
mod limits;
mod memory;
mod queue_pair;
mod receive_queue;
mod table;
#[cfg(test)]
mod tests;
mod work;

pub use completion::{
    Arm, Completion, CompletionQueue, Extra, Source as DatagramSource, Status, WorkKind,
};
pub use device::{Context, Device, ProtectionDomain, Source, Transmit};
pub use error::{Object, VerbsError};
pub use event::Event;
pub use limits::Limits;
pub use memory::{
    Access, AccessError, Bind, Held, Memory, Owner, Place, RegionRequest, Right, WindowKind,
};
pub use queue_pair::{Attributes, QueuePairNumber, QueuePairRequest, Service, State};
pub use receive_queue::SharedReceiveQueue;
pub use work::{Data, Datagram, Operation, ReceiveRequest, Remote, SendRequest, Sge};
