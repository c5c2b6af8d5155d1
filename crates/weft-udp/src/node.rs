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
    /// Handles a datagram, which may be decrypted in place. Returns `false` if it is malformed: no packet of the node's
    /// protocol, or of no connection here.
    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool;

    /// Handles a datagram that arrived at a port which only sends: a peer that has no state of a connection knows no
    /// other address to answer to. Returns `false` if it is malformed.
    fn handle_stray(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        datagram: &mut [u8],
        seals: &mut Seals,
    ) -> bool;

    /// Handles timeouts that are due, events, and the work of the engine's owner. Called once a turn, after all
    /// arrivals.
    fn handle_timeout(&mut self, now: Instant);

    /// Writes at most `room` packets to the sockets, sealed where their connections are encrypted. Returns their
    /// number.
    fn poll_transmit(
        &mut self,
        now: Instant,
        room: usize,
        sockets: &mut S,
        seals: &mut Seals,
    ) -> usize;

    /// Returns the next connection that has ended, if any: its keys are not used any more.
    fn poll_ended(&mut self) -> Option<EndedConnection>;

    /// Returns `false` while the node accepts no datagrams. Datagrams that were read and not passed to it are lost.
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

    /// Records that datagrams of host `from` arrived at this address.
    #[inline]
    fn record_arrival(&mut self, _from: IpAddr, _address: usize) {}

    /// Returns a datagram that arrived on a socket of this address that only sends, if any, with its source.
    fn stray(&mut self, address: usize) -> Option<(SocketAddr, &mut [u8])>;

    /// Returns the number of datagrams that the kernel has not accepted yet.
    fn waiting(&self) -> usize;

    /// Passes all datagrams to the kernel; those for which it has no room stay.
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
