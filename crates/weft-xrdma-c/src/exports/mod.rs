//! The functions of the header: they convert pointers and numbers, and call [`crate::context`] for the rest.

use core::ffi::{CStr, c_char, c_int};
use std::net::{SocketAddr, ToSocketAddrs};

use weft_units::Duration;

use crate::failure::{Failure, Outcome};

mod channel;
mod context;
mod error;
mod event;
mod memory;
mod message;

pub use channel::*;
pub use context::*;
pub use error::*;
pub use event::*;
pub use memory::*;
pub use message::*;

/// Returns a text argument of the program.
///
/// # Safety
/// `text` is null or ends in NUL.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is null")));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// Returns the place for a result, from a pointer of the program.
///
/// # Safety
/// `place` is null or has room for a result, and nothing else uses it.
unsafe fn room<'a, T>(place: *mut T, what: &str) -> Outcome<&'a mut core::mem::MaybeUninit<T>> {
    // SAFETY: as the caller promises.
    let place = unsafe { place.cast::<core::mem::MaybeUninit<T>>().as_mut() };
    place.ok_or_else(|| Failure::argument(format!("{what} is null: there is nowhere to put it")))
}

/// Resolves HOST:PORT to a socket address.
fn resolve(address: &str) -> Outcome<SocketAddr> {
    let found = address.to_socket_addrs().map_err(|error| {
        let errno = match error.kind() {
            std::io::ErrorKind::InvalidInput => libc::EINVAL,
            _ => libc::EHOSTUNREACH,
        };
        Failure::new(errno, format!("{address:?}, expected HOST:PORT: {error}"))
    })?;
    let none = || Failure::new(libc::EHOSTUNREACH, format!("{address:?} has no address"));
    found.into_iter().next().ok_or_else(none)
}

/// Converts milliseconds of C to a duration; `None`, from a negative number, means for ever.
fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Copies the first `size` bytes of a structure: a program compiled with an older header has fewer fields.
///
/// # Safety
/// `place` is null or has room for `size` bytes.
unsafe fn copy_known<T: Copy>(value: &T, place: *mut T, size: usize) -> Outcome<()> {
    // SAFETY: as the caller promises.
    let _ = unsafe { room(place, "the state") }?;
    let size = size.min(size_of::<T>());
    // SAFETY: as the caller promises, and the value has at least as many.
    unsafe { core::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), place.cast(), size) };
    Ok(())
}
