//! UDP sockets: one per path to send from, so that a path is a source port, and one to receive on.
//! This module opens and configures them; [`Outbox`] batches sent datagrams, [`Inbox`] received ones.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use socket2::{Domain, Protocol, Socket, Type};

mod backlog;
mod capture;
mod group;
mod inbox;
mod outbox;
mod received;
mod steering;
mod strays;
#[expect(unsafe_code, reason = "sendmmsg and recvmmsg have no safe form")]
mod syscall;
mod trimmed;
mod wire;

pub use capture::CaptureConfig;
use capture::Tap;
pub use inbox::Inbox;
#[cfg(test)]
mod tests;

pub use outbox::{Outbox, PathCount, SendCounters};
pub use received::Received;
pub use steering::Instruction;
use strays::Strays;
pub use syscall::set_option;
pub use trimmed::TrimmedConfig;
pub(crate) use trimmed::{TrimmedPacket, TrimmedSocket};
pub use weft_xdp::Refusal;
pub use wire::Wire;

/// TTL of sent packets; receivers subtract the remaining TTL from it (BIFROST, appendix D).
pub(crate) const HOP_LIMIT: u8 = 64;

/// ECN-capable transport, codepoint ECT(0) (RFC 3168, section 5).
const ECT_0: u32 = 0b10;

/// Congestion experienced (RFC 3168, section 5).
const CE: u32 = 0b11;

/// The settings of sockets.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Address and port to receive on; port zero selects a free one. On a host with several addresses,
    /// set the one that peers use, since answers are sent from it.
    pub local: SocketAddr,
    /// Number of paths, at least one: each is a sending socket with its own source port.
    pub paths: u16,
    /// Source port of path 0; the ports of the other paths follow it. `None` selects free ports, which an unknown hash
    /// of a fabric spreads as well as any others.
    pub first_source_port: Option<u16>,
    /// Source ports of further sending sockets, after those of the paths: ports planned for a
    /// fabric whose hash is known. The owner assigns packets to them.
    pub further_source_ports: Vec<u16>,
    /// Requested receive buffer, bytes; the kernel may grant less.
    pub receive_buffer: usize,
    /// `true` if the kernel should segment (GSO) and coalesce (GRO) datagrams where it can.
    pub offload: bool,
    /// `true` if the kernel should stamp each packet at its arrival. Otherwise the time of a packet is the time at
    /// which it is read.
    pub kernel_timestamps: bool,
    /// Maximum messages of one receive call, 1 to 32; each needs a buffer of 64 KiB.
    pub receive_batch: usize,
    /// The way of datagrams to and from the interface. Arrivals by AF_XDP have no time of the kernel's.
    pub wire: Wire,
    /// The capture of sent and received datagrams, if any.
    pub capture: Option<CaptureConfig>,
}

impl SocketConfig {
    /// Returns the settings of sockets on `local` with `paths` paths, and values that suit most
    /// machines. The environment may request a capture ([`CaptureConfig::from_environment`]) and another way of the
    /// datagrams ([`Wire::from_environment`]).
    pub fn new(local: SocketAddr, paths: u16) -> Self {
        Self {
            local,
            paths,
            first_source_port: None,
            further_source_ports: Vec::new(),
            receive_buffer: 16 << 20,
            offload: true,
            kernel_timestamps: false,
            receive_batch: 8,
            wire: Wire::from_environment(),
            capture: CaptureConfig::from_environment(),
        }
    }

    /// Has datagrams take the kernel's sockets, and reports it if they were not to: what the owner does with them needs
    /// those.
    pub(crate) fn keep_kernel(&mut self, reason: &str) {
        if std::mem::take(&mut self.wire) == Wire::AfXdp {
            let local = self.local;
            eprintln!("weft: the kernel's sockets carry UDP {local}, not AF_XDP: {reason}");
        }
    }
}

/// The errors of opening sockets.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A port is taken, or the address is not this machine's.
    #[error(
        "cannot bind UDP {address}: {cause}; is the address this machine's and the port free \
         (`ss -ulpn`)?"
    )]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The kernel's error.
        cause: io::Error,
    },
    /// Source ports would pass 65535.
    #[error("{paths} source ports from {first} on pass port 65535")]
    PortsExhausted {
        /// The first port.
        first: u16,
        /// Number of ports.
        paths: u16,
    },
    /// The capture cannot be written.
    #[error("cannot capture to {}: {cause}", file.display())]
    Capture {
        /// The file.
        file: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The kernel refused another operation.
    #[error("cannot {what}: {cause}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// The options that the kernel granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Granted {
    /// Receive buffer, bytes.
    pub receive_buffer: usize,
    /// `true` if it is smaller than requested (`net.core.rmem_max` limits it).
    pub receive_buffer_capped: bool,
    /// `true` if the kernel coalesces received datagrams.
    pub gro: bool,
}

/// One host's sockets.
#[derive(Debug)]
pub struct Sockets {
    /// The receiving side.
    pub inbox: Inbox,
    /// The sending side.
    pub outbox: Outbox,
    strays: Strays,
    local: SocketAddr,
    granted: Granted,
}

/// Sending sockets, for an owner that opens them on first use.
#[derive(Debug)]
pub struct Senders {
    /// The sending side.
    pub outbox: Outbox,
    strays: Strays,
}

impl Senders {
    /// Opens one socket for each path and each further source port.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn open(config: &SocketConfig) -> Result<Self, SocketError> {
        // Named ports come first: the kernel could select one of them as the free port of a path.
        let further = config.further_source_ports.iter().map(|&port| open_from(config, port));
        let further = further.collect::<Result<Vec<_>, _>>()?;
        let paths = (0..config.paths.max(1)).map(|path| open_sender(config, path));
        let mut sockets = paths.collect::<Result<Vec<_>, _>>()?;
        sockets.extend(further);
        Self::with(config, sockets)
    }

    /// Makes sockets send from other ports while packets are sent. Each of `changes` is the index of a socket and its
    /// new port; the index after the last one adds a socket. Datagrams that wait for a replaced socket leave from the new
    /// one.
    ///
    /// # Errors
    /// A port is taken, or the kernel has no more sockets. Then nothing has changed.
    pub fn replace(
        &mut self,
        config: &SocketConfig,
        changes: &[(u16, u16)],
    ) -> Result<(), SocketError> {
        let open = |&(index, port): &(u16, u16)| {
            let socket = open_from(config, port)?;
            self.watch(&socket, index)?;
            Ok((index, port, socket))
        };
        let opened = changes.iter().map(open).collect::<Result<Vec<_>, SocketError>>()?;
        opened.into_iter().for_each(|(index, port, socket)| self.outbox.place(socket, index, port));
        Ok(())
    }

    fn with(config: &SocketConfig, sockets: Vec<Socket>) -> Result<Self, SocketError> {
        let strays = Strays::watch(&sockets)
            .map_err(io::Error::from)
            .map_err(refused("watch the sockets to send from"))?;
        let mut outbox = Outbox::new(sockets, config.offload);
        if let Some(capture) = &config.capture {
            let ports = outbox.source_ports().map_err(refused("ask for a socket's port"))?;
            outbox.tap = Some((Tap::new(capture, config.local.ip())?, ports));
        }
        Ok(Self { outbox, strays })
    }

    /// Returns the index of a socket that sends from this port, which is the path of its datagrams. If there is none, it
    /// opens one in the place of socket `replaces`, which it closes, or else after all others. That one shares the port
    /// with such sockets of the user's other processes.
    ///
    /// # Errors
    /// See [`SocketError`].
    ///
    /// # Panics
    /// If there is no socket `replaces`.
    pub fn open_source(
        &mut self,
        config: &SocketConfig,
        port: u16,
        replaces: Option<u16>,
    ) -> Result<u16, SocketError> {
        let ports = self.outbox.source_ports().map_err(refused("ask for a socket's port"))?;
        if let Some((index, _)) = (0..).zip(ports).find(|&(_, own)| own == port) {
            return Ok(index);
        }
        let address = SocketAddr::new(config.local.ip(), port);
        let socket = open_unbound(address)?;
        socket.set_reuse_port(true).map_err(refused("share a port between processes"))?;
        bind(&socket, address)?;
        prepare_sender(&socket, config)?;
        let index = replaces.unwrap_or_else(|| self.outbox.next_index());
        self.watch(&socket, index)?;
        self.outbox.place(socket, index, port);
        Ok(index)
    }

    /// Sends by AF_XDP from now on, from the ports of these sockets.
    ///
    /// # Errors
    /// The kernel does not tell the sockets' ports.
    pub fn send_by(&mut self, sender: weft_xdp::Sender) -> Result<(), SocketError> {
        self.outbox.send_by(sender).map_err(refused("ask for a socket's port"))
    }

    fn watch(&self, socket: &Socket, index: u16) -> Result<(), SocketError> {
        let watched = self.strays.watch_one(socket, index);
        watched.map_err(io::Error::from).map_err(refused("watch a socket to send from"))
    }

    /// Returns a datagram that arrived on a sending socket, if any, with its source.
    pub fn stray(&mut self) -> Option<(SocketAddr, &mut [u8])> {
        self.strays.next(&self.outbox.sockets)
    }
}

impl Sockets {
    /// Opens every socket.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn open(config: &SocketConfig) -> Result<Self, SocketError> {
        Self::with_senders(config, Senders::open(config)?)
    }

    /// Opens two sending sockets: path 0 as usual, path 1 marks every packet as having experienced
    /// congestion, as a switch would. For IPv4 only; the configured number of paths and further ports are ignored.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn open_marking(config: &SocketConfig) -> Result<Self, SocketError> {
        let (plain, marking) = (open_sender(config, 0)?, open_sender(config, 1)?);
        marking.set_tos_v4(CE).map_err(refused("mark packets"))?;
        Self::with_senders(config, Senders::with(config, vec![plain, marking])?)
    }

    fn with_senders(config: &SocketConfig, senders: Senders) -> Result<Self, SocketError> {
        Self::joining(senders, Inbox::open(config)?)
    }

    fn joining(
        mut senders: Senders,
        (mut inbox, granted): (Inbox, Granted),
    ) -> Result<Self, SocketError> {
        inbox.take_xdp_sender().map_or(Ok(()), |sender| senders.send_by(sender))?;
        let Senders { outbox, strays } = senders;
        let sockets = Self { strays, local: address_of(&inbox.socket)?, inbox, outbox, granted };
        // A wait watches one socket; what arrives at the others ends it, too.
        sockets.inbox.readable().skip(1).try_for_each(|other| sockets.wake_for(other))?;
        Ok(sockets)
    }

    /// Returns a datagram that arrived on a sending socket, if any, with its source.
    pub fn stray(&mut self) -> Option<(SocketAddr, &mut [u8])> {
        self.strays.next(&self.outbox.sockets)
    }

    /// Returns the address and port on which packets arrive.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the options that the kernel granted.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// Returns the socket to wait on for packets.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.inbox.readable().next().expect("an inbox has a socket")
    }

    /// Returns the way of most datagrams; with the reason, if AF_XDP was configured and refused.
    pub fn wire(&self) -> (Wire, Option<&Refusal>) {
        (self.inbox.wire(), self.inbox.refusal())
    }

    /// Ends waits for datagrams at sockets that only send when `other` is readable, too.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn wake_for(&self, other: BorrowedFd<'_>) -> Result<(), SocketError> {
        self.strays.wake_for(other).map_err(io::Error::from).map_err(refused("watch a socket"))
    }

    /// Returns the descriptor to wait on for datagrams at sockets that only send.
    pub(crate) fn strays_readable(&self) -> BorrowedFd<'_> {
        self.strays.readable()
    }
}

/// Returns a function that converts the kernel's error of this operation.
fn refused(what: &'static str) -> impl FnOnce(io::Error) -> SocketError {
    move |cause| SocketError::Refused { what, cause }
}

fn open_bound(address: SocketAddr) -> Result<Socket, SocketError> {
    let socket = open_unbound(address)?;
    bind(&socket, address)?;
    Ok(socket)
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<(), SocketError> {
    socket.bind(&address.into()).map_err(|cause| SocketError::Bind { address, cause })
}

fn open_unbound(address: SocketAddr) -> Result<Socket, SocketError> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(refused("open a UDP socket"))?;
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(refused("keep an IPv6 socket to IPv6"))?;
    }
    Ok(socket)
}

fn address_of(socket: &Socket) -> Result<SocketAddr, SocketError> {
    let address = socket.local_addr().map_err(refused("ask for a socket's address"))?;
    Ok(address.as_socket().expect("a UDP socket has an IP address"))
}

fn prepare_receiver(socket: &Socket, config: &SocketConfig) -> Result<Granted, SocketError> {
    let fd = socket.as_fd();
    if config.local.is_ipv6() {
        socket.set_recv_tclass_v6(true).map_err(refused("ask for traffic classes"))?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)
            .map_err(refused("ask for hop limits"))?;
    } else {
        socket.set_recv_tos_v4(true).map_err(refused("ask for traffic classes"))?;
        set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1).map_err(refused("ask for TTLs"))?;
    }
    if config.kernel_timestamps {
        set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
            .map_err(refused("ask for receive times"))?;
    }
    let gro = config.offload && set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    // With CAP_NET_ADMIN the cap of net.core.rmem_max does not apply.
    let wanted = i32::try_from(config.receive_buffer).unwrap_or(i32::MAX);
    if set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err() {
        socket
            .set_recv_buffer_size(config.receive_buffer)
            .map_err(refused("set the receive buffer's size"))?;
    }
    // The kernel doubles the requested size, to cover its own bookkeeping (socket(7)).
    let receive_buffer =
        socket.recv_buffer_size().map_err(refused("ask for the receive buffer's size"))? / 2;
    let receive_buffer_capped = receive_buffer < config.receive_buffer;
    Ok(Granted { receive_buffer, receive_buffer_capped, gro })
}

fn open_sender(config: &SocketConfig, path: u16) -> Result<Socket, SocketError> {
    let port = match config.first_source_port {
        None => 0,
        Some(first) => first
            .checked_add(path)
            .ok_or(SocketError::PortsExhausted { first, paths: config.paths })?,
    };
    open_from(config, port)
}

/// Opens a socket that sends from this port, or from a free one if it is zero.
fn open_from(config: &SocketConfig, port: u16) -> Result<Socket, SocketError> {
    let socket = open_bound(SocketAddr::new(config.local.ip(), port))?;
    prepare_sender(&socket, config)?;
    Ok(socket)
}

fn prepare_sender(socket: &Socket, config: &SocketConfig) -> Result<(), SocketError> {
    let hops = u32::from(HOP_LIMIT);
    // A datagram that exceeds the MTU causes an error instead of being fragmented: switches hash
    // fragments without ports, so they would leave the path.
    let (level, discover, probe) = match config.local.ip() {
        IpAddr::V4(_) => {
            socket.set_tos_v4(ECT_0).map_err(refused("mark packets ECN-capable"))?;
            socket.set_ttl_v4(hops).map_err(refused("set the TTL"))?;
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
        }
        IpAddr::V6(_) => {
            socket.set_tclass_v6(ECT_0).map_err(refused("mark packets ECN-capable"))?;
            socket.set_unicast_hops_v6(hops).map_err(refused("set the hop limit"))?;
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
        }
    };
    set_option(socket.as_fd(), level, discover, probe).map_err(refused("forbid fragments"))?;
    // Only answers of peers without a connection arrive here (strays): room for one is enough.
    socket.set_recv_buffer_size(0).map_err(refused("shrink a sender's receive buffer"))?;
    socket.set_send_buffer_size(4 << 20).map_err(refused("set the send buffer's size"))
}
