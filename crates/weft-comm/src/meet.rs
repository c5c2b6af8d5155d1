//! Channels between all ranks: of two, the one with the higher number connects, and first sends its
//! number on each channel.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_guard::constant_time_eq;
use weft_msg::{ChannelId, Payload};
use weft_units::{Duration, Instant};
use weft_xrdma::{Event, Message, Ticket};

use crate::{CommError, Communicator};

/// The first bytes of a channel's first message.
const NAME: [u8; 8] = *b"weftcoll";
const HELLO: usize = 20;
/// The interval between polls.
const LOOK: Duration = Duration::from_millis(20);

/// Channels in set-up.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    /// The number of the group, which only its ranks know.
    pub(crate) group: u64,
    /// The rank of each ticket.
    asked: BTreeMap<Ticket, usize>,
    addresses: Vec<SocketAddr>,
    until: Instant,
    /// The reasons of missing channels.
    failed: Option<CommError>,
}

fn hello(group: u64, rank: usize) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&NAME);
    bytes[8..16].copy_from_slice(&group.to_le_bytes());
    bytes[16..].copy_from_slice(&u32::try_from(rank).expect("few ranks").to_le_bytes());
    bytes
}

/// Returns the sender of a hello, if it is a rank of this group.
fn read_hello(bytes: &[u8], group: u64) -> Option<usize> {
    let bytes: &[u8; HELLO] = bytes.try_into().ok()?;
    let number = u32::from_le_bytes(bytes[16..].try_into().expect("four bytes"));
    let ours = bytes[..8] == NAME && constant_time_eq(&bytes[8..16], &group.to_le_bytes());
    ours.then(|| usize::try_from(number).expect("a word"))
}

impl<B: AsMut<[u8]>> Communicator<B> {
    /// Opens channels to all others, which listen at these addresses.
    pub(crate) fn connect_all(
        &mut self,
        addresses: Vec<SocketAddr>,
        group: u64,
        until: Instant,
    ) -> Result<(), CommError> {
        let meeting = Meeting { group, asked: BTreeMap::new(), addresses, until, failed: None };
        self.meeting = Some(meeting);
        for _ in 0..self.options.lanes {
            (0..self.rank()).try_for_each(|rank| self.ask(rank))?;
        }
        loop {
            self.progress();
            let meeting = self.meeting.as_mut().expect("it is going on");
            if let Some(error) = meeting.failed.take() {
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
                return Err(CommError::Channel { rank, at: meeting.addresses[rank], why });
            }
            self.node.wait(Some(LOOK));
        }
    }

    fn ask(&mut self, rank: usize) -> Result<(), CommError> {
        let Some(meeting) = &mut self.meeting else { return Ok(()) };
        let ticket = self.node.connect(meeting.addresses[rank])?;
        meeting.asked.insert(ticket, rank);
        Ok(())
    }

    /// Handles an event of a channel in set-up.
    pub(crate) fn take_meeting(&mut self, event: Event) {
        let Some(meeting) = &mut self.meeting else { return };
        match event {
            Event::Connected { ticket, channel } => {
                let Some(rank) = meeting.asked.remove(&ticket) else { return };
                let (now, hello) = (self.node.now(), hello(meeting.group, self.group.rank()));
                let sent = self.node.context().send(now, channel, Payload::Copy(&hello));
                match sent {
                    Ok(_) => self.lanes.add(rank, channel),
                    Err(error) => {
                        let (at, why) = (meeting.addresses[rank], error.to_string());
                        meeting.failed = Some(CommError::Channel { rank, at, why });
                    }
                }
            }
            Event::ConnectFailed { ticket, error } => {
                let Some(rank) = meeting.asked.remove(&ticket) else { return };
                // The rank may not listen yet.
                if self.node.now() < meeting.until {
                    let asked = self.ask(rank);
                    if let (Err(error), Some(meeting)) = (asked, &mut self.meeting) {
                        meeting.failed = Some(error);
                    }
                } else {
                    let (at, why) = (meeting.addresses[rank], error.to_string());
                    meeting.failed = Some(CommError::Channel { rank, at, why });
                }
            }
            // A rank that could not be accepted retries, or is reported as missing.
            Event::AcceptFailed { .. } | Event::Channel(_) => {}
            _ => {}
        }
    }

    /// Handles the first message of a channel that another rank opened.
    pub(crate) fn take_hello(&mut self, channel: ChannelId, message: Message) {
        let now = self.node.now();
        let lanes = self.options.lanes;
        let context = self.node.context();
        let group = self.meeting.as_ref().map(|meeting| meeting.group);
        let who = group.and_then(|group| read_hello(context.body(&message), group));
        context.release(now, message);
        let own = self.group.rank();
        match who.filter(|&rank| rank > own && rank < self.group.ranks()) {
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
