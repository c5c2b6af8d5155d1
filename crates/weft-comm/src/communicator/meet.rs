//! Set-up of the channels between all ranks. Of two ranks, the one with the higher number connects; the first message
//! on each channel is its hello, which contains its number.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_guard::constant_time_eq;
use weft_msg::{ChannelId, Payload};
use weft_units::{Duration, Instant};
use weft_xrdma::{Event, Message, Ticket};

use super::Communicator;
use crate::CommError;

/// The first bytes of a channel's first message.
const NAME: [u8; 8] = *b"weftcoll";
/// Length of a hello in bytes.
const HELLO_BYTES: usize = 20;
/// The interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Channels in set-up.
#[derive(Debug, Default)]
pub(super) struct ChannelSetup {
    /// The number of the group, which only its ranks know.
    pub(super) group: u64,
    /// The ranks to which connections are pending, by ticket.
    pending: BTreeMap<Ticket, usize>,
    addresses: Vec<SocketAddr>,
    until: Instant,
    /// The error that ends the set-up.
    failed: Option<CommError>,
}

/// Returns a hello: the name, the group's number and the rank's number.
fn hello(group: u64, rank: usize) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(&NAME);
    bytes[8..16].copy_from_slice(&group.to_le_bytes());
    bytes[16..].copy_from_slice(&u32::try_from(rank).expect("few ranks").to_le_bytes());
    bytes
}

/// Returns the sender of a hello, if it is a rank of this group.
fn read_hello(bytes: &[u8], group: u64) -> Option<usize> {
    let bytes: &[u8; HELLO_BYTES] = bytes.try_into().ok()?;
    let number = u32::from_le_bytes(bytes[16..].try_into().expect("four bytes"));
    let ours = bytes[..8] == NAME && constant_time_eq(&bytes[8..16], &group.to_le_bytes());
    ours.then(|| usize::try_from(number).expect("a word"))
}

impl<B: AsMut<[u8]>> Communicator<B> {
    /// Opens channels to all other ranks, which listen at these addresses.
    ///
    /// # Errors
    /// Returns `Channel` if one cannot be opened in time, `Node` if the device fails, or `Group` if the group failed.
    pub(super) fn connect_all(
        &mut self,
        addresses: Vec<SocketAddr>,
        group: u64,
        until: Instant,
    ) -> Result<(), CommError> {
        let setup =
            ChannelSetup { group, pending: BTreeMap::new(), addresses, until, failed: None };
        self.setup = Some(setup);
        for _ in 0..self.options.lanes {
            (0..self.rank()).try_for_each(|rank| self.connect_to(rank))?;
        }
        loop {
            self.progress();
            let setup = self.setup.as_mut().expect("it is going on");
            if let Some(error) = setup.failed.take() {
                return Err(error);
            }
            if let Some(error) = self.group.error() {
                return Err(error.clone().into());
            }
            let own = self.group.rank();
            let missing = (0..self.group.ranks())
                .find(|&rank| rank != own && self.lanes.to(rank).len() < self.options.lanes);
            let Some(rank) = missing else { return Ok(()) };
            if self.node.now() >= until {
                let why = "it did not come in time".into();
                return Err(CommError::Channel { rank, at: setup.addresses[rank], why });
            }
            self.node.wait(Some(POLL_INTERVAL));
        }
    }

    /// Starts a connection to a rank.
    fn connect_to(&mut self, rank: usize) -> Result<(), CommError> {
        let Some(setup) = &mut self.setup else { return Ok(()) };
        let ticket = self.node.connect(setup.addresses[rank])?;
        setup.pending.insert(ticket, rank);
        Ok(())
    }

    /// Handles an event of a channel in set-up.
    pub(super) fn on_setup_event(&mut self, event: Event) {
        let Some(setup) = &mut self.setup else { return };
        match event {
            Event::Connected { ticket, channel } => {
                let Some(rank) = setup.pending.remove(&ticket) else { return };
                let (now, hello) = (self.node.now(), hello(setup.group, self.group.rank()));
                let sent = self.node.context().send(now, channel, Payload::Copy(&hello));
                match sent {
                    Ok(_) => self.lanes.add(rank, channel),
                    Err(error) => {
                        let (at, why) = (setup.addresses[rank], error.to_string());
                        setup.failed = Some(CommError::Channel { rank, at, why });
                    }
                }
            }
            Event::ConnectFailed { ticket, error } => {
                let Some(rank) = setup.pending.remove(&ticket) else { return };
                // The rank may not listen yet.
                if self.node.now() < setup.until {
                    let result = self.connect_to(rank);
                    if let (Err(error), Some(setup)) = (result, &mut self.setup) {
                        setup.failed = Some(error);
                    }
                } else {
                    let (at, why) = (setup.addresses[rank], error.to_string());
                    setup.failed = Some(CommError::Channel { rank, at, why });
                }
            }
            // A rank that could not be accepted retries, or is reported as missing.
            Event::AcceptFailed { .. } | Event::Channel(_) => {}
            _ => {}
        }
    }

    /// Handles the first message of a channel that another rank opened.
    pub(super) fn on_hello(&mut self, channel: ChannelId, message: Message) {
        let now = self.node.now();
        let lanes = self.options.lanes;
        let context = self.node.context();
        let group = self.setup.as_ref().map(|setup| setup.group);
        let sender = group.and_then(|group| read_hello(context.body(&message), group));
        context.release(now, message);
        let own = self.group.rank();
        match sender.filter(|&rank| rank > own && rank < self.group.ranks()) {
            Some(rank) if self.lanes.to(rank).len() < lanes => self.lanes.add(rank, channel),
            // The sender is no rank of this group.
            _ => context.abort(now, channel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranks_of_the_group_are_let_in() {
        assert_eq!(read_hello(&hello(7, 3), 7), Some(3));
        assert_eq!(read_hello(&hello(7, 3), 8), None);
        assert_eq!(read_hello(&hello(7, 3)[..19], 7), None);
        assert_eq!(read_hello(b"another program says", 7), None);
    }
}
