//! An opened device.

use core::ffi::c_int;
use core::mem::offset_of;
use std::sync::Arc;

use crate::engine::events::EventQueue;
use crate::engine::{Asynchronous, Engine, Object, Watcher};
use crate::errno::{Errno, Outcome};
use weft_verbs_abi::*;

/// The parts of an opened device that all its objects use.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) engine: Arc<Engine>,
    pub(crate) number: weft_rnic::Context,
    pub(crate) events: Arc<EventQueue<Asynchronous>>,
}

impl Opened {
    /// Returns the recipient of an object's events.
    pub(crate) fn watcher(&self, object: Object) -> Watcher {
        Watcher { object, channel: None, events: self.events.clone() }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.engine.is_inherited() {
            // Its descriptors are closed, and their numbers may be other files'.
            core::mem::forget(self.engine.clone());
        }
    }
}

/// The structure behind a program's pointer to the opened device.
#[repr(C)]
pub(crate) struct Context {
    /// Programs hold a pointer to its last field.
    verbs: verbs_context,
    pub(crate) opened: Arc<Opened>,
}

/// The offset from the program's pointer to the start of [`Context`], bytes.
const TO_START: usize = offset_of!(Context, verbs) + offset_of!(verbs_context, context);

impl Context {
    /// Opens the device; the pointer is valid until [`Self::close`]. `tables` returns the tables that programs call
    /// through, for a context with this descriptor of its events.
    pub(crate) fn open(tables: impl FnOnce(c_int) -> verbs_context) -> Outcome<*mut ibv_context> {
        let engine = Engine::current()?;
        let events = EventQueue::open().map_err(|error| Errno::from_io(&error))?;
        let async_fd = events.descriptor();
        let events = Arc::new(events);
        let number = engine.open_context(events.clone())?;
        let opened = Arc::new(Opened { engine, number, events });
        let verbs = tables(async_fd);
        let context = Box::into_raw(Box::new(Self { verbs, opened }));
        // SAFETY: the context was just made.
        Ok(unsafe { &raw mut (*context).verbs.context })
    }

    /// Returns the context of a program's pointer.
    ///
    /// # Safety
    /// It is open, and is not closed while the reference is used.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: `open` gave out a pointer to this field of a box.
        unsafe { &*context.byte_sub(TO_START).cast::<Self>() }
    }

    /// Closes a context that [`Self::open`] opened, with every object that was made with it and still exists.
    ///
    /// # Safety
    /// It was opened, is not closed yet, and is not used afterwards.
    pub(crate) unsafe fn close(context: *mut ibv_context) -> Outcome<()> {
        // SAFETY: `open` gave out a pointer to this field of a box.
        let context = unsafe { Box::from_raw(context.byte_sub(TO_START).cast::<Self>()) };
        context.opened.engine.close_context(context.opened.number)
    }
}
