//! Registered memory lent to messages in progress, which must not be freed before they end.

use std::collections::BTreeMap;

use weft_msg::{ChannelId, Event, Slice};

/// A table of lent memory, for owners that cannot express loans in their types.
#[derive(Debug, Default)]
pub struct Lending {
    /// The address of the memory lent to each message.
    messages: BTreeMap<(ChannelId, u64), u64>,
}

impl Lending {
    /// Records that a message was sent from this memory.
    pub fn lend(&mut self, channel: ChannelId, number: u64, memory: Slice) {
        self.messages.insert((channel, number), memory.address);
    }

    /// Updates the table for an event: memory returns when its message is delivered, or its channel is gone.
    pub fn ingest(&mut self, event: &Event) {
        match event {
            Event::Delivered { channel, number } => {
                self.messages.remove(&(*channel, *number));
            }
            Event::Closed { channel, .. } => self.messages.retain(|(of, _), _| of != channel),
            _ => {}
        }
    }

    /// Returns `true` if any of this memory is lent.
    pub fn is_lent(&self, memory: Slice) -> bool {
        let end = memory.address + u64::from(memory.len);
        self.messages.values().any(|address| (memory.address..end).contains(address))
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;
    use weft_msg::CloseReason;

    use super::*;

    #[test]
    fn memory_is_lent_until_its_message_is_delivered_or_its_channel_gone() {
        let mut ids: SlotMap<ChannelId, ()> = SlotMap::with_key();
        let [one, two] = [ids.insert(()), ids.insert(())];
        let block = |address| Slice { address, len: 4096, ..Slice::default() };
        let mut lending = Lending::default();
        lending.lend(one, 1, block(0));
        lending.lend(one, 2, Slice { address: 4000, len: 96, ..Slice::default() });
        lending.lend(two, 3, block(4096));
        lending.ingest(&Event::Delivered { channel: one, number: 1 });
        assert!(lending.is_lent(block(0)), "message 2 is in it too");
        lending.ingest(&Event::Delivered { channel: two, number: 2 });
        assert!(lending.is_lent(block(0)), "that is another message");
        lending.ingest(&Event::Closed { channel: one, reason: CloseReason::Aborted });
        assert!(!lending.is_lent(block(0)));
        assert!(lending.is_lent(block(4096)));
    }
}
