//! The calls of the interface, in the terms of version 12.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use weft_nccl_abi::{
    MAX_NET_SIZE, NCCL_NET_HANDLE_MAXSIZE, NCCL_NET_ID_UNDEF, ncclNetProperties_v12_t,
    ncclNetVDeviceProps_v12_t, pointer,
};

use crate::comm::{Buffer, Comm};
use crate::device::{Device, Port};
use crate::failure::Failure;
use crate::handle::Handle;
use crate::log;
use crate::meet::{Attempt, Listener};
use crate::verbs::Region;

/// Maximum number of comms: the device's queue pairs.
const MAX_COMMS: c_int = 4_096;

/// The attempts to connect, by the number in their handle's memory.
#[derive(Debug, Default)]
struct Attempts {
    last: u64,
    open: BTreeMap<u64, Attempt>,
}

fn attempts() -> Result<MutexGuard<'static, Attempts>, Failure> {
    static ATTEMPTS: Mutex<Attempts> = Mutex::new(Attempts { last: 0, open: BTreeMap::new() });
    ATTEMPTS.lock().map_err(|_| Failure::internal("an earlier call of connect has panicked"))
}

/// Opens the device, if no earlier call has.
pub(crate) fn init() -> Result<(), Failure> {
    let device = Device::current()?;
    let names: Vec<String> = device.interfaces.iter().map(describe).collect();
    log::info(&format!("version {}, using {}", env!("CARGO_PKG_VERSION"), names.join(", ")));
    Ok(())
}

fn describe(interface: &crate::device::Interface) -> String {
    format!(
        "{} ({}, {} Mbit/s)",
        interface.name.to_string_lossy(),
        interface.port.address,
        interface.speed
    )
}

/// Returns the number of devices.
pub(crate) fn devices() -> Result<c_int, Failure> {
    let count = Device::current()?.interfaces.len();
    c_int::try_from(count).map_err(|_| Failure::internal("too many interfaces"))
}

/// Returns the properties of a device. Its strings live until the process ends.
pub(crate) fn properties(number: c_int) -> Result<ncclNetProperties_v12_t, Failure> {
    let interface = Device::current()?.interface(number)?;
    let mut devs = [0; 8];
    devs[0] = number;
    Ok(ncclNetProperties_v12_t {
        name: interface.name.as_ptr().cast_mut(),
        pciPath: interface
            .pci_path
            .as_ref()
            .map_or(core::ptr::null_mut(), |path| path.as_ptr().cast_mut()),
        guid: interface.guid,
        ptrSupport: pointer::HOST,
        regIsGlobal: 1,
        forceFlush: 0,
        speed: interface.speed,
        port: 1,
        latency: 0.0,
        maxComms: MAX_COMMS,
        maxRecvs: 1,
        netDeviceType: 0,
        netDeviceVersion: 0,
        vProps: ncclNetVDeviceProps_v12_t { ndevs: 1, devs },
        maxP2pBytes: MAX_NET_SIZE,
        maxCollBytes: MAX_NET_SIZE,
        maxMultiRequestSize: 1,
        railId: NCCL_NET_ID_UNDEF,
        planeId: NCCL_NET_ID_UNDEF,
    })
}

fn port(number: c_int) -> Result<(&'static Device, Port), Failure> {
    let device = Device::current()?;
    Ok((device, device.interface(number)?.port))
}

/// Listens on a device and returns NCCL's pointer to the listener, with its handle.
pub(crate) fn listen(
    number: c_int,
) -> Result<(*mut c_void, [u8; NCCL_NET_HANDLE_MAXSIZE]), Failure> {
    let (listener, handle) = Listener::open(port(number)?.1)?;
    let listener = Box::into_raw(Box::new(Mutex::new(listener)));
    Ok((listener.cast(), handle.to_bytes()))
}

/// Moves a connection to a listener on, and returns the sending comm once it is open. The attempt's number is kept in `bytes`.
pub(crate) fn connect(
    number: c_int,
    bytes: &mut [u8; NCCL_NET_HANDLE_MAXSIZE],
) -> Result<Option<*mut c_void>, Failure> {
    let (device, port) = port(number)?;
    let mut handle = Handle::from_bytes(bytes)?;
    let mut attempt = match attempts()?.open.remove(&handle.attempt) {
        Some(attempt) => attempt,
        None => Attempt::new(handle, port),
    };
    if let Some(link) = attempt.advance(&device.domain)? {
        return Comm::sending(link).map(Some);
    }
    let mut attempts = attempts()?;
    if handle.attempt == 0 {
        attempts.last += 1;
        handle.attempt = attempts.last;
        *bytes = handle.to_bytes();
    }
    attempts.open.insert(handle.attempt, attempt);
    Ok(None)
}

/// Returns the receiving comm of a listener's next connection, if one is open.
///
/// # Safety
/// [`listen`] returned the pointer, and it is not closed.
pub(crate) unsafe fn accept(listener: *mut c_void) -> Result<Option<*mut c_void>, Failure> {
    // SAFETY: guaranteed by the caller.
    let listener = unsafe { listener.cast::<Mutex<Listener>>().as_ref() };
    let Some(listener) = listener else { return Err(Failure::argument("the listener is null")) };
    let mut listener =
        listener.lock().map_err(|_| Failure::internal("an earlier call of accept has panicked"))?;
    let link = listener.accept(&Device::current()?.domain)?;
    link.map(Comm::receiving).transpose()
}

/// Closes a listener.
///
/// # Safety
/// As [`accept`], and it is not used afterwards.
pub(crate) unsafe fn close_listener(listener: *mut c_void) {
    if !listener.is_null() {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(listener.cast::<Mutex<Listener>>()) });
    }
}

/// Registers memory and returns NCCL's pointer to the registration.
///
/// # Safety
/// The memory exists until [`deregister`].
pub(crate) unsafe fn register(
    data: *mut c_void,
    size: usize,
    kind: c_int,
) -> Result<*mut c_void, Failure> {
    if kind != pointer::HOST {
        return Err(Failure::argument(format!(
            "memory of kind {kind}: this plugin registers memory of the host alone (kind 1)"
        )));
    }
    let domain: &Arc<_> = &Device::current()?.domain;
    // SAFETY: guaranteed by the caller.
    let region = unsafe { Region::register(domain, data, size) };
    let region =
        region.map_err(|error| Failure::system(&format!("registering {size} bytes"), &error))?;
    Ok(Box::into_raw(Box::new(region)).cast())
}

/// Ends a registration.
///
/// # Safety
/// [`register`] returned the pointer, and it is not used afterwards.
pub(crate) unsafe fn deregister(memory: *mut c_void) {
    if !memory.is_null() {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(memory.cast::<Region>()) });
    }
}

/// Sends a message and returns NCCL's pointer to the request; `None` if it must call again.
///
/// # Safety
/// The comm is open and the registration exists; the memory is lent until the request is complete.
pub(crate) unsafe fn send(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    memory: *mut c_void,
) -> Result<Option<*mut c_void>, Failure> {
    // SAFETY: guaranteed by the caller.
    let (comm, region) = unsafe { (Comm::of(comm)?, memory.cast::<Region>().as_ref()) };
    let index = comm.send()?.post(data, size, tag, region)?;
    Ok(index.map(|index| comm.request(index)))
}

/// Posts a receive and returns NCCL's pointer to the request; `None` if it must call again. `watched`: a GPU may read the buffer
/// before the receive is complete.
///
/// # Safety
/// As [`send`].
pub(crate) unsafe fn receive(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    memory: *mut c_void,
    watched: bool,
) -> Result<Option<*mut c_void>, Failure> {
    // SAFETY: guaranteed by the caller.
    let (comm, region) = unsafe { (Comm::of(comm)?, memory.cast::<Region>().as_ref()) };
    let index = comm.receive()?.post(&Buffer { data, size, region, watched }, tag)?;
    Ok(index.map(|index| comm.request(index)))
}

/// Returns the size of a message, bytes, if its request is complete.
///
/// # Safety
/// [`send`] or [`receive`] returned the pointer, and its comm is open.
pub(crate) unsafe fn test(request: *mut c_void) -> Result<Option<usize>, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { Comm::test(request) }
}

/// Closes a comm.
///
/// # Safety
/// [`connect`] or [`accept`] returned the pointer, and it is not used afterwards.
pub(crate) unsafe fn close(comm: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    unsafe { Comm::close(comm) };
}
