//! Submitted messages: cut into packets in order, and done when all of their packets are placed.

use alloc::collections::VecDeque;

use crate::Message;
use crate::pool::before;

/// A message that was submitted and is not done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    /// Sequence number of its last packet; meaningful once it was cut whole.
    last_psn: u32,
}

/// The next piece to cut: which message, from where, how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) message: Message,
    /// The message's number.
    pub(crate) number: u32,
    pub(crate) offset: u32,
    pub(crate) len: u16,
}

/// The messages of one connection that are not done, in the order they were submitted.
#[derive(Debug)]
pub(crate) struct Outbox {
    messages: VecDeque<Outgoing>,
    /// Number of the first message in the queue.
    first: u32,
    /// How many of them were cut whole.
    cut: usize,
    /// Bytes of the next one that were cut.
    offset: u32,
}

impl Outbox {
    pub(crate) const fn new(first: u32) -> Self {
        Self { messages: VecDeque::new(), first, cut: 0, offset: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Gives its memory back; nothing waits.
    pub(crate) fn release(&mut self) {
        self.messages.shrink_to_fit();
    }

    /// The number the next submitted message gets.
    pub(crate) fn next_number(&self) -> u32 {
        let waiting = u32::try_from(self.messages.len()).expect("the queue's limit fits u32");
        self.first.wrapping_add(waiting)
    }

    pub(crate) fn push(&mut self, message: Message) {
        self.messages.push_back(Outgoing { message, last_psn: 0 });
    }

    /// The message with this number, which must not be done.
    #[inline]
    pub(crate) fn message(&self, number: u32) -> &Message {
        &self.messages[number.wrapping_sub(self.first) as usize].message
    }

    /// Whether anything is left to cut.
    #[inline]
    pub(crate) fn has_segment(&self) -> bool {
        self.cut < self.messages.len()
    }

    /// Cuts the next piece of at most `mtu` bytes; it travels as packet `psn`.
    #[inline]
    pub(crate) fn cut(&mut self, mtu: u16, psn: u32) -> Option<Segment> {
        let outgoing = self.messages.get_mut(self.cut)?;
        let cut = u32::try_from(self.cut).expect("the queue's limit fits u32");
        let number = self.first.wrapping_add(cut);
        let (message, offset) = (outgoing.message, self.offset);
        let len = piece(message.length, offset, mtu);
        self.offset += u32::from(len);
        if self.offset == message.length {
            outgoing.last_psn = psn;
            self.offset = 0;
            self.cut += 1;
        }
        Some(Segment { message, number, offset, len })
    }

    /// Takes a message whose packets all come before `base`.
    #[inline]
    pub(crate) fn pop_done(&mut self, base: u32) -> Option<Message> {
        if self.cut == 0 || !before(self.messages.front()?.last_psn, base) {
            return None;
        }
        self.cut -= 1;
        self.first = self.first.wrapping_add(1);
        self.messages.pop_front().map(|outgoing| outgoing.message)
    }
}

/// Length of the piece of a message that begins at `offset`.
#[inline]
pub(crate) fn piece(length: u32, offset: u32, mtu: u16) -> u16 {
    let rest = length.saturating_sub(offset).min(mtu.into());
    u16::try_from(rest).expect("at most the MTU")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(token: u64, length: u32) -> Message {
        Message { token, opcode: 0, tag: 0, length }
    }

    #[test]
    fn messages_are_cut_in_order_and_an_empty_one_is_a_packet_too() {
        let mut outbox = Outbox::new(u32::MAX);
        outbox.push(message(1, 2500));
        outbox.push(message(2, 0));
        let cuts: Vec<_> = (10..).map_while(|psn| outbox.cut(1000, psn)).collect();
        let expected =
            [(u32::MAX, 0, 1000), (u32::MAX, 1000, 1000), (u32::MAX, 2000, 500), (0, 0, 0)];
        let got: Vec<_> = cuts.iter().map(|s| (s.number, s.offset, s.len)).collect();
        assert_eq!(got, expected);
        assert!(!outbox.has_segment());
    }

    #[test]
    fn a_message_is_done_when_its_last_packet_is() {
        let mut outbox = Outbox::new(0);
        outbox.push(message(1, 2500));
        for psn in 10..13 {
            outbox.cut(1000, psn);
        }
        assert_eq!(outbox.pop_done(12), None);
        assert_eq!(outbox.pop_done(13), Some(message(1, 2500)));
        assert!(outbox.is_empty());
    }
}
