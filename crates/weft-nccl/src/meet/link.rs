//! A link: the queue pair of a comm and its control connection. A queue pair that fails is replaced by a new one, on both ends, for
//! as long as the peer's process lives: a network that is gone for longer than the device waits costs time and no communicator.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::control::{Control, Message, Received};
use crate::device::Port;
use crate::failure::Failure;
use crate::handle::Nonce;
use crate::log;
use crate::verbs::{Domain, Endpoint, QueuePair};

/// A change of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing has changed.
    None,
    /// The queue pair is a new one, connected to a new one of the peer.
    Renewed {
        /// Messages that the peer has received.
        received: u64,
    },
    /// The peer has connected its queue pair for the first time.
    Ready,
    /// The peer closes its end.
    Farewell {
        /// Messages that it has received.
        received: u64,
    },
    /// The peer has closed its end, or its process has ended.
    End,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    control: Control,
    domain: Arc<Domain>,
    port: Port,
    nonce: Nonce,
    pub(crate) pair: QueuePair,
    psn: u32,
    epoch: u32,
    /// `true` while the queue pair is connected to the peer's of the same epoch.
    pub(crate) live: bool,
}

impl Link {
    /// Offers a queue pair to the peer of a control connection.
    ///
    /// # Errors
    /// The device has no resources left.
    pub(crate) fn offer(
        domain: &Arc<Domain>,
        port: Port,
        control: Control,
        nonce: Nonce,
    ) -> Result<Self, Failure> {
        let (pair, psn) = new_pair(domain, port).map_err(|error| creating(&error))?;
        let mut link =
            Self { control, domain: domain.clone(), port, nonce, pair, psn, epoch: 0, live: false };
        link.send_offer(0);
        Ok(link)
    }

    /// Returns the peer's address, as lines of the log name it.
    pub(crate) fn peer(&self) -> String {
        self.control.peer.to_string()
    }

    /// Returns the number of queue pairs before this one.
    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    fn send_offer(&mut self, received: u64) {
        let address = match self.port.address {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let from = Endpoint { qpn: self.pair.number(), psn: self.psn, address };
        self.control.send(Message::Offer { epoch: self.epoch, from, received, nonce: self.nonce });
    }

    /// Connects the queue pair to the peer's.
    ///
    /// # Errors
    /// The device refuses the peer's address.
    pub(crate) fn accept_offer(&mut self, from: &Endpoint) -> Result<(), Failure> {
        self.pair.connect(self.psn, from).map_err(|error| creating(&error))?;
        self.live = true;
        Ok(())
    }

    /// Reports that the first queue pair is connected.
    pub(crate) fn send_ready(&mut self) {
        self.control.send(Message::Ready);
    }

    /// Reports the number of received messages before this end closes.
    pub(crate) fn send_farewell(&mut self, received: u64) {
        self.control.send(Message::Farewell { received });
    }

    /// Replaces the queue pair after it has failed. `received` messages have been received here.
    ///
    /// # Errors
    /// The device has no resources left.
    pub(crate) fn renew(&mut self, received: u64, reason: &str) -> Result<(), Failure> {
        log::info(&format!("connection to {}: {reason}; it is set up again", self.peer()));
        self.replace(self.epoch + 1, received)
    }

    fn replace(&mut self, epoch: u32, received: u64) -> Result<(), Failure> {
        (self.pair, self.psn) =
            new_pair(&self.domain, self.port).map_err(|error| creating(&error))?;
        (self.epoch, self.live) = (epoch, false);
        self.send_offer(received);
        Ok(())
    }

    /// Handles a message of the peer. `received` messages have been received here.
    ///
    /// # Errors
    /// The peer's host does not answer for as long as the kernel tries, or it is not this plugin, or the device has no resources left.
    pub(crate) fn service(&mut self, received: u64) -> Result<Change, Failure> {
        let message = match self.control.poll() {
            Ok(Received::Message(message)) => message,
            Ok(Received::Nothing) => return Ok(Change::None),
            Ok(Received::End) => return Ok(Change::End),
            Err(error) => {
                return Err(Failure::remote(format!("connection to {}: {error}", self.peer())));
            }
        };
        match message {
            Message::Ready => Ok(Change::Ready),
            Message::Farewell { received } => Ok(Change::Farewell { received }),
            // An offer that crossed a later one of this end.
            Message::Offer { epoch, .. }
                if epoch < self.epoch || self.live && epoch == self.epoch =>
            {
                Ok(Change::None)
            }
            Message::Offer { epoch, from, received: by_peer, .. } => {
                if epoch > self.epoch {
                    self.replace(epoch, received)?;
                }
                self.accept_offer(&from)?;
                Ok(Change::Renewed { received: by_peer })
            }
        }
    }
}

/// Creates a queue pair and draws its first PSN.
fn new_pair(domain: &Arc<Domain>, port: Port) -> io::Result<(QueuePair, u32)> {
    let psn = getrandom::u32().map_err(io::Error::other)? & 0xff_ffff;
    Ok((QueuePair::create(domain, port.gid)?, psn))
}

fn creating(error: &io::Error) -> Failure {
    Failure::system("setting up a connection", error)
}
