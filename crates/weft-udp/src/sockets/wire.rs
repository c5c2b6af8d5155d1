//! The ways of datagrams between this process and its interface: through the kernel's network stack, or past it (AF_XDP).

use std::env;
use std::net::SocketAddr;
use std::str::FromStr;

use weft_units::{Duration, Instant, UnknownName};

use crate::Clock;

/// The ways of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Wire {
    /// The kernel's UDP sockets.
    #[default]
    Kernel,
    /// AF_XDP, for the datagrams of one address and port; the kernel's sockets where AF_XDP is refused
    /// (`docs/design/af-xdp.md`).
    AfXdp,
}

impl Wire {
    /// Every way.
    pub const ALL: &[Self] = &[Self::Kernel, Self::AfXdp];

    const NAMES: &[&str] = &[Self::Kernel.name(), Self::AfXdp.name()];

    /// The variable with the way of a process's datagrams, and of its children's.
    pub const VARIABLE: &str = "WEFT_WIRE";

    /// Returns the way set in the environment. Any other value than a name is reported, and is the kernel.
    pub fn from_environment() -> Self {
        let Some(value) = env::var_os(Self::VARIABLE).filter(|value| !value.is_empty()) else {
            return Self::default();
        };
        let value = value.to_string_lossy();
        value.trim().parse().unwrap_or_else(|error: UnknownName| {
            eprintln!("weft: {}={value}: {error}", Self::VARIABLE);
            Self::default()
        })
    }

    /// Returns its name in settings and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::AfXdp => "af-xdp",
        }
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Wire {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.iter().copied().find(|wire| wire.name() == name);
        found.ok_or_else(|| UnknownName::new("wire", name, Self::NAMES))
    }
}

/// The receiving side of AF_XDP beside a UDP socket, which receives what the program in the kernel passes on.
#[derive(Debug)]
pub(super) struct XdpInbox {
    pub(super) receiver: weft_xdp::Receiver,
    /// `true` if the last batch is of AF_XDP.
    pub(super) is_current: bool,
    /// Number of consecutive batches of AF_XDP.
    batches: u32,
}

/// Number of consecutive batches of AF_XDP after which the UDP socket is read, too.
const MAX_BATCHES: u32 = 16;

impl XdpInbox {
    pub(super) fn new(receiver: weft_xdp::Receiver) -> Self {
        Self { receiver, is_current: false, batches: 0 }
    }

    /// Returns the number of datagrams of the next batch; zero if it is the UDP socket's turn, which costs a system call.
    #[inline]
    pub(super) fn receive(&mut self) -> usize {
        let is_due = self.batches >= MAX_BATCHES;
        let messages = if is_due { 0 } else { self.receiver.receive() };
        self.is_current = messages > 0;
        self.batches = if self.is_current { self.batches + 1 } else { 0 };
        messages
    }
}

/// The time until frames are passed to a full queue of AF_XDP again: about 64 frames leave over a virtual interface.
const RETRY: Duration = Duration::from_micros(50);

/// The sending side of AF_XDP beside UDP sockets, which send what it leaves to the kernel.
#[derive(Debug)]
pub(super) struct XdpOutbox {
    pub(super) sender: weft_xdp::Sender,
    /// Source port of each socket.
    pub(super) ports: Vec<u16>,
    /// The time to pass frames that wait to the kernel again.
    pub(super) retry_at: Instant,
}

impl XdpOutbox {
    /// Returns room for a datagram, and the port of socket `socket`; `None` leaves the datagram to the socket.
    #[inline]
    pub(super) fn frame(
        &mut self,
        socket: usize,
        to: &SocketAddr,
        size: u16,
    ) -> Option<(weft_xdp::Frame<'_>, u16)> {
        if self.sender.waiting() == 0 {
            self.sender.handle_timeout(Clock.now());
        }
        Some((self.sender.frame(to, size.into())?, self.ports[socket]))
    }

    /// Passes all frames to the kernel.
    pub(super) fn flush(&mut self) {
        let now = Clock.now();
        self.sender.flush(now);
        self.retry_at = now + RETRY;
    }
}
