//! The seq-ack windows of both directions (X-RDMA, section V.B, algorithm 1). Frames carry the low 16 bits of
//! 64-bit counts; windows are far smaller than half of that range.

use alloc::collections::VecDeque;

/// An invalid sequence word from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// It acknowledges a frame that was never sent.
    #[error("the peer acknowledges frame {ack}; {sent} were sent")]
    AckBeyondSent {
        /// The acknowledgement, low bits.
        ack: u16,
        /// Number of frames sent.
        sent: u64,
    },
    /// A frame's number is not the next one.
    #[error("the peer's frame has number {got}, expected {expected}")]
    OutOfSequence {
        /// The frame's number, low bits.
        got: u16,
        /// The next number, low bits.
        expected: u16,
    },
    /// The peer has more frames in flight than allowed.
    #[error("the peer has more than {depth} frames in flight")]
    TooMany {
        /// The depth of its window.
        depth: u16,
    },
}

/// The sender's window: SEQ and ACKED of algorithm 1.
#[derive(Clone, Debug)]
pub(crate) struct SendWindow<T> {
    /// The frames in flight, oldest first.
    frames: VecDeque<T>,
    acked: u64,
    depth: u16,
}

impl<T> SendWindow<T> {
    pub(crate) const fn new(depth: u16) -> Self {
        Self { frames: VecDeque::new(), acked: 0, depth }
    }

    /// Returns the next frame's number.
    pub(crate) fn seq(&self) -> u64 {
        self.acked + self.frames.len() as u64
    }

    pub(crate) const fn acked(&self) -> u64 {
        self.acked
    }

    pub(crate) fn in_flight(&self) -> u16 {
        u16::try_from(self.frames.len()).expect("no longer than the depth")
    }

    /// Returns `true` if a message may be sent. The last place is reserved for frames that end a deadlock
    /// (section V.B).
    pub(crate) fn open(&self) -> bool {
        self.in_flight() + 1 < self.depth
    }

    /// Returns `true` if a NOP, a close or a switch may be sent.
    pub(crate) fn reserve_open(&self) -> bool {
        self.in_flight() < self.depth
    }

    pub(crate) fn push(&mut self, frame: T) -> u64 {
        debug_assert!(self.reserve_open(), "the window is full");
        let seq = self.seq();
        self.frames.push_back(frame);
        seq
    }

    /// Returns the frames that `ack`, the low bits of a count, newly acknowledges, oldest first. Each is removed as the caller
    /// takes it.
    ///
    /// # Errors
    /// A frame was never sent. An old count is not an error: carriers may deliver it late.
    pub(crate) fn acknowledge(
        &mut self,
        ack: u16,
    ) -> Result<impl Iterator<Item = T> + '_, WindowError> {
        let newly = ack.wrapping_sub(low(self.acked));
        let behind = newly > u16::MAX / 2;
        if !behind && newly > self.in_flight() {
            return Err(WindowError::AckBeyondSent { ack, sent: self.seq() });
        }
        let newly = if behind { 0 } else { newly };
        Ok((0..newly).map_while(|_| {
            self.acked += 1;
            self.frames.pop_front()
        }))
    }

    /// Returns the frames in flight with their numbers, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.acked..).zip(&self.frames)
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.frames.drain(..)
    }
}

/// The receiver's window: WTA, RTA and ACKED of algorithm 1.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWindow {
    /// Frames from `ready` on: `true` for each finished one.
    done: VecDeque<bool>,
    /// RTA: all frames before it are finished.
    ready: u64,
    /// The last count sent to the peer.
    acknowledged: u64,
    depth: u16,
}

impl ReceiveWindow {
    pub(crate) const fn new(depth: u16) -> Self {
        Self { done: VecDeque::new(), ready: 0, acknowledged: 0, depth }
    }

    /// Returns the next frame's number: WTA.
    pub(crate) fn expected(&self) -> u64 {
        self.ready + self.done.len() as u64
    }

    pub(crate) const fn ready(&self) -> u64 {
        self.ready
    }

    /// Accepts the frame with these low bits of its number, and returns the number.
    ///
    /// # Errors
    /// It is not the next frame, or exceeds the window.
    pub(crate) fn arrive(&mut self, seq: u16) -> Result<u64, WindowError> {
        let expected = self.expected();
        if seq != low(expected) {
            return Err(WindowError::OutOfSequence { got: seq, expected: low(expected) });
        }
        if expected - self.acknowledged >= u64::from(self.depth) {
            return Err(WindowError::TooMany { depth: self.depth });
        }
        self.done.push_back(false);
        Ok(expected)
    }

    /// Marks a frame as finished: the application has received it, and its buffer was replaced (`rdma_read_done`).
    ///
    /// # Panics
    /// If the frame is not in the window.
    pub(crate) fn finish(&mut self, seq: u64) {
        let index = usize::try_from(seq - self.ready).expect("within the window");
        self.done[index] = true;
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.ready += 1;
        }
    }

    /// Returns `true` if all received frames are finished.
    pub(crate) fn all_done(&self) -> bool {
        self.done.is_empty()
    }

    /// Returns the number of finished frames that are not acknowledged yet.
    pub(crate) const fn unacknowledged(&self) -> u64 {
        self.ready - self.acknowledged
    }

    /// Returns the count for an outgoing frame and marks it as sent.
    pub(crate) const fn next_ack(&mut self) -> u16 {
        self.acknowledged = self.ready;
        low(self.ready)
    }
}

/// Returns the low 16 bits of a count, which frames carry.
#[expect(clippy::cast_possible_truncation, reason = "frames carry the low 16 bits")]
pub(crate) const fn low(count: u64) -> u16 {
    count as u16
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn frames_are_acknowledged_in_order_and_once_past_the_wrap() {
        let mut window = SendWindow::new(4);
        for round in 0..100_000_u64 {
            assert_eq!(window.push(round), round);
            let ack = low(round + 1);
            assert_eq!(window.acknowledge(ack).unwrap().collect::<Vec<_>>(), [round]);
            assert_eq!(window.acknowledge(ack).unwrap().count(), 0);
            if round > 0 {
                assert_eq!(window.acknowledge(low(round)).unwrap().count(), 0, "an old one");
            }
        }
    }

    #[test]
    fn the_last_place_is_reserved_for_frames_that_end_a_deadlock() {
        let mut window = SendWindow::new(3);
        window.push(());
        assert!(window.open());
        window.push(());
        assert!(!window.open() && window.reserve_open());
        window.push(());
        assert!(!window.reserve_open());
    }

    #[test]
    fn a_frame_never_sent_cannot_be_acknowledged() {
        let mut window = SendWindow::new(8);
        window.push(());
        let error = window.acknowledge(2).map(Iterator::count).unwrap_err();
        assert_eq!(error, WindowError::AckBeyondSent { ack: 2, sent: 1 });
        assert_eq!(window.acknowledge(1).unwrap().count(), 1);
    }

    #[test]
    fn rta_advances_over_finished_frames_without_a_gap() {
        let mut window = ReceiveWindow::new(8);
        for seq in 0..3 {
            assert_eq!(window.arrive(seq), Ok(u64::from(seq)));
        }
        window.finish(1);
        window.finish(2);
        assert_eq!((window.ready(), window.unacknowledged()), (0, 0), "the first is missing");
        window.finish(0);
        assert_eq!((window.ready(), window.unacknowledged()), (3, 3));
        assert_eq!((window.next_ack(), window.unacknowledged()), (3, 0));
    }

    #[test]
    fn a_peer_cannot_exceed_its_window() {
        let mut window = ReceiveWindow::new(2);
        assert_eq!(window.arrive(1), Err(WindowError::OutOfSequence { got: 1, expected: 0 }));
        window.arrive(0).unwrap();
        window.arrive(1).unwrap();
        assert_eq!(window.arrive(2), Err(WindowError::TooMany { depth: 2 }));
        window.finish(0);
        assert_eq!(
            window.arrive(2),
            Err(WindowError::TooMany { depth: 2 }),
            "not acknowledged yet"
        );
        window.next_ack();
        assert_eq!(window.arrive(2), Ok(2));
    }
}
