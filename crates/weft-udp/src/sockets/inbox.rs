//! The receiving side: a batch of messages, each one datagram or several that the kernel coalesced
//! (GRO).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::{
    Granted, HOP_LIMIT, Received, SocketConfig, SocketError, Tap, address_of, open_bound,
    prepare_receiver, syscall,
};

/// Congestion experienced (RFC 3168, section 5).
const CE: u8 = 0b11;

/// The receiving socket and its buffers.
#[derive(Debug)]
pub struct Inbox {
    pub(super) socket: Socket,
    pub(super) receiver: syscall::Receiver,
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
        Ok((Self { socket, receiver, tap }, granted))
    }

    /// Returns the socket to wait on for packets.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Receives without blocking and returns the number of messages.
    ///
    /// # Errors
    /// The kernel's error. ICMP port-unreachable is not among them: these sockets are not
    /// connected, so ICMP errors of one peer do not reach the others.
    #[inline]
    pub fn receive(&mut self) -> io::Result<usize> {
        let messages = self.receiver.receive(self.socket.as_fd())?;
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
        self.receiver.is_full()
    }

    /// Returns the bytes of message `index`, to be changed in place; each datagram has
    /// [`Received::segment`] bytes.
    ///
    /// # Panics
    /// If `index` is not below the number that the last [`receive`](Self::receive) returned.
    #[inline]
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        self.receiver.bytes_mut(index)
    }

    /// Returns message `index` of the last [`receive`](Self::receive).
    ///
    /// # Panics
    /// If `index` is not below the number that it returned.
    #[inline]
    pub fn message(&self, index: usize) -> Received<'_> {
        let (meta, bytes) = self.receiver.message(index);
        let hops = HOP_LIMIT.checked_sub(meta.hop_limit).filter(|_| meta.hop_limit != 0);
        Received {
            from: meta.from,
            bytes,
            segment: meta.segment,
            congestion_experienced: meta.traffic_class & CE == CE,
            hops: hops.unwrap_or(0),
            wall_clock_nanos: meta.wall_clock_nanos,
        }
    }
}
