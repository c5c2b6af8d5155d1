//! A thread's objects, by handle.

use std::cell::RefCell;

use weft_msg::{ChannelId, Decomposition, Message};

use crate::context::{Channel, Context};
use crate::failure::{Failure, Outcome};
use crate::handle::{Kind, Slab, thread_number};

/// A message that the program holds.
#[derive(Debug)]
pub(crate) struct Held {
    /// The handle of its context.
    pub(crate) context: usize,
    /// The handle of its channel, which may be gone.
    pub(crate) channel: usize,
    pub(crate) message: Message,
    pub(crate) trace: Option<Decomposition>,
}

/// The objects of one thread.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) contexts: Slab<Context>,
    pub(crate) channels: Slab<Channel>,
    pub(crate) messages: Slab<Held>,
}

thread_local! {
    static TABLES: RefCell<Tables> = RefCell::new(Tables::new());
}

impl Tables {
    fn new() -> Self {
        let thread = thread_number();
        Self {
            contexts: Slab::new(Kind::Context, thread),
            channels: Slab::new(Kind::Channel, thread),
            messages: Slab::new(Kind::Message, thread),
        }
    }

    /// Returns a context, and the channels of the thread.
    pub(crate) fn context(&mut self, handle: usize) -> Outcome<(&mut Context, &mut Slab<Channel>)> {
        Ok((self.contexts.get_mut(handle)?, &mut self.channels))
    }

    /// Returns a channel's context, and the channel's identifier in it.
    pub(crate) fn channel(&mut self, handle: usize) -> Outcome<(&mut Context, ChannelId)> {
        let Channel { context, id, .. } = *self.channels.get(handle)?;
        Ok((self.contexts.get_mut(context)?, id))
    }
}

/// Runs `act` with the thread's objects.
pub(crate) fn with<T>(act: impl FnOnce(&mut Tables) -> Outcome<T>) -> Outcome<T> {
    let done = TABLES.try_with(|tables| match tables.try_borrow_mut() {
        Ok(mut tables) => act(&mut tables),
        Err(_) => {
            let why =
                "another call of this thread is under way: signal handlers may not call libxrdma";
            Err(Failure::new(libc::EBUSY, why))
        }
    });
    done.unwrap_or_else(|_| Err(Failure::new(libc::ESHUTDOWN, "the thread is ending")))
}
