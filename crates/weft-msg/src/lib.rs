//! Messages over RDMA in three nouns: a [`Context`] owns channels, a channel carries messages, a [`Message`]
//! is bytes that may ask for an answer (X-RDMA, section IV). No clock, no socket, no thread: the owner polls.
//!
//! A message's way through this crate:
//!
//! | step | out | in |
//! | --- | --- | --- |
//! | owner | [`Context::send`], `context/submit.rs` | [`Event::Message`], [`Context::release`] |
//! | window (algorithm 1) | `window.rs`, `channel/send.rs` | `window.rs`, `channel/receive.rs` |
//! | bodies too long for a frame | stay where they are | `channel/fetch.rs` READs them |
//! | frame ↔ bytes | `weft-wire/src/frame.rs` | the same |
//! | carrier | [`Verbs::post_send`], or `channel/stream.rs` | [`Context::poll`], or the same |
//!
//! It stands on any RDMA device that answers [`Verbs`]; [`Rnic`] is ours, in process and in the simulator.
//! What it is not: it opens no connection (the owner carries [`ChannelOffer`](weft_wire::ChannelOffer)s), and
//! hands no message over twice or before its time. Why it is so: `docs/design/messages.md`.
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
