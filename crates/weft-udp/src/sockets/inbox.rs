//! The receiving side: a batch of messages, each one datagram or several that the kernel coalesced
//! (GRO).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use weft_xdp::Refusal;

use super::wire::XdpInbox;
use super::{
    Granted, HOP_LIMIT, Received, SocketConfig, SocketError, Tap, Wire, address_of, open_bound,
    prepare_receiver, syscall,
};

/// Congestion experienced (RFC 3168, section 5).
const CE: u8 = 0b11;

/// The receiving socket and its buffers.
#[derive(Debug)]
pub struct Inbox {
    pub(super) socket: Socket,
    pub(super) receiver: syscall::Receiver,
    /// AF_XDP, if datagrams take it.
    pub(super) xdp: Option<XdpInbox>,
    /// The sending side of AF_XDP, until an outbox takes it.
    sender: Option<weft_xdp::Sender>,
    refusal: Option<Refusal>,
    /// The capture of arrivals, and the port of the socket.
    pub(super) tap: Option<(Tap, u16)>,
}

impl Inbox {
    /// Opens the socket; also returns the options that the kernel granted.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn open(config: &SocketConfig) -> Result<(Self, Granted), SocketError> {
        Self::on(open_bound(config.local)?, config)
    }

    /// Returns an inbox that receives on a bound socket, and the options that the kernel granted.
    pub(super) fn on(
        socket: Socket,
        config: &SocketConfig,
    ) -> Result<(Self, Granted), SocketError> {
        let granted = prepare_receiver(&socket, config)?;
        let receiver = syscall::Receiver::new(config.receive_batch);
        let local = address_of(&socket)?;
        let tap = config.capture.as_ref().map(|capture| Tap::new(capture, local.ip()));
        let tap = tap.transpose()?.map(|tap| (tap, local.port()));
        let (mut xdp, mut sender, mut refusal) = (None, None, None);
        if config.wire == Wire::AfXdp {
            match weft_xdp::open(local, HOP_LIMIT) {
                Ok((sending, receiving)) => {
                    (xdp, sender) = (Some(XdpInbox::new(receiving)), Some(sending));
                }
                Err(reason) => {
                    eprintln!("weft: the kernel's sockets carry UDP {local}, not AF_XDP: {reason}");
                    refusal = Some(reason);
                }
            }
        }
        Ok((Self { socket, receiver, xdp, sender, refusal, tap }, granted))
    }

    /// Returns the reason that datagrams take the kernel's sockets although AF_XDP was configured, if they do.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Returns the way of most datagrams.
    pub fn wire(&self) -> Wire {
        if self.xdp.is_some() { Wire::AfXdp } else { Wire::Kernel }
    }

    /// Returns the sending side of AF_XDP, once, for the outbox of the same address.
    pub fn take_xdp_sender(&mut self) -> Option<weft_xdp::Sender> {
        self.sender.take()
    }

    /// Returns the UDP socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the sockets to wait on for packets, that of most packets first.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let xdp = self.xdp.iter().flat_map(|xdp| xdp.receiver.sockets());
        xdp.chain(std::iter::once(self.socket.as_fd()))
    }

    /// Receives without blocking and returns the number of messages.
    ///
    /// # Errors
    /// The kernel's error. ICMP port-unreachable is not among them: these sockets are not
    /// connected, so ICMP errors of one peer do not reach the others.
    #[inline]
    pub fn receive(&mut self) -> io::Result<usize> {
        let messages = match self.xdp.as_mut().map_or(0, XdpInbox::receive) {
            0 => self.receiver.receive(self.socket.as_fd())?,
            messages => messages,
        };
        if self.tap.is_some() {
            self.capture(messages);
        }
        Ok(messages)
    }

    #[cold]
    fn capture(&mut self, messages: usize) {
        let Some((mut tap, port)) = self.tap.take() else { return };
        (0..messages).for_each(|index| tap.received(port, &self.message(index)));
        tap.flush();
        self.tap = Some((tap, port));
    }

    /// Returns `true` if the last [`receive`](Self::receive) filled its batch, so that more may be
    /// waiting.
    pub fn may_have_more(&self) -> bool {
        match self.current_xdp() {
            Some(xdp) => xdp.receiver.is_full(),
            None => self.receiver.is_full(),
        }
    }

    /// Returns AF_XDP if the last batch is its.
    #[inline]
    fn current_xdp(&self) -> Option<&XdpInbox> {
        self.xdp.as_ref().filter(|xdp| xdp.is_current)
    }

    /// Returns the bytes of message `index`, to be changed in place; each datagram has
    /// [`Received::segment`] bytes.
    ///
    /// # Panics
    /// If `index` is not below the number that the last [`receive`](Self::receive) returned.
    #[inline]
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        match self.xdp.as_mut().filter(|xdp| xdp.is_current) {
            Some(xdp) => xdp.receiver.bytes_mut(index),
            None => self.receiver.bytes_mut(index),
        }
    }

    /// Returns message `index` of the last [`receive`](Self::receive).
    ///
    /// # Panics
    /// If `index` is not below the number that it returned.
    #[inline]
    pub fn message(&self, index: usize) -> Received<'_> {
        if let Some(xdp) = self.current_xdp() {
            let (meta, bytes) = xdp.receiver.datagram(index);
            return Received {
                from: meta.from,
                bytes,
                segment: bytes.len(),
                congestion_experienced: meta.traffic_class & CE == CE,
                hops: hops(meta.hop_limit),
                wall_clock_nanos: 0,
            };
        }
        let (meta, bytes) = self.receiver.message(index);
        Received {
            from: meta.from,
            bytes,
            segment: meta.segment,
            congestion_experienced: meta.traffic_class & CE == CE,
            hops: hops(meta.hop_limit),
            wall_clock_nanos: meta.wall_clock_nanos,
        }
    }
}

/// Returns the number of routers that a packet passed, by what is left of its TTL.
#[inline]
fn hops(hop_limit: u8) -> u8 {
    HOP_LIMIT.checked_sub(hop_limit).filter(|_| hop_limit != 0).unwrap_or(0)
}
