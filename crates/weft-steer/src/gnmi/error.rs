//! The errors of a router's gNMI server, with the fix where it is known.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use tonic::{Code, Status};
use weft_guard::tls::TlsError;
use weft_units::Duration;

use super::tree::TreeFault;

/// The reason that a request to a gNMI server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GnmiError {
    /// The server cannot be reached.
    #[error("cannot connect: {0}; correct `address`, or start gNMI at the router")]
    Connect(io::Error),
    /// A certificate, a key or a handshake failed.
    #[error("{0} (in route.toml: `tls.ca`, `tls.certificate` and `tls.key` of the router)")]
    Tls(#[from] TlsError),
    /// The password's file cannot be read.
    #[error("cannot read the password in {}: {source}", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Other users may read the password.
    #[error("{} has mode {mode:04o}, so that other users may read the password: chmod 600 {}", path.display(), path.display())]
    OpenPassword {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The user's name or password cannot be sent.
    #[error("`user` or the password has characters that no HTTP header has")]
    Login,
    /// No answer in time.
    #[error("no answer within {0}; set a longer `timeout` if the router is slow")]
    TimedOut(Duration),
    /// The server refused the request.
    #[error("{what}: the server says {code:?}: {message}{}", fix(*code))]
    Refused {
        /// The operation, with its path.
        what: String,
        /// gRPC's status code.
        code: Code,
        /// The server's message.
        message: String,
    },
    /// The connection broke. A server that refuses a client's certificate breaks it after the handshake, and HTTP/2 hides the
    /// reason.
    #[error(
        "{what}: the connection broke: {cause}; a server that requires a client's certificate of its own authority breaks it: \
         check `tls.certificate` and `tls.key`"
    )]
    Broken {
        /// The operation, with its path.
        what: String,
        /// The innermost cause.
        cause: String,
    },
    /// The answer ended before the server had sent all values.
    #[error("{0}: the answer ended before its sync_response")]
    Unfinished(String),
    /// The answer is larger than the limit.
    #[error("{what}: the answer exceeds {max} bytes")]
    TooLarge {
        /// The operation, with its path.
        what: String,
        /// The maximum.
        max: usize,
    },
    /// The answer cannot be parsed.
    #[error("{what}: {fault}")]
    Malformed {
        /// The operation, with its path.
        what: String,
        /// The fault.
        fault: TreeFault,
    },
    /// The client's runtime cannot be started.
    #[error("cannot start the client: {0}")]
    Runtime(io::Error),
}

impl GnmiError {
    /// Returns the error of a request that a server refused.
    pub(super) fn refused(what: &str, status: &Status) -> Self {
        let (code, message) = (status.code(), status.message().to_owned());
        Self::Refused { what: what.to_owned(), code, message }
    }

    /// Returns the error of a request whose connection broke.
    pub(super) fn broken(what: &str, error: &(dyn Error + 'static)) -> Self {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Self::Broken { what: what.to_owned(), cause: innermost.to_string() }
    }

    /// Returns `true` if the server lacks the operation or the path: others may be tried instead.
    pub(super) const fn is_absence(&self) -> bool {
        let Self::Refused { code, .. } = self else { return false };
        matches!(code, Code::Unimplemented | Code::NotFound | Code::InvalidArgument)
    }

    /// Returns `true` if the server lacks the operation.
    pub(super) const fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Refused { code: Code::Unimplemented, .. })
    }
}

/// Returns the usual fix of a status, after a semicolon.
const fn fix(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "; set `user` and `password_file`, or a client's certificate",
        Code::PermissionDenied => {
            "; give the user the right to write, or let only one controller steer (`arbitration`)"
        }
        Code::NotFound => {
            "; correct `instance`, `protocol` or the port's name, or set `routes = \"static\"` if it has no AFT"
        }
        Code::Unimplemented => "; the server's software lacks it: see its Capabilities",
        Code::ResourceExhausted => "; the answer or the request exceeds a limit",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_words_with_the_path_and_the_fix() {
        let error =
            |code| GnmiError::refused("get /a/b[c=d]", &Status::new(code, "no")).to_string();
        assert_eq!(
            error(Code::Unauthenticated),
            "get /a/b[c=d]: the server says Unauthenticated: no; set `user` and `password_file`, or a client's certificate"
        );
        assert_eq!(error(Code::Internal), "get /a/b[c=d]: the server says Internal: no");
        assert!(error(Code::NotFound).contains("`routes = \"static\"`"));
    }

    #[test]
    fn only_a_lack_is_answered_by_another_request() {
        let refused = |code| GnmiError::refused("get /a", &Status::new(code, ""));
        assert!(
            refused(Code::NotFound).is_absence() && !refused(Code::NotFound).is_unimplemented()
        );
        assert!(refused(Code::Unimplemented).is_unimplemented());
        assert!(!refused(Code::Unavailable).is_absence());
        assert!(!GnmiError::TimedOut(Duration::from_secs(1)).is_absence());
    }
}
