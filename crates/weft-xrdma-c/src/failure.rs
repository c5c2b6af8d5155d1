//! Converts errors to the results of C functions: a negative number of `errno(3)`, and a text that
//! the thread can read.

use core::ffi::{c_char, c_int};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_msg::{CloseReason, ConfigError, DeviceError, OfferError, SendError, SwitchError};
use weft_xrdma::{CallError, NodeError, VerbsLibraryError};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A number of `errno(3)`, positive.
    pub(crate) errno: c_int,
    pub(crate) text: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// Returns the failure of an invalid argument, EINVAL.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Converts text to a C string, which ends at the first NUL.
pub(crate) fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).expect("without NUL")
}

/// Returns the text of this thread's last failure.
pub(crate) fn last_text() -> *const c_char {
    // The pointer is valid until the next failure, as the header promises.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs a call of the program. On failure it stores the text, and `otherwise` converts the negative error number to
/// the call's value. It treats a panic in the same way and stops it here, because C has no frames to unwind.
pub(crate) fn contain<T>(
    act: impl FnOnce() -> Outcome<T>,
    otherwise: impl FnOnce(c_int) -> T,
) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(act));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(libc::ENOTRECOVERABLE, describe(panic.as_ref())),
    };
    // On a thread that is ending no call can read the text.
    let _ = LAST.try_with(|last| last.replace(c_text(&failure.text)));
    otherwise(-failure.errno)
}

fn describe(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a bug of libxrdma: {}", text.unwrap_or("it panicked"))
}

/// Runs a call that returns zero or more, or a negative error number.
pub(crate) fn status(act: impl FnOnce() -> Outcome<c_int>) -> c_int {
    contain(act, |negative| negative)
}

fn of_io(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or_else(|| of_kind(error.kind()))
}

const fn of_kind(kind: io::ErrorKind) -> c_int {
    match kind {
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        io::ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::InvalidData => libc::EPROTO,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    }
}

const fn of_refused(refused: &DeviceError) -> c_int {
    if refused.code > 0 { refused.code } else { libc::ENOMEM }
}

const fn of_offer(error: &OfferError) -> c_int {
    match error {
        OfferError::Device(refused) => of_refused(refused),
        _ => libc::EPROTO,
    }
}

const fn of_switch(error: &SwitchError) -> c_int {
    match error {
        SwitchError::NotOpen => libc::ENOTCONN,
        SwitchError::NoStream => libc::EOPNOTSUPP,
        SwitchError::RdmaLost => libc::ENETDOWN,
        _ => libc::EIO,
    }
}

const fn invalid(_: &ConfigError) -> c_int {
    libc::EINVAL
}

const fn of_send(error: &SendError) -> c_int {
    match error {
        SendError::Closed => libc::ENOTCONN,
        SendError::Full { .. } => libc::EAGAIN,
        SendError::TooLong { .. } => libc::EMSGSIZE,
        SendError::Memory(refused) => of_refused(refused),
        SendError::NoRequest { .. } => libc::ENOENT,
        _ => libc::EIO,
    }
}

/// Returns the error number of a close reason; zero for an orderly close.
pub(crate) const fn of_close(reason: &CloseReason) -> c_int {
    match reason {
        CloseReason::Finished => 0,
        CloseReason::ByPeer => libc::EPIPE,
        CloseReason::Aborted => libc::ECONNABORTED,
        CloseReason::CloseTimedOut => libc::ETIMEDOUT,
        CloseReason::PeerUnreachable(_) | CloseReason::StreamBroken => libc::ECONNRESET,
        CloseReason::Protocol(_) => libc::EPROTO,
        CloseReason::Device(refused) => of_refused(refused),
        _ => libc::EIO,
    }
}

fn of_verbs(error: &VerbsLibraryError) -> c_int {
    match error {
        VerbsLibraryError::NoAddress { .. } => libc::EADDRNOTAVAIL,
        VerbsLibraryError::Failed { error, .. } => of_io(error),
        VerbsLibraryError::Variable { .. } => libc::EINVAL,
        VerbsLibraryError::SourcePorts { .. } => libc::EOPNOTSUPP,
        _ => libc::ENODEV,
    }
}

fn of_node(error: &NodeError) -> c_int {
    match error {
        NodeError::Verbs(error) => of_verbs(error),
        NodeError::Config(_) => libc::EINVAL,
        NodeError::Offer(error) => of_offer(error),
        NodeError::Socket { error, .. } => of_io(error),
        NodeError::Peer { kind, .. } => of_kind(*kind),
        NodeError::ClearStream => libc::EACCES,
        _ => libc::EIO,
    }
}

fn of_call(error: &CallError) -> c_int {
    match error {
        CallError::Send(error) => of_send(error),
        // The caller waits for a response that cannot arrive, even after an orderly close.
        CallError::Closed(reason) => match of_close(reason) {
            0 => libc::ENOTCONN,
            errno => errno,
        },
        CallError::TimedOut => libc::ETIMEDOUT,
        _ => libc::EIO,
    }
}

macro_rules! failures {
    ($($error:ty => $errno:expr;)+) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let errno = $errno(&error);
                Self::new(errno, error.to_string())
            }
        }
    )+};
}

failures! {
    CallError => of_call;
    ConfigError => invalid;
    NodeError => of_node;
    DeviceError => of_refused;
    SendError => of_send;
    SwitchError => of_switch;
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    fn last_error() -> String {
        // SAFETY: it is text of this thread until the next failure.
        unsafe { CStr::from_ptr(last_text()) }.to_str().unwrap().into()
    }

    #[test]
    fn a_failure_is_a_negative_number_and_a_text() {
        assert_eq!(status(|| Ok(3)), 3);
        assert_eq!(status(|| Err(SendError::Full { waiting: 9 }.into())), -libc::EAGAIN);
        assert_eq!(last_error(), "9 messages wait for the channel's window already (backlog)");
        assert_eq!(status(|| Err(Failure::argument("name a\0b"))), -libc::EINVAL);
        assert_eq!(last_error(), "name a");
    }

    #[test]
    fn a_panic_goes_no_further() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let number = status(|| panic!("the invariant {}", 7));
        std::panic::set_hook(hook);
        assert_eq!(number, -libc::ENOTRECOVERABLE);
        assert_eq!(last_error(), "a bug of libxrdma: the invariant 7");
    }
}
