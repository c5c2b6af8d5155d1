//! An opened device.

use core::ffi::c_int;
use core::mem::offset_of;
use std::sync::Arc;

use crate::device::DEVICE;
use crate::engine::events::EventQueue;
use crate::engine::{Asynchronous, Engine, Object, Watcher};
use crate::errno::{Errno, Outcome};
use crate::objects;
use weft_verbs_abi::*;

/// The parts of an opened device that all its objects use.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) engine: &'static Engine,
    pub(crate) number: weft_rnic::Context,
    pub(crate) events: Arc<EventQueue<Asynchronous>>,
}

impl Opened {
    /// Returns the recipient of an object's events.
    pub(crate) fn watcher(&self, object: Object) -> Watcher {
        Watcher { object, channel: None, events: self.events.clone() }
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
    /// Opens the device; the pointer is valid until [`Self::close`].
    pub(crate) fn open() -> Outcome<*mut ibv_context> {
        let engine = Engine::current()?;
        let events = EventQueue::open().map_err(|error| Errno::from_io(&error))?;
        let async_fd = events.descriptor();
        let events = Arc::new(events);
        let number = engine.open_context(events.clone())?;
        let opened = Arc::new(Opened { engine, number, events });
        let verbs = functions(async_fd);
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

/// Number of completion vectors.
const COMP_VECTORS: c_int = 1;

/// Returns the tables that programs call through.
fn functions(async_fd: c_int) -> verbs_context {
    // SAFETY: all-zero bytes are valid for nullable functions, pointers and numbers.
    let zero: verbs_context = unsafe { core::mem::zeroed() };
    let ops = ibv_context_ops {
        alloc_mw: Some(objects::alloc_mw),
        bind_mw: Some(objects::bind_mw),
        dealloc_mw: Some(objects::dealloc_mw),
        poll_cq: Some(objects::poll_cq),
        req_notify_cq: Some(objects::req_notify_cq),
        post_srq_recv: Some(objects::post_srq_recv),
        post_send: Some(objects::post_send),
        post_recv: Some(objects::post_recv),
        ..zero.context.ops
    };
    let context = ibv_context {
        device: (&raw const DEVICE.public).cast_mut(),
        ops,
        // Programs may duplicate it to share the device between processes, which Weft does not support.
        cmd_fd: async_fd,
        async_fd,
        num_comp_vectors: COMP_VECTORS,
        abi_compat: ABI_EXTENDED,
        ..zero.context
    };
    verbs_context {
        query_port: Some(crate::exports::query_port),
        query_device_ex: Some(crate::exports::query_device_ex),
        create_cq_ex: Some(objects::create_cq_ex),
        create_qp_ex: Some(objects::create_qp_ex),
        create_srq_ex: Some(objects::create_srq_ex),
        sz: size_of::<verbs_context>(),
        context,
        ..zero
    }
}
