//! The queue of submitted messages: segmented into packets in order, and done when all their packets are placed.

use alloc::collections::VecDeque;

use crate::Message;
use crate::pool::before;

/// A submitted message that is not done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingMessage {
    pub(crate) message: Message,
    /// The sequence number of its last packet; valid once it was segmented completely.
    last_psn: u32,
}

/// The next segment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) message: Message,
    /// The message's number.
    pub(crate) number: u32,
    pub(crate) offset: u32,
    pub(crate) len: u16,
}

/// The messages of one connection that are not done, in the order of submission.
#[derive(Debug)]
pub(crate) struct SendQueue {
    messages: VecDeque<PendingMessage>,
    /// The number of the first message in the queue.
    first: u32,
    /// Number of messages that were segmented completely.
    segmented: usize,
    /// Number of bytes of the next message that were segmented.
    offset: u32,
}

impl SendQueue {
    pub(crate) const fn new(first: u32) -> Self {
        Self { messages: VecDeque::new(), first, segmented: 0, offset: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Releases unused memory.
    pub(crate) fn release(&mut self) {
        self.messages.shrink_to_fit();
    }

    /// Returns the number of the next submitted message.
    pub(crate) fn next_number(&self) -> u32 {
        let waiting = u32::try_from(self.messages.len()).expect("the queue's limit fits u32");
        self.first.wrapping_add(waiting)
    }

    pub(crate) fn push(&mut self, message: Message) {
        if self.messages.is_empty() {
            // Most queues have one message at a time; the first growth would make room for four.
            self.messages.reserve_exact(1);
        }
        self.messages.push_back(PendingMessage { message, last_psn: 0 });
    }

    /// Returns the message with this number, which must not be done.
    #[inline]
    pub(crate) fn message(&self, number: u32) -> &Message {
        &self.messages[number.wrapping_sub(self.first) as usize].message
    }

    /// Returns `true` if anything is left to segment.
    #[inline]
    pub(crate) fn has_segment(&self) -> bool {
        self.segmented < self.messages.len()
    }

    /// Returns the bytes that are not segmented; as soon as these are `most`, no more are counted.
    pub(crate) fn unsent(&self, most: u32) -> u32 {
        let mut sum = 0_u32;
        for pending in self.messages.iter().skip(self.segmented) {
            // An empty message needs a packet too.
            sum = sum.saturating_add(pending.message.length.max(1));
            if sum >= most {
                break;
            }
        }
        sum.saturating_sub(self.offset)
    }

    /// Returns the number of packets of at most `mtu` bytes that are not segmented; as soon as these are `most`, no more
    /// are counted.
    pub(crate) fn waiting_packets(&self, mtu: u16, most: u16) -> u16 {
        let (mut packets, mut offset) = (0_u32, self.offset);
        for pending in self.messages.iter().skip(self.segmented) {
            // An empty message needs a packet too.
            packets += (pending.message.length - offset).div_ceil(mtu.into()).max(1);
            if packets >= most.into() {
                return most;
            }
            offset = 0;
        }
        u16::try_from(packets).expect("fewer than `most`")
    }

    /// Cuts the next segment of at most `mtu` bytes, which is sent as packet `psn`; `None` if there is none.
    #[inline]
    pub(crate) fn cut(&mut self, mtu: u16, psn: u32) -> Option<Segment> {
        let pending = self.messages.get_mut(self.segmented)?;
        let segmented = u32::try_from(self.segmented).expect("the queue's limit fits u32");
        let number = self.first.wrapping_add(segmented);
        let (message, offset) = (pending.message, self.offset);
        let len = segment_len(message.length, offset, mtu);
        self.offset += u32::from(len);
        if self.offset == message.length {
            pending.last_psn = psn;
            self.offset = 0;
            self.segmented += 1;
        }
        Some(Segment { message, number, offset, len })
    }

    /// Removes and returns a message whose packets all precede `base`.
    #[inline]
    pub(crate) fn pop_done(&mut self, base: u32) -> Option<Message> {
        if self.segmented == 0 || !before(self.messages.front()?.last_psn, base) {
            return None;
        }
        self.segmented -= 1;
        self.first = self.first.wrapping_add(1);
        self.messages.pop_front().map(|pending| pending.message)
    }
}

/// Returns the length in bytes of the segment that begins at `offset`, in a message of `length` bytes.
#[inline]
pub(crate) fn segment_len(length: u32, offset: u32, mtu: u16) -> u16 {
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
        let mut send_queue = SendQueue::new(u32::MAX);
        send_queue.push(message(1, 2500));
        send_queue.push(message(2, 0));
        let cuts: Vec<_> = (10..).map_while(|psn| send_queue.cut(1000, psn)).collect();
        let expected =
            [(u32::MAX, 0, 1000), (u32::MAX, 1000, 1000), (u32::MAX, 2000, 500), (0, 0, 0)];
        let got: Vec<_> = cuts.iter().map(|s| (s.number, s.offset, s.len)).collect();
        assert_eq!(got, expected);
        assert!(!send_queue.has_segment());
    }

    #[test]
    fn unsent_bytes_are_those_that_no_packet_has() {
        let mut send_queue = SendQueue::new(0);
        (1..=3).for_each(|token| send_queue.push(message(token, 2500)));
        send_queue.push(message(4, 0));
        assert_eq!(send_queue.unsent(u32::MAX), 7501);
        send_queue.cut(1000, 1);
        assert_eq!(send_queue.unsent(u32::MAX), 6501);
        (2..5).for_each(|psn| assert!(send_queue.cut(1000, psn).is_some()));
        assert_eq!(send_queue.unsent(u32::MAX), 4001);
        assert_eq!(send_queue.unsent(1000), 1500, "the rest is not counted");
    }

    #[test]
    fn waiting_packets_are_counted_up_to_a_limit() {
        let mut send_queue = SendQueue::new(0);
        assert_eq!(send_queue.waiting_packets(1000, 9), 0);
        send_queue.push(message(1, 2500));
        send_queue.push(message(2, 0));
        assert_eq!(send_queue.waiting_packets(1000, 9), 4);
        send_queue.cut(1000, 1);
        assert_eq!(send_queue.waiting_packets(1000, 9), 3);
        send_queue.push(message(3, u32::MAX));
        assert_eq!(send_queue.waiting_packets(1000, 9), 9);
        (2..5).for_each(|psn| assert!(send_queue.cut(1000, psn).is_some()));
        assert_eq!(send_queue.waiting_packets(64, u16::MAX), u16::MAX);
    }

    #[test]
    fn a_message_is_done_when_its_last_packet_is() {
        let mut send_queue = SendQueue::new(0);
        send_queue.push(message(1, 2500));
        for psn in 10..13 {
            send_queue.cut(1000, psn);
        }
        assert_eq!(send_queue.pop_done(12), None);
        assert_eq!(send_queue.pop_done(13), Some(message(1, 2500)));
        assert!(send_queue.is_empty());
    }
}
