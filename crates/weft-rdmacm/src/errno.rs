//! Conversion of errors to the results that C programs get: -1 or a null pointer, and `errno`.

use core::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A number of `errno(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// The result of a call: a value, or an error number.
pub(crate) type Outcome<T> = Result<T, Errno>;

pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);
pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
pub(crate) const EADDRINUSE: Errno = Errno(libc::EADDRINUSE);

impl Errno {
    /// Returns the `errno` of the last C function.
    pub(crate) fn last() -> Self {
        io::Error::last_os_error().into()
    }

    /// Returns the negated number, which events carry.
    pub(crate) fn negative(self) -> c_int {
        -self.0
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or_else(|| match error.kind() {
            io::ErrorKind::WouldBlock => libc::EAGAIN,
            io::ErrorKind::Interrupted => libc::EINTR,
            _ => libc::EIO,
        }))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

fn set_errno(Errno(number): Errno) {
    // SAFETY: every thread has an `errno`.
    unsafe { *libc::__errno_location() = number };
}

/// Runs a call of the program. A panic becomes an error, because C has no frames to unwind.
fn contained<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Err(Errno(libc::EIO)))
}

/// Runs a function that returns zero, or -1 with `errno`.
pub(crate) fn status(act: impl FnOnce() -> Outcome<()>) -> c_int {
    match contained(act) {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// Runs a function that returns a pointer, or null with `errno`.
pub(crate) fn pointer<T>(act: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    contained(act).unwrap_or_else(|errno| {
        set_errno(errno);
        core::ptr::null_mut()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_panics_become_numbers() {
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(status(|| Err(EADDRINUSE)), -1);
        assert_eq!(Errno::last(), EADDRINUSE);
        assert!(pointer::<u8>(|| panic!("contained")).is_null());
        assert_eq!(Errno::last(), Errno(libc::EIO));
    }
}
