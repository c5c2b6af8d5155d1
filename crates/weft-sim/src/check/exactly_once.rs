//! Each byte of each message is placed once, and all of them before the message is delivered.

use std::collections::BTreeMap;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Event, Placement};

use super::Observer;
use crate::traffic::{ChannelId, Traffic};
use crate::world::Network;

/// The extents of every message that was not delivered yet.
#[derive(Debug, Default)]
pub(super) struct Check {
    connections: BTreeMap<(NodeId, ConnectionId), Received>,
    violations: Vec<String>,
}

/// The placements that one connection's engine has requested.
#[derive(Debug, Default)]
struct Received {
    messages: BTreeMap<u32, Message>,
    /// Packets whose payload is being placed: message and length.
    pending: BTreeMap<u32, (u32, u32)>,
    /// The number of the first message that was not delivered.
    delivered: u32,
}

/// A message of which packets were placed.
#[derive(Debug, Default)]
struct Message {
    length: u32,
    /// The requested extents: offset to length.
    extents: BTreeMap<u32, u32>,
    /// Bytes that have been placed.
    placed: u64,
}

/// A message was delivered before its payload was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("was delivered with {placed} of {length} bytes placed")]
struct Incomplete {
    placed: u64,
    length: u32,
}

impl Received {
    fn request(&mut self, placement: &Placement) -> Result<(), &'static str> {
        let Placement { psn, message, offset, len, length, .. } = *placement;
        let len = u32::from(len);
        if message.wrapping_sub(self.delivered) > u32::MAX / 2 {
            return Err("belongs to a message that was delivered");
        }
        let known = self
            .messages
            .entry(message)
            .or_insert_with(|| Message { length, ..Message::default() });
        if known.length != length {
            return Err("changes its message's length");
        }
        let end =
            offset.checked_add(len).filter(|&end| end <= length).ok_or("leaves its message")?;
        let before = known.extents.range(..=offset).next_back();
        let after = known.extents.range(offset..).next();
        let overlaps = before.is_some_and(|(&start, &len)| start + len > offset || start == offset)
            || after.is_some_and(|(&start, _)| start < end);
        if overlaps {
            return Err("was placed before");
        }
        known.extents.insert(offset, len);
        self.pending.insert(psn, (message, len));
        Ok(())
    }

    fn place(&mut self, psn: u32) {
        if let Some((message, len)) = self.pending.remove(&psn)
            && let Some(known) = self.messages.get_mut(&message)
        {
            known.placed += u64::from(len);
        }
    }

    fn deliver(&mut self, message: u32, length: u32) -> Result<(), Incomplete> {
        let known = self.messages.remove(&message).unwrap_or_default();
        self.delivered = message.wrapping_add(1);
        if known.placed == u64::from(length) && known.length == length {
            return Ok(());
        }
        Err(Incomplete { placed: known.placed, length })
    }
}

impl Observer for Check {
    fn on_place(&mut self, host: NodeId, placement: &Placement) {
        let received = self.connections.entry((host, placement.connection)).or_default();
        if let Err(reason) = received.request(placement) {
            self.violations.push(format!("host {}: {placement:?} {reason}", host.0));
        }
    }

    fn on_placed(&mut self, host: NodeId, connection: ConnectionId, psn: u32) {
        if let Some(received) = self.connections.get_mut(&(host, connection)) {
            received.place(psn);
        }
    }

    fn on_event(&mut self, host: NodeId, event: &Event) {
        match *event {
            Event::Delivered { connection, message, length, .. } => {
                let received = self.connections.entry((host, connection)).or_default();
                if let Err(error) = received.deliver(message, length) {
                    let text = format!("host {}: {connection:?} message {message} {error}", host.0);
                    self.violations.push(text);
                }
            }
            Event::Closed { connection, .. } => {
                self.connections.remove(&(host, connection));
            }
            _ => {}
        }
    }

    fn on_restart(&mut self, host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {
        self.connections.retain(|(of, _), _| *of != host);
    }

    fn violations(&self, _network: &Network) -> Vec<String> {
        self.violations.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(psn: u32, offset: u32, len: u16) -> Placement {
        let connection = ConnectionId(1);
        Placement { connection, psn, opcode: 0, tag: 0, message: 0, offset, len, length: 100 }
    }

    #[test]
    fn a_byte_that_is_placed_twice_is_a_violation() {
        for (offset, len) in [(40, 20), (30, 20), (50, 20), (30, 40), (45, 5), (41, 1)] {
            let mut received = Received::default();
            received.request(&placement(0, 40, 20)).unwrap();
            let got = received.request(&placement(1, offset, len));
            assert_eq!(got, Err("was placed before"), "{offset}+{len}");
        }
        let mut received = Received::default();
        for (psn, offset) in [(0, 40), (1, 20), (2, 60)] {
            assert_eq!(received.request(&placement(psn, offset, 20)), Ok(()));
        }
        assert_eq!(received.request(&placement(3, 90, 20)), Err("leaves its message"));
    }

    #[test]
    fn a_message_is_complete_when_its_payload_is_placed_not_when_it_is_requested() {
        let mut received = Received::default();
        received.request(&placement(0, 0, 60)).unwrap();
        received.request(&placement(1, 60, 40)).unwrap();
        received.place(0);
        let got = received.deliver(0, 100).unwrap_err();
        assert_eq!(got.to_string(), "was delivered with 60 of 100 bytes placed");
        let got = received.request(&placement(2, 0, 1));
        assert_eq!(got, Err("belongs to a message that was delivered"));
    }
}
