//! Frames that arrive on a connection: each packet is put where it belongs at once, each frame is
//! shown to the tenant in order (BIFROST, section 4.2).

use alloc::collections::VecDeque;

use super::{PortId, Slot, Tenants, Turn};

/// What became of one message so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// None of it has come.
    Missing,
    /// It lies in the tenant's buffer, `placed` of `len` bytes.
    Claimed { slot: Slot, placed: u32, len: u32 },
    /// The tenant has it already, or is not to see it.
    Done,
}

/// Messages from the first one not delivered on.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    /// Number of the first.
    first: u32,
    messages: VecDeque<Message>,
}

impl Arriving {
    /// The state of message `number`; `None` where it lies outside the next `window` messages.
    pub(super) fn message(&mut self, number: u32, window: u16) -> Option<&mut Message> {
        let index = usize::try_from(number.wrapping_sub(self.first)).ok()?;
        if index >= usize::from(window) {
            return None;
        }
        if self.messages.len() <= index {
            self.messages.resize(index + 1, Message::Missing);
        }
        Some(&mut self.messages[index])
    }

    /// Whether message `number` is the next to be delivered.
    pub(super) fn turn(&self, number: u32) -> Turn {
        if number == self.first { Turn::Next } else { Turn::Early }
    }

    /// The first message is whole.
    pub(super) fn deliver(&mut self) -> Message {
        self.first = self.first.wrapping_add(1);
        let delivered = self.messages.pop_front().unwrap_or(Message::Missing);
        if self.messages.is_empty() {
            // An idle connection holds no memory.
            self.messages = VecDeque::new();
        }
        delivered
    }

    /// Gives every buffer back.
    pub(super) fn cancel(self, port: PortId, tenants: &mut impl Tenants) {
        for message in self.messages {
            if let Message::Claimed { slot, .. } = message {
                tenants.cancel(port, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_any_order_and_leave_in_theirs() {
        let mut arriving = Arriving { first: u32::MAX, ..Arriving::default() };
        let claimed = |slot| Message::Claimed { slot: Slot(slot), placed: 0, len: 60 };
        *arriving.message(1, 8).unwrap() = claimed(1);
        assert_eq!(arriving.message(u32::MAX, 8), Some(&mut Message::Missing));
        *arriving.message(u32::MAX, 8).unwrap() = claimed(7);
        *arriving.message(0, 8).unwrap() = Message::Done;
        assert_eq!(arriving.message(7, 8), None);
        assert_eq!(arriving.message(u32::MAX - 1, 8), None);
        let left = [arriving.deliver(), arriving.deliver(), arriving.deliver()];
        assert_eq!(left, [claimed(7), Message::Done, claimed(1)]);
        assert_eq!(arriving.messages.capacity(), 0);
    }
}
