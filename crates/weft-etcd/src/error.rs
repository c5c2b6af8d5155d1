//! The errors of a client, with the endpoint and the fix.

use std::error::Error;
use std::io;

use tonic::{Code, Status};
use weft_guard::tls::TlsError;
use weft_units::Duration;

/// The reason that a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// There is no endpoint.
    #[error("endpoints is empty: name etcd's members, such as [\"10.0.0.1:2379\"]")]
    NoEndpoint,
    /// An endpoint has no port, or characters that no address has.
    #[error("endpoint {0:?} is not HOST:PORT, such as 10.0.0.1:2379 or [fd00::1]:2379")]
    Endpoint(String),
    /// A client's certificate without its key, or the reverse.
    #[error("`tls.certificate` and `tls.key` need each other")]
    HalfIdentity,
    /// The timeout is too short or too long.
    #[error("timeout is {0}; it must be 100ms to 60s")]
    Timeout(Duration),
    /// A certificate or a key cannot be used.
    #[error("{0} (`tls.ca`, `tls.certificate` and `tls.key` of etcd)")]
    Tls(#[from] TlsError),
    /// No member can be reached.
    #[error("no etcd can be reached: {}; start it, or correct `endpoints`", .0.join("; "))]
    Unreachable(Vec<String>),
    /// No answer in time.
    #[error(
        "{what}: no answer from etcd within {timeout}; see whether a majority of its members runs"
    )]
    TimedOut {
        /// The operation, with its key.
        what: String,
        /// The maximum time.
        timeout: Duration,
    },
    /// etcd refused the request.
    #[error("{what}: etcd at {endpoint} says {code:?}: {message}{}", fix(*code, message))]
    Refused {
        /// The operation, with its key.
        what: String,
        /// The member.
        endpoint: String,
        /// gRPC's status code.
        code: Code,
        /// etcd's message.
        message: String,
    },
    /// The connection broke. A member that refuses a client's certificate breaks it after the handshake, and HTTP/2 hides the
    /// reason.
    #[error(
        "{what}: the connection to etcd at {endpoint} broke: {cause}; a member that wants another client's certificate breaks \
         it: check `tls.certificate` and `tls.key`"
    )]
    Broken {
        /// The operation, with its key.
        what: String,
        /// The member.
        endpoint: String,
        /// The innermost cause.
        cause: String,
        /// `true` if the request was certainly not sent.
        unsent: bool,
    },
    /// A transaction has more operations than etcd accepts.
    #[error("a transaction of {0} operations: etcd accepts {max}", max = crate::MAX_OPERATIONS)]
    TooManyOperations(usize),
    /// The client's thread cannot be started.
    #[error("cannot start the client of etcd: {0}")]
    Runtime(io::Error),
}

/// The error of a request on a connection that was found broken before the request was sent.
#[derive(Debug, thiserror::Error)]
#[error("it was closed before")]
pub(crate) struct Closed;

impl EtcdError {
    /// Returns `true` if a write may have been done: its answer was lost. Read before writing again.
    pub const fn may_have_been_done(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Broken { unsent: false, .. } => true,
            Self::Refused { code, .. } => is_uncertain(*code),
            _ => false,
        }
    }

    /// Returns `true` if a read may succeed at another member, or later.
    pub(crate) const fn is_transient(&self) -> bool {
        match self {
            Self::Broken { .. } => true,
            Self::Refused { code, .. } => is_uncertain(*code),
            _ => false,
        }
    }

    /// Returns `true` if the history before a revision is gone.
    pub(crate) fn is_compaction(&self) -> bool {
        matches!(self, Self::Refused { code: Code::OutOfRange, message, .. } if message.contains("compacted"))
    }

    /// Returns `true` if there is no such lease, or no such key.
    pub(crate) const fn is_absence(&self) -> bool {
        matches!(self, Self::Refused { code: Code::NotFound, .. })
    }

    /// Returns the error of a status: the server's own words, or those of a broken connection.
    pub(crate) fn of_status(what: &str, endpoint: &str, status: &Status) -> Self {
        let (what, endpoint) = (what.to_owned(), endpoint.to_owned());
        match status.source() {
            None => {
                let (code, message) = (status.code(), status.message().to_owned());
                Self::Refused { what, endpoint, code, message }
            }
            Some(cause) => Self::broken(what, endpoint, cause),
        }
    }

    pub(crate) fn broken(what: String, endpoint: String, cause: &(dyn Error + 'static)) -> Self {
        let mut innermost = cause;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let unsent = innermost.is::<Closed>();
        Self::Broken { what, endpoint, cause: innermost.to_string(), unsent }
    }
}

/// Returns `true` if a member with this answer may have done the request, or could not decide.
const fn is_uncertain(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Internal)
}

/// Returns the usual fix of a status, after a semicolon.
fn fix(code: Code, message: &str) -> &'static str {
    match code {
        Code::PermissionDenied | Code::Unauthenticated => {
            "; grant the user of the client's certificate, its common name, a role for these keys"
        }
        Code::ResourceExhausted if message.contains("space") => {
            "; compact and defragment etcd, then disarm its alarm"
        }
        Code::ResourceExhausted => "; the answer or the request exceeds a limit",
        Code::InvalidArgument if message.contains("user name is empty") => {
            "; give `tls.certificate` and `tls.key`: etcd takes the certificate's common name as the user"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code, message: &str) -> EtcdError {
        EtcdError::of_status("put /a", "e:2379", &Status::new(code, message))
    }

    #[test]
    fn a_status_becomes_words_with_the_endpoint_and_the_fix() {
        let error = refused(Code::PermissionDenied, "no").to_string();
        assert!(error.starts_with("put /a: etcd at e:2379 says PermissionDenied: no; "), "{error}");
        let error = refused(Code::ResourceExhausted, "mvcc: database space exceeded").to_string();
        assert!(error.ends_with("disarm its alarm"), "{error}");
    }

    #[test]
    fn only_a_lost_answer_is_uncertain() {
        assert!(refused(Code::Unavailable, "").may_have_been_done());
        assert!(!refused(Code::PermissionDenied, "").may_have_been_done());
        let broken = |unsent| EtcdError::Broken {
            what: String::new(),
            endpoint: String::new(),
            cause: String::new(),
            unsent,
        };
        assert!(broken(false).may_have_been_done() && !broken(true).may_have_been_done());
        assert!(refused(Code::OutOfRange, "required revision has been compacted").is_compaction());
    }
}
