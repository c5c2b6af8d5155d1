//! Messages over RDMA, with three kinds of object: a [`Context`] owns channels, a channel carries messages, and
//! a [`Message`] is bytes that may request an answer (X-RDMA, section IV). The crate has no clock, socket or
//! thread: its owner polls it.
//!
//! The path of a message through this crate:
//!
//! | step | out | in |
//! | --- | --- | --- |
//! | owner | [`Context::send`], `context/submit.rs` | [`Event::Message`], [`Context::release`] |
//! | window (algorithm 1) | `window.rs`, `channel/send.rs` | `window.rs`, `channel/receive.rs` |
//! | bodies too long for a frame | remain in place | `channel/fetch.rs` READs them |
//! | frame ↔ bytes | `weft-wire/src/frame.rs` | the same |
//! | carrier | [`Verbs::post_send`], or `channel/stream.rs` | [`Context::poll`], or the same |
//!
//! It runs on any RDMA device that implements [`Verbs`]; [`Rnic`] is Weft's own, in process and in the
//! simulator. The crate opens no connection (the owner exchanges [`ChannelOffer`](weft_wire::ChannelOffer)s)
//! and delivers no message twice or before it is complete. Its design is explained in `docs/design/messages.md`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod calls;
mod channel;
mod config;
mod context;
mod event;
mod filter;
mod journal;
mod memory;
mod rnic;
mod shared_receives;
mod stats;
#[cfg(test)]
mod tests;
mod trace;
mod verbs;
mod window;

pub use channel::Carrier;
pub use config::{Config, ConfigError, Parameter};
pub use context::{ChannelId, Context, OfferError, Payload, SwitchError};
pub use event::{CloseReason, Event, Message, ProtocolError, SendError, Slow};
pub use filter::{CallKind, Direction, Fault, NoRule, Rule};
pub use journal::{Journal, Note, Noted};
pub use memory::Block;
pub use rnic::Rnic;
pub use stats::{ChannelState, ChannelStats, ChannelStatus, ContextStats};
pub use trace::Decomposition;
pub use verbs::{
    Completion, Qp, QpSizes, Refused, Region, Registrar, Slice, Verbs, Work, rnr_retry,
};
pub use weft_wire::Call;
pub use window::WindowError;
