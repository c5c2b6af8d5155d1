//! Frames that arrive on a connection: each packet is placed in its buffer at once, each frame is
//! completed for the tenant in its flow's order (BIFROST, section 4.2).
//!
//! The paper keeps the order of all frames between two vNICs, so that one lost packet holds back every flow. Here
//! the sender names for each frame the frame that must be completed before it ([`After`]); only frames of the flow
//! that lost a packet wait for it.

use alloc::collections::VecDeque;

use super::pieces::Pieces;
use super::{PortId, Slot, Staging, Tenants, Turn};

/// The frames that must be completed before a frame: the tag of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// All messages before it. The tag of senders that set none.
    Everything,
    /// The message this many before it, which itself comes after the one before it in its flow.
    Back(u16),
    /// No message: all earlier ones of its flow were acknowledged when it was sent.
    Nothing,
}

impl After {
    /// Returns the tag of message `number` if `predecessor` is the last message of its flow that was not
    /// acknowledged when it was sent.
    pub(super) fn of(number: u32, predecessor: Option<u32>) -> Self {
        let Some(predecessor) = predecessor else { return Self::Nothing };
        match u16::try_from(number.wrapping_sub(predecessor)) {
            Ok(back @ 1..=0xfffe) => Self::Back(back),
            _ => Self::Everything,
        }
    }

    pub(super) const fn from_tag(tag: u16) -> Self {
        match tag {
            0 => Self::Everything,
            u16::MAX => Self::Nothing,
            back => Self::Back(back),
        }
    }

    pub(super) const fn tag(self) -> u16 {
        match self {
            Self::Everything => 0,
            Self::Back(back) => back,
            Self::Nothing => u16::MAX,
        }
    }
}

/// The time of a frame's inspection, which decides where the frame is stored until then.
///
/// A tenant that can read its buffers could read denied frames, and one that can write to them could choose the
/// inspected bytes. So wherever there are rules a frame is inspected as it arrived, before any of it is in the
/// tenant's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inspection {
    /// At the arrival of its first packet, before that is placed. Other packets may be in the tenant's memory already:
    /// there are no rules that could deny them.
    OnHead,
    /// After all of it has arrived and it is next in order. Until then it is stored outside the tenant's reach.
    OnWhole,
    /// The frame has been inspected, and the tenant may receive it.
    Passed,
}

impl Inspection {
    pub(super) const fn staging(self) -> Staging {
        match self {
            Self::OnHead | Self::Passed => Staging::InPlace,
            Self::OnWhole => Staging::Private,
        }
    }
}

/// A frame of which the tenant's buffer holds some or all bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) slot: Slot,
    pub(super) pieces: Pieces,
    pub(super) after: After,
    pub(super) inspection: Inspection,
    /// `true` if a packet of it carried a congestion mark (CE, RFC 3168).
    pub(super) marked: bool,
}

/// The state of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// No packet of it has arrived.
    Missing,
    /// Some or all packets have arrived.
    Claimed(Claimed),
    /// The tenant has it already, or it was dropped.
    Done,
}

impl Message {
    fn is_done(&self) -> bool {
        *self == Self::Done
    }

    fn is_inspected(&self) -> bool {
        match self {
            Self::Missing => false,
            Self::Claimed(frame) => frame.inspection == Inspection::Passed,
            Self::Done => true,
        }
    }
}

/// The messages from the first undelivered one on.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    /// The number of the first message.
    first: u32,
    messages: VecDeque<Message>,
}

impl Arriving {
    /// Returns the state of message `number`; `None` outside the next `window` messages.
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

    /// Returns the turn of message `number`: the next to be delivered, or early.
    pub(super) fn turn(&self, number: u32) -> Turn {
        if number == self.first { Turn::Next } else { Turn::OutOfOrder }
    }

    /// Returns the next whole frame from message `number` on that the tenant may see now, `in_order` or at once.
    /// Marks it as done and moves `number` past it.
    pub(super) fn take_ready(&mut self, number: &mut u32, in_order: bool) -> Option<Claimed> {
        let from = usize::try_from(number.wrapping_sub(self.first)).ok()?;
        for index in from..self.messages.len() {
            *number = number.wrapping_add(1);
            let Message::Claimed(frame) = self.messages[index] else { continue };
            if !frame.pieces.are_whole() {
                continue;
            }
            if !in_order || self.all_before(index, frame.after, Message::is_done) {
                self.messages[index] = Message::Done;
                return Some(frame);
            }
        }
        None
    }

    /// Returns `true` if all messages that `number` comes after have been inspected.
    pub(super) fn may_be_inspected(&self, number: u32, after: After) -> bool {
        let index = usize::try_from(number.wrapping_sub(self.first));
        index.is_ok_and(|index| self.all_before(index, after, Message::is_inspected))
    }

    /// Returns `true` if `holds` is true of all messages that the one at `index` comes after.
    fn all_before(&self, index: usize, after: After, holds: impl Fn(&Message) -> bool) -> bool {
        match after {
            After::Everything => self.messages.iter().take(index).all(holds),
            After::Nothing => true,
            // A message before the first was delivered.
            After::Back(back) => {
                index.checked_sub(back.into()).is_none_or(|other| holds(&self.messages[other]))
            }
        }
    }

    /// Removes the first message, of which every packet is placed.
    pub(super) fn deliver(&mut self) {
        self.first = self.first.wrapping_add(1);
        self.messages.pop_front();
        if self.messages.is_empty() {
            // An idle connection holds no memory.
            self.messages = VecDeque::new();
        }
    }

    /// Returns every buffer to the port.
    pub(super) fn cancel(self, port: PortId, tenants: &mut impl Tenants) {
        for message in self.messages {
            if let Message::Claimed(frame) = message {
                tenants.cancel(port, frame.slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn claimed(slot: u32, after: After, pieces: Pieces) -> Message {
        let inspection = Inspection::Passed;
        Message::Claimed(Claimed { slot: Slot(slot), pieces, after, inspection, marked: false })
    }

    fn whole(slot: u32, after: After) -> Message {
        claimed(slot, after, Pieces::of(60, 60))
    }

    /// Returns the slots that may be seen once message `number` has changed.
    fn ready(arriving: &mut Arriving, mut number: u32) -> Vec<u32> {
        core::iter::from_fn(|| arriving.take_ready(&mut number, true))
            .map(|frame| frame.slot.0)
            .collect()
    }

    #[test]
    fn messages_come_in_any_order_and_leave_in_theirs() {
        let mut arriving = Arriving { first: u32::MAX, ..Arriving::default() };
        *arriving.message(1, 8).unwrap() = whole(1, After::Everything);
        assert!(ready(&mut arriving, 1).is_empty());
        *arriving.message(u32::MAX, 8).unwrap() = whole(7, After::Everything);
        assert_eq!(ready(&mut arriving, u32::MAX), [7]);
        *arriving.message(0, 8).unwrap() = Message::Done;
        assert_eq!(ready(&mut arriving, 1), [1]);
        assert_eq!(arriving.message(7, 8), None);
        assert_eq!(arriving.message(u32::MAX - 1, 8), None);
        (0..3).for_each(|_| arriving.deliver());
        assert_eq!((arriving.first, arriving.messages.capacity()), (2, 0));
    }

    #[test]
    fn only_the_flow_that_lost_a_packet_waits() {
        let mut arriving = Arriving::default();
        // Two flows alternate; the second frame of the even one is missing.
        for number in [0, 1, 3, 4, 5, 6] {
            let after = if number < 2 { After::Nothing } else { After::Back(2) };
            *arriving.message(number, 16).unwrap() = whole(number, after);
        }
        assert_eq!(ready(&mut arriving, 0), [0, 1, 3, 5]);
        *arriving.message(2, 16).unwrap() = whole(2, After::Back(2));
        assert_eq!(ready(&mut arriving, 2), [2, 4, 6]);
    }

    #[test]
    fn a_frame_of_which_a_piece_is_missing_is_not_seen() {
        let mut arriving = Arriving::default();
        *arriving.message(0, 16).unwrap() = claimed(0, After::Nothing, Pieces::of(30, 60));
        *arriving.message(1, 16).unwrap() = whole(1, After::Back(1));
        assert!(ready(&mut arriving, 0).is_empty());
    }

    #[test]
    fn a_frame_is_inspected_after_those_that_it_comes_after() {
        let mut arriving = Arriving::default();
        *arriving.message(0, 16).unwrap() = Message::Done;
        *arriving.message(1, 16).unwrap() = claimed(1, After::Nothing, Pieces::of(30, 60));
        arriving.message(3, 16).unwrap();
        assert!(arriving.may_be_inspected(2, After::Everything));
        assert!(
            arriving.may_be_inspected(3, After::Back(2))
                && arriving.may_be_inspected(3, After::Nothing)
        );
        assert!(!arriving.may_be_inspected(3, After::Back(1)));
        assert!(!arriving.may_be_inspected(3, After::Everything));
        let Message::Claimed(frame) = arriving.message(1, 16).unwrap() else { unreachable!() };
        frame.inspection = Inspection::OnWhole;
        assert!(!arriving.may_be_inspected(3, After::Back(2)));
    }

    #[test]
    fn tags_parse_back_to_themselves() {
        for tag in 0..=u16::MAX {
            assert_eq!(After::from_tag(tag).tag(), tag);
        }
        assert_eq!(After::of(7, None), After::Nothing);
        assert_eq!(After::of(1, Some(u32::MAX)), After::Back(2));
        assert_eq!(After::of(65_534, Some(0)), After::Back(65_534));
        assert_eq!(After::of(65_535, Some(0)), After::Everything);
    }
}
