//! The reasons that an interface's queues cannot be had.

use std::io;
use std::net::IpAddr;

/// The reason that datagrams of an address cannot take AF_XDP. The kernel's sockets carry them instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The address is that of all interfaces.
    #[error("it takes the address of one interface, not {0}")]
    Unspecified(IpAddr),
    /// No interface has the address.
    #[error("no interface has the address {0}")]
    NoInterface(IpAddr),
    /// The interface has no Ethernet header: loopback, or a tunnel.
    #[error("{interface} is no Ethernet interface: {reason}")]
    NotEthernet {
        /// The interface's name.
        interface: String,
        /// Its kind.
        reason: &'static str,
    },
    /// The process lacks a capability.
    #[error(
        "the kernel refused to {what}: {cause}; it takes root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
    )]
    NotPermitted {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// Another program is attached to the interface, or another socket to its queue.
    #[error(
        "{interface} is in use by another program of XDP (`ip link show {interface}`): {cause}"
    )]
    Busy {
        /// The interface's name.
        interface: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The process may not pin more memory.
    #[error(
        "the kernel refused to {what}: {cause}; raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK= of a unit)"
    )]
    MemoryLimit {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The kernel, or the interface's driver, refused another operation.
    #[error("the kernel refused to {what}: {cause}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl Refusal {
    /// Returns a function that converts the kernel's error of this operation.
    pub(crate) fn to(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| match (cause.kind(), cause.raw_os_error()) {
            (io::ErrorKind::PermissionDenied, _) => Self::NotPermitted { what, cause },
            (_, Some(libc::ENOBUFS)) => Self::MemoryLimit { what, cause },
            _ => Self::Refused { what, cause },
        }
    }

    /// As [`to`](Self::to), for an operation that another program of XDP may prevent.
    pub(crate) fn to_on(what: &'static str, interface: &str) -> impl FnOnce(io::Error) -> Self {
        move |cause| match cause.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {
                Self::Busy { interface: interface.to_owned(), cause }
            }
            _ => Self::to(what)(cause),
        }
    }

    /// Returns `true` if the interface has no queue of the number to which a socket was bound.
    pub(crate) fn is_missing_queue(&self) -> bool {
        matches!(self, Self::Refused { cause, .. } if cause.raw_os_error() == Some(libc::EINVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the refusal for which a queue got no socket.
    fn refusal(errno: i32) -> Refusal {
        Refusal::to_on("bind a socket of AF_XDP", "eth0")(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn only_a_queue_that_is_not_there_is_left_out_without_a_word() {
        assert!(refusal(libc::EINVAL).is_missing_queue());
        for errno in [libc::EBUSY, libc::ENOBUFS, libc::EPERM, libc::ENOMEM] {
            assert!(!refusal(errno).is_missing_queue(), "{}", refusal(errno));
        }
    }

    #[test]
    fn a_limit_of_locked_memory_is_named() {
        let text = refusal(libc::ENOBUFS).to_string();
        assert!(text.contains("LimitMEMLOCK="), "{text}");
    }
}
