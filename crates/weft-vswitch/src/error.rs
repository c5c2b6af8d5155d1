//! The errors of a daemon.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// The socket for flow logs cannot be opened.
    #[error(
        "cannot open a socket for the flow log to {collector}: {cause}; does the system allow more descriptors?"
    )]
    FlowLog {
        /// The collector.
        collector: SocketAddr,
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
    /// The file with the changes made by command cannot be read.
    #[error("cannot read the changes made by command in {}: {cause}; move the file away to start without them", file.display())]
    UnreadableState {
        /// The file.
        file: PathBuf,
        /// The system's error, or the mistake in the file.
        cause: io::Error,
    },
    /// A change cannot be written to the disk.
    #[error("cannot keep the change in {}: {cause}; `state` in [host] names another file", file.display())]
    NotKept {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A change is in force, but could not be kept.
    #[error(
        "the change is in force until the daemon ends, but is not kept: cannot replace {}: {cause}; the next command \
         tries again", file.display()
    )]
    InForceOnly {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The configuration contradicts changes made by command.
    #[error(
        "{cause}, with the changes made by command in {} (`weft vpc changes` lists them, `weft vpc reload \
         --discard-changes` drops them; a daemon starts without them once the file is moved away)", file.display()
    )]
    Changes {
        /// The contradiction.
        cause: Box<ConfigError>,
        /// The file of the changes.
        file: PathBuf,
    },
    /// A reload was refused, and a port that it had closed cannot be opened again.
    #[error("{error}; and the former configuration is in force but for this: {second}")]
    NotRestored {
        /// The reason of the refusal.
        error: String,
        /// The reason that the port is missing.
        second: String,
    },
    /// A named item is unknown, or exists already.
    #[error("{0}")]
    Unknown(String),
}
