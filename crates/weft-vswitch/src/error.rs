//! The errors of a daemon.

use std::io;

use weft_ports::PortError;
use weft_udp::sockets::SocketError;
use weft_vpc::{LimitError, PoliciesError};

use crate::config::ConfigError;

/// The reason that a daemon cannot start, or a port cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A value is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A UDP socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Policies that contradict themselves.
    #[error(transparent)]
    Policies(#[from] PoliciesError),
    /// A limit is refused.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A port cannot be opened.
    #[error("port {name}: {cause}")]
    Port {
        /// The port's name.
        name: String,
        /// The reason.
        cause: PortError,
    },
    /// A port's descriptor cannot be polled.
    #[error("cannot watch port {port}: {cause}; does the system allow more descriptors?")]
    Watch {
        /// The port's name.
        port: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The control socket cannot be opened.
    #[error("cannot listen on {socket}: {cause}; is another daemon running there?")]
    Control {
        /// The socket's path.
        socket: String,
        /// The system's error.
        cause: io::Error,
    },
    /// A capture cannot be written.
    #[error("cannot capture port {port} to {file}: {cause}")]
    Capture {
        /// The port's name.
        port: String,
        /// The capture's file.
        file: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system: {0}")]
    Entropy(#[from] getrandom::Error),
    /// The operating system gave no thread, or no way to wake one.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A thread stopped by itself; the daemon logs the reason and ends.
    #[error("thread {thread} has stopped; the log has the reason")]
    Stopped {
        /// The thread's index.
        thread: u8,
    },
    /// A named item is unknown, or exists already.
    #[error("{0}")]
    Unknown(String),
}
