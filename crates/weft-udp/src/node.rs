//! The two sides of a [`Driver`](crate::Driver): a [`Node`] is the engine that it runs, with its owner; a [`SocketSet`] is
//! the sockets of a host's addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};

use weft_seal::Seals;
use weft_transport::{Arrival, EndedConnection};
use weft_units::Instant;

use crate::sockets::{Inbox, Sockets};

/// An engine and its owner: an endpoint with its application, the overlay's switch with its ports, an RDMA device.
///
/// A driver is generic over its node, so that every call is direct and may be inlined.
pub trait Node<S> {
    /// Handles a datagram, which may be opened in place. Returns `false` if it is none of its protocol.
    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool;

    /// Handles a datagram that came to a port which only sends: a peer without a connection's state has no other
    /// address to answer to. Returns `false` if it is none of its protocol.
    fn handle_stray(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool;

    /// Handles timeouts that are due, events, and its owner's work: once a turn, after all arrivals.
    fn handle_timeout(&mut self, now: Instant);

    /// Writes at most `room` packets to the sockets, sealed. Returns their number.
    fn poll_transmit(
        &mut self,
        now: Instant,
        room: usize,
        sockets: &mut S,
        seals: &mut Seals,
    ) -> usize;

    /// Returns a connection that has ended: its keys are not used any more.
    fn poll_ended(&mut self) -> Option<EndedConnection>;

    /// Returns `false` while it takes no datagrams. Those that were read meanwhile are lost.
    #[inline]
    fn accepts(&self) -> bool {
        true
    }
}

/// The sockets of one address or several, numbered from zero.
pub trait SocketSet {
    /// Returns the number of addresses.
    fn addresses(&self) -> usize;

    /// Reads the socket of an address without blocking. Returns the number of messages in its inbox.
    ///
    /// # Errors
    /// The kernel's error.
    fn receive(&mut self, address: usize) -> io::Result<usize>;

    /// Returns the inbox of an address.
    fn inbox(&mut self, address: usize) -> &mut Inbox;

    /// Notes that a host's datagrams came to this address.
    #[inline]
    fn record_arrival(&mut self, _from: IpAddr, _address: usize) {}

    /// Returns a datagram that arrived on a socket of this address that only sends, if any, with its source.
    fn stray(&mut self, address: usize) -> Option<(SocketAddr, &mut [u8])>;

    /// Returns the datagrams that the kernel has not accepted yet.
    fn waiting(&self) -> usize;

    /// Gives all datagrams to the kernel.
    fn flush(&mut self);
}

impl SocketSet for Sockets {
    #[inline]
    fn addresses(&self) -> usize {
        1
    }

    #[inline]
    fn receive(&mut self, _address: usize) -> io::Result<usize> {
        self.inbox.receive()
    }

    #[inline]
    fn inbox(&mut self, _address: usize) -> &mut Inbox {
        &mut self.inbox
    }

    fn stray(&mut self, _address: usize) -> Option<(SocketAddr, &mut [u8])> {
        Self::stray(self)
    }

    #[inline]
    fn waiting(&self) -> usize {
        self.outbox.waiting()
    }

    #[inline]
    fn flush(&mut self) {
        self.outbox.flush();
    }
}
