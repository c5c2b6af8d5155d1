//! Events, as Python objects.

use std::sync::Arc;

use pyo3::prelude::*;
use slotmap::{Key, KeyData};
use weft_msg::{ChannelId, Decomposition, Event as ChannelEvent};
use weft_xrdma::Event as NodeEvent;

use crate::error::Raise;
use crate::message::Message;
use crate::shared::Shared;

/// An event.
#[pyclass(frozen, get_all, module = "weft._weft")]
#[derive(Debug)]
pub(crate) struct Event {
    /// "connected", "connect-failed", "accept-failed", "open", "message", "delivered" or "closed".
    kind: &'static str,
    /// The channel; 0 for a connection that failed.
    channel: u64,
    /// The number of the call or message.
    number: u64,
    /// The message that arrived.
    message: Option<Py<Message>>,
    /// The reason.
    error: Option<Py<PyAny>>,
}

/// Returns a channel's number in Python.
pub(crate) fn number(channel: ChannelId) -> u64 {
    channel.data().as_ffi()
}

/// Returns the channel of a number.
pub(crate) fn channel(number: u64) -> ChannelId {
    KeyData::from_ffi(number).into()
}

/// Converts a node's events to Python's. The times of a call are attached to its response. Events of slow operations
/// are dropped; the node's state counts slow polls and calls.
pub(crate) fn convert(
    py: Python<'_>,
    shared: &Arc<Shared>,
    node_events: Vec<NodeEvent>,
) -> PyResult<Vec<Event>> {
    let mut events = Vec::with_capacity(node_events.len());
    let mut traces: Vec<(ChannelId, u64, Decomposition)> = Vec::new();
    let plain = |kind, channel, number| Event { kind, channel, number, message: None, error: None };
    for event in node_events {
        events.push(match event {
            NodeEvent::Connected { ticket, channel } => {
                plain("connected", number(channel), ticket.number())
            }
            NodeEvent::ConnectFailed { ticket, error } => {
                let error = Some(error.raise(py).into_value(py).into_any());
                Event { error, ..plain("connect-failed", 0, ticket.number()) }
            }
            NodeEvent::AcceptFailed { error } => {
                let error = Some(error.raise(py).into_value(py).into_any());
                Event { error, ..plain("accept-failed", 0, 0) }
            }
            NodeEvent::Channel(ChannelEvent::Open { channel }) => plain("open", number(channel), 0),
            NodeEvent::Channel(ChannelEvent::Message { channel, message }) => {
                let of = |(of, id, _): &(ChannelId, u64, _)| {
                    *of == channel && message.call == weft_msg::CallRole::Response(*id)
                };
                let trace = traces.iter().position(of).map(|at| traces.swap_remove(at).2);
                let message =
                    Py::new(py, Message::new(Arc::clone(shared), channel, message, trace))?;
                Event { message: Some(message), ..plain("message", number(channel), 0) }
            }
            NodeEvent::Channel(ChannelEvent::Delivered { channel, number: of }) => {
                plain("delivered", number(channel), of)
            }
            NodeEvent::Channel(ChannelEvent::Closed { channel, reason }) => {
                let error = Some(reason.raise(py).into_value(py).into_any());
                Event { error, ..plain("closed", number(channel), 0) }
            }
            NodeEvent::Channel(ChannelEvent::Traced { channel, id, time }) => {
                traces.push((channel, id, time));
                continue;
            }
            _ => continue,
        });
    }
    Ok(events)
}
