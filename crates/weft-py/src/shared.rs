//! A node shared by several Python objects: the node object, and its messages and registered memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

use pyo3::prelude::*;
use weft_msg::{Block, ChannelId, Message as Received};
use weft_xrdma::{Lending, Node};

use crate::error::{exception, in_use};

/// The state that the objects share. Any one of them keeps the memory of all.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<Option<State>>,
    /// `true` after `close`. It is apart from the state, because a reader that locked that would make another thread's
    /// use of the node fail.
    closed: AtomicBool,
    /// Objects that Python has dropped, at any time and in any thread.
    dropped: Mutex<Dropped>,
    /// Number of buffers that Python has exported.
    exports: AtomicUsize,
}

/// A node, and its table of lent memory.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) lending: Lending,
}

/// Objects that Python has dropped and the node has not reclaimed yet.
#[derive(Debug, Default)]
struct Dropped {
    messages: Vec<Received>,
    /// Requests that Python can no longer answer.
    requests: Vec<(ChannelId, u64)>,
    blocks: Vec<Block>,
}

impl Shared {
    pub(crate) const fn new(node: Node, lending: Lending) -> Self {
        Self {
            state: Mutex::new(Some(State { node, lending })),
            closed: AtomicBool::new(false),
            dropped: Mutex::new(Dropped {
                messages: Vec::new(),
                requests: Vec::new(),
                blocks: Vec::new(),
            }),
            exports: AtomicUsize::new(0),
        }
    }

    /// Runs `act` on the node with exclusive access.
    ///
    /// # Errors
    /// The node is closed, or another thread uses it.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> R,
    ) -> PyResult<R> {
        self.try_with(act).map_err(|busy| busy.raise(py))
    }

    /// Runs `act` on the node with exclusive access, also where the interpreter's lock is not held.
    ///
    /// # Errors
    /// The node is closed, or another thread uses it.
    pub(crate) fn try_with<R>(&self, act: impl FnOnce(&mut State) -> R) -> Result<R, Unusable> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => return Err(Unusable::Elsewhere),
            // A panic is a bug of this crate. The node keeps the state that it had then.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let state = state.as_mut().ok_or(Unusable::Closed)?;
        self.reclaim(state);
        Ok(act(state))
    }

    /// Returns dropped objects to the node; lent memory waits for its message.
    fn reclaim(&self, state: &mut State) {
        let dropped = &mut *self.dropped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (now, context) = (state.node.now(), state.node.context());
        dropped.messages.drain(..).for_each(|message| context.release(now, message));
        for (channel, request) in dropped.requests.drain(..) {
            context.decline(now, channel, request);
        }
        let lending = &state.lending;
        let free = dropped.blocks.extract_if(.., |block| !lending.is_lent(block.slice()));
        free.for_each(|block| context.free(now, block));
    }

    /// Records that Python has dropped a message.
    pub(crate) fn drop_message(&self, message: Received) {
        let mut dropped = self.dropped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        dropped.messages.push(message);
    }

    /// Records that Python has dropped a request; this has no effect on one that was answered.
    pub(crate) fn drop_request(&self, channel: ChannelId, request: u64) {
        let mut dropped = self.dropped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        dropped.requests.push((channel, request));
    }

    /// Records that Python has dropped registered memory.
    pub(crate) fn drop_block(&self, block: Block) {
        let mut dropped = self.dropped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        dropped.blocks.push(block);
    }

    /// Counts a new buffer of the node's memory.
    pub(crate) fn export(&self) {
        self.exports.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a buffer that was released.
    pub(crate) fn release_export(&self) {
        self.exports.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends the node with its channels, messages and memory.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let exports = self.exports.load(Ordering::Relaxed);
        if exports > 0 {
            return Err(in_use(&format!("{exports} memoryviews of the node's memory exist")));
        }
        let state = match self.state.try_lock() {
            Ok(mut state) => state.take(),
            Err(TryLockError::WouldBlock) => return Err(Unusable::Elsewhere.raise(py)),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
        };
        self.closed.store(true, Ordering::Relaxed);
        py.detach(|| drop(state));
        Ok(())
    }

    /// Returns `true` if the node exists, also while another thread uses it.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }
}

impl State {
    /// Returns all pending events.
    pub(crate) fn take_events(&mut self) -> Vec<weft_xrdma::Event> {
        let events: Vec<_> = core::iter::from_fn(|| self.node.poll_event()).collect();
        for event in &events {
            if let weft_xrdma::Event::Channel(channel_event) = event {
                self.lending.ingest(channel_event);
            }
        }
        events
    }
}

/// The reasons why a node cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The node is closed.
    Closed,
    /// Another thread uses the node.
    Elsewhere,
}

impl Unusable {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Closed => exception(py, "Closed", "the node is closed"),
            Self::Elsewhere => {
                let why = "another thread uses this node: give each thread a node of its own";
                exception(py, "Error", why)
            }
        }
    }
}
