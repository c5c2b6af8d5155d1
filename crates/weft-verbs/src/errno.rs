//! Conversion of errors to the results that C programs get.

use core::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_rnic::VerbsError;
use weft_udp::sockets::SocketError;

/// A number of `errno(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// The result of a verb: a value, or an error number.
pub(crate) type Outcome<T> = Result<T, Errno>;

pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);
pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
pub(crate) const EBUSY: Errno = Errno(libc::EBUSY);

impl Errno {
    pub(crate) fn from_io(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or_else(|| match error.kind() {
            io::ErrorKind::WouldBlock => libc::EAGAIN,
            io::ErrorKind::Interrupted => libc::EINTR,
            _ => libc::EIO,
        }))
    }

    #[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it by value")]
    pub(crate) fn from_socket(error: SocketError) -> Self {
        match &error {
            SocketError::Bind { cause, .. } | SocketError::Refused { cause, .. } => {
                Self::from_io(cause)
            }
            SocketError::Capture { cause, .. } => {
                // The user of the program requested it in a setting, and an error number does not name the cause.
                eprintln!("weft: {error}");
                Self::from_io(cause)
            }
            SocketError::PortsExhausted { .. } => EINVAL,
        }
    }
}

impl From<VerbsError> for Errno {
    fn from(error: VerbsError) -> Self {
        Self(match error {
            VerbsError::TooMany { .. } | VerbsError::QueueFull { .. } => libc::ENOMEM,
            VerbsError::Busy { .. } => libc::EBUSY,
            _ => libc::EINVAL,
        })
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

/// Sets `errno`, the error of functions that return pointers.
pub(crate) fn set_errno(Errno(number): Errno) {
    // SAFETY: every thread has one.
    unsafe { *libc::__errno_location() = number };
}

/// Runs a call of the program. A panic becomes an error, because C has no frames to unwind.
fn contained<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Err(Errno(libc::EIO)))
}

/// Runs a verb that returns zero or an error number.
pub(crate) fn number(act: impl FnOnce() -> Outcome<()>) -> c_int {
    match contained(act) {
        Ok(()) => 0,
        Err(Errno(number)) => {
            set_errno(Errno(number));
            number
        }
    }
}

/// Runs a verb that returns a pointer, or null with `errno`.
pub(crate) fn pointer<T>(act: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    contained(act).unwrap_or_else(|errno| {
        set_errno(errno);
        core::ptr::null_mut()
    })
}

/// Runs a verb that returns zero or more, or -1 with `errno`.
pub(crate) fn count(act: impl FnOnce() -> Outcome<c_int>) -> c_int {
    contained(act).unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_panics_become_numbers() {
        assert_eq!(number(|| Ok(())), 0);
        assert_eq!(number(|| Err(Errno::from(VerbsError::Busy { users: 1 }))), libc::EBUSY);
        let full = VerbsError::QueueFull { limit: 1 };
        assert_eq!(count(|| Err(full.into())), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        assert!(pointer::<u8>(|| Err(EINVAL)).is_null());
        assert_eq!(number(|| panic!("contained")), libc::EIO);
    }
}
