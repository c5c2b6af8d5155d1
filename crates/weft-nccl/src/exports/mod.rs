//! The structures that NCCL looks up, one for each version of the net plugin's interface and of the tuner's. Each function here is a call that several versions
//! have in the same form; a version's file has those that it has in its own.

#![allow(non_upper_case_globals, reason = "the names of the structures are NCCL's")]

mod tuner;
mod v10;
mod v11;
mod v12;
mod v6;
mod v7;
mod v8;
mod v9;

use core::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_nccl_abi::{NCCL_NET_HANDLE_MAXSIZE, ncclDebugLogger_t, ncclResult_t, result};

use crate::failure::Failure;
use crate::{log, plugin};

/// The name of the network: `NCCL_NET=Weft` makes NCCL start with this plugin or not at all.
const NAME: *const c_char = c"Weft".as_ptr();

/// Maximum size of a receive of the protocols LL and LL128, bytes: a step of LL128, with 640 threads of 120 words (NCCL's
/// `NCCL_LL128_MAX_NTHREADS` and `NCCL_LL128_ELEMS_PER_THREAD`). Versions before 9 do not report the protocol of a receive.
const MAX_WATCHED: usize = 640 * 120 * 8;

/// A structure that NCCL reads.
#[derive(Debug)]
#[repr(transparent)]
struct Exported<T>(T);

// SAFETY: the structures contain functions and one pointer to a constant string.
unsafe impl<T> Sync for Exported<T> {}

/// Runs a call and returns NCCL's number of its result. The log gets the text of an error.
fn call(run: impl FnOnce() -> Result<(), Failure>) -> ncclResult_t {
    let outcome = catch_unwind(AssertUnwindSafe(run));
    match outcome
        .unwrap_or_else(|_| Err(Failure::internal("a mistake of this plugin: see standard error")))
    {
        Ok(()) => result::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.unlogged() {
                log::warn(text);
            }
            failure.code()
        }
    }
}

/// Writes a call's result to where NCCL reads it.
///
/// # Safety
/// `to` is null or has room for a `T`.
unsafe fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { to.write(value) };
    }
}

/// Writes a pointer, or null if there is none yet.
///
/// # Safety
/// As [`write`].
unsafe fn write_pointer(to: *mut *mut c_void, pointer: Option<*mut c_void>) {
    // SAFETY: guaranteed by the caller.
    unsafe { write(to, pointer.unwrap_or(core::ptr::null_mut())) };
}

unsafe extern "C" fn devices(count: *mut c_int) -> ncclResult_t {
    // SAFETY: NCCL passes room for the result.
    call(|| plugin::devices().map(|devices| unsafe { write(count, devices) }))
}

/// # Safety
/// `handle` has 128 bytes.
unsafe extern "C" fn listen(
    device: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> ncclResult_t {
    call(|| {
        let (listener, bytes) = plugin::listen(device)?;
        // SAFETY: guaranteed by the caller; NCCL passes room for the listener.
        unsafe {
            write(handle.cast(), bytes);
            write(comm, listener);
        }
        Ok(())
    })
}

/// # Safety
/// `handle` has 128 bytes, which [`listen`] wrote, and the same memory in each call until the connection is open.
unsafe extern "C" fn connect(
    device: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> ncclResult_t {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { handle.cast::<[u8; NCCL_NET_HANDLE_MAXSIZE]>().as_mut() };
        let bytes = bytes.ok_or_else(|| Failure::argument("the handle is null"))?;
        let connected = plugin::connect(device, bytes)?;
        // SAFETY: NCCL passes room for the comm.
        unsafe { write_pointer(comm, connected) };
        Ok(())
    })
}

/// Version 7's form. A null pointer of the device's offload stays as it is: this plugin has none.
unsafe extern "C" fn connect_offload(
    device: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { connect(device, handle, comm) }
}

unsafe extern "C" fn accept(listener: *mut c_void, comm: *mut *mut c_void) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes an open listener, and room for the comm.
        unsafe { write_pointer(comm, plugin::accept(listener)?) };
        Ok(())
    })
}

/// Version 7's form.
unsafe extern "C" fn accept_offload(
    listener: *mut c_void,
    comm: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { accept(listener, comm) }
}

/// Version 8's form.
unsafe extern "C" fn register(
    _comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    memory: *mut *mut c_void,
) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL keeps the memory until `deregister`, and passes room for the result.
        unsafe { write(memory, plugin::register(data, size, kind)?) };
        Ok(())
    })
}

/// Version 6's form.
unsafe extern "C" fn register_int(
    comm: *mut c_void,
    data: *mut c_void,
    size: c_int,
    kind: c_int,
    memory: *mut *mut c_void,
) -> ncclResult_t {
    match usize::try_from(size) {
        // SAFETY: guaranteed by NCCL.
        Ok(size) => unsafe { register(comm, data, size, kind, memory) },
        Err(_) => call(|| Err(negative(size))),
    }
}

unsafe extern "C" fn deregister(_comm: *mut c_void, memory: *mut c_void) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes a registration, and does not use it afterwards.
        unsafe { plugin::deregister(memory) };
        Ok(())
    })
}

/// Version 9's form.
unsafe extern "C" fn send(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    memory: *mut c_void,
    request: *mut *mut c_void,
) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes an open comm and a registration, and room for the request.
        unsafe { write_pointer(request, plugin::send(comm, data, size, tag, memory)?) };
        Ok(())
    })
}

/// Version 6's form.
unsafe extern "C" fn send_int(
    comm: *mut c_void,
    data: *mut c_void,
    size: c_int,
    tag: c_int,
    memory: *mut c_void,
    request: *mut *mut c_void,
) -> ncclResult_t {
    match usize::try_from(size) {
        // SAFETY: guaranteed by NCCL.
        Ok(size) => unsafe { send(comm, data, size, tag, memory, request) },
        Err(_) => call(|| Err(negative(size))),
    }
}

/// Version 10's form.
unsafe extern "C" fn send_profiled(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    memory: *mut c_void,
    _profile: *mut c_void,
    request: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { send(comm, data, size, tag, memory, request) }
}

/// The arrays of a receive, in which NCCL passes one element to a plugin whose `maxRecvs` is 1.
struct Group {
    count: c_int,
    data: *mut *mut c_void,
    tags: *mut c_int,
    memory: *mut *mut c_void,
}

/// Posts a receive of `size` bytes.
///
/// # Safety
/// The arrays of `group` have `count` elements, the comm is open, and `request` has room for a pointer.
unsafe fn receive_one(
    comm: *mut c_void,
    group: &Group,
    size: usize,
    watched: bool,
    request: *mut *mut c_void,
) -> ncclResult_t {
    call(|| {
        if group.count != 1 {
            return Err(Failure::argument(format!(
                "a receive of {} messages: this plugin has maxRecvs 1",
                group.count
            )));
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (data, tag, memory) = (*group.data, *group.tags, *group.memory);
            write_pointer(request, plugin::receive(comm, data, size, tag, memory, watched)?);
        }
        Ok(())
    })
}

/// Version 9's form. NCCL marks receives of the protocols LL and LL128 in the request's place.
unsafe extern "C" fn receive(
    comm: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    memory: *mut *mut c_void,
    request: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: NCCL passes the request's place, and arrays of `count` elements.
    unsafe {
        let watched = (*request).addr() == weft_nccl_abi::NCCL_NET_OPTIONAL_RECV_COMPLETION;
        receive_one(comm, &Group { count, data, tags, memory }, *sizes, watched, request)
    }
}

/// Version 6's form.
unsafe extern "C" fn receive_int(
    comm: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    tags: *mut c_int,
    memory: *mut *mut c_void,
    request: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: NCCL passes arrays of `count` elements.
    let size = unsafe { *sizes };
    match usize::try_from(size) {
        // SAFETY: guaranteed by NCCL.
        Ok(size) => unsafe {
            receive_one(
                comm,
                &Group { count, data, tags, memory },
                size,
                size <= MAX_WATCHED,
                request,
            )
        },
        Err(_) => call(|| Err(negative(size))),
    }
}

/// Version 10's form.
unsafe extern "C" fn receive_profiled(
    comm: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    memory: *mut *mut c_void,
    _profile: *mut *mut c_void,
    request: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { receive(comm, count, data, sizes, tags, memory, request) }
}

fn negative(size: c_int) -> Failure {
    Failure::argument(format!("a size of {size} bytes"))
}

/// Version 6's form.
unsafe extern "C" fn init(log: ncclDebugLogger_t) -> ncclResult_t {
    log::set_logger(log);
    call(plugin::init)
}

/// Memory of the host needs no flush: the request stays null.
unsafe extern "C" fn flush(
    _comm: *mut c_void,
    _count: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _memory: *mut *mut c_void,
    request: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: NCCL passes room for the request.
    unsafe { write_pointer(request, None) };
    result::SUCCESS
}

unsafe extern "C" fn test(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes a request in progress, and room for the results; the sizes may be null.
        unsafe {
            write(done, 0);
            if let Some(size) = plugin::test(request)? {
                write(sizes, c_int::try_from(size).unwrap_or(c_int::MAX));
                write(done, 1);
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn close(comm: *mut c_void) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes an open comm, and does not use it afterwards.
        unsafe { plugin::close(comm) };
        Ok(())
    })
}

unsafe extern "C" fn close_listener(listener: *mut c_void) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes an open listener, and does not use it afterwards.
        unsafe { plugin::close_listener(listener) };
        Ok(())
    })
}
