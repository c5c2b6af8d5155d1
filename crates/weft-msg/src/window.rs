//! The seq-ack windows of both directions (X-RDMA, section V.B, algorithm 1). Frames carry the low 16 bits of
//! 64-bit counts; windows are far smaller than half of that range.

use alloc::collections::{BTreeSet, VecDeque};

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
    /// The frames, oldest first: acknowledged ones that were not taken yet, then those in flight.
    frames: VecDeque<T>,
    in_flight: u16,
    acked: u64,
    depth: u16,
}

impl<T> SendWindow<T> {
    pub(crate) const fn new(depth: u16) -> Self {
        Self { frames: VecDeque::new(), in_flight: 0, acked: 0, depth }
    }

    /// Returns the next frame's number.
    pub(crate) const fn seq(&self) -> u64 {
        self.acked + self.in_flight as u64
    }

    pub(crate) const fn acked(&self) -> u64 {
        self.acked
    }

    pub(crate) const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Returns `true` if a message may be sent. The last place is reserved for frames that end a deadlock
    /// (section V.B).
    pub(crate) const fn open(&self) -> bool {
        self.in_flight + 1 < self.depth
    }

    /// Returns `true` if a NOP, a close or a switch may be sent.
    pub(crate) const fn reserve_open(&self) -> bool {
        self.in_flight < self.depth
    }

    pub(crate) fn push(&mut self, frame: T) -> u64 {
        debug_assert!(self.reserve_open(), "the window is full");
        let seq = self.seq();
        self.frames.push_back(frame);
        self.in_flight += 1;
        seq
    }

    /// Acknowledges the frames before `ack`, the low bits of a count. Returns the number of newly acknowledged ones, which
    /// [`take_acknowledged`](Self::take_acknowledged) returns.
    ///
    /// # Errors
    /// A frame was never sent. An old count is not an error: carriers may deliver it late.
    #[inline(always)]
    pub(crate) const fn acknowledge(&mut self, ack: u16) -> Result<u16, WindowError> {
        let newly = ack.wrapping_sub(low(self.acked));
        if newly > self.in_flight {
            let behind = newly > u16::MAX / 2;
            return if behind {
                Ok(0)
            } else {
                Err(WindowError::AckBeyondSent { ack, sent: self.seq() })
            };
        }
        self.acked += newly as u64;
        self.in_flight -= newly;
        Ok(newly)
    }

    /// Removes the oldest acknowledged frame and returns it.
    pub(crate) fn take_acknowledged(&mut self) -> Option<T> {
        if self.acknowledged_len() == 0 { None } else { self.frames.pop_front() }
    }

    /// Returns the frames in flight with their numbers, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.acked..).zip(self.frames.range(self.acknowledged_len()..))
    }

    /// Returns the number of acknowledged frames that were not taken yet.
    fn acknowledged_len(&self) -> usize {
        self.frames.len() - usize::from(self.in_flight)
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.in_flight = 0;
        self.frames.drain(..)
    }
}

/// The receiver's window: WTA, RTA and ACKED of algorithm 1.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWindow {
    /// WTA: the next frame's number.
    expected: u64,
    /// RTA: all frames before it are finished.
    ready: u64,
    /// Finished frames after one that is not.
    early: BTreeSet<u64>,
    /// The last count sent to the peer.
    acknowledged: u64,
    depth: u16,
}

impl ReceiveWindow {
    pub(crate) const fn new(depth: u16) -> Self {
        Self { expected: 0, ready: 0, early: BTreeSet::new(), acknowledged: 0, depth }
    }

    /// Returns the next frame's number: WTA.
    pub(crate) const fn expected(&self) -> u64 {
        self.expected
    }

    pub(crate) const fn ready(&self) -> u64 {
        self.ready
    }

    /// Accepts the frame with these low bits of its number, and returns the number.
    ///
    /// # Errors
    /// It is not the next frame, or exceeds the window.
    #[inline]
    pub(crate) fn arrive(&mut self, seq: u16) -> Result<u64, WindowError> {
        let expected = self.expected;
        if seq != low(expected) {
            return Err(WindowError::OutOfSequence { got: seq, expected: low(expected) });
        }
        if expected - self.acknowledged >= u64::from(self.depth) {
            return Err(WindowError::TooMany { depth: self.depth });
        }
        self.expected += 1;
        Ok(expected)
    }

    /// Marks a frame as finished: the application has received it, and its buffer was replaced (`rdma_read_done`).
    ///
    /// # Panics
    /// If the frame is not in the window.
    pub(crate) fn finish(&mut self, seq: u64) {
        assert!((self.ready..self.expected).contains(&seq), "within the window");
        if seq > self.ready {
            self.early.insert(seq);
            return;
        }
        self.ready += 1;
        while self.early.first() == Some(&self.ready) {
            self.early.pop_first();
            self.ready += 1;
        }
    }

    /// Returns `true` if all received frames are finished.
    pub(crate) const fn all_done(&self) -> bool {
        self.ready == self.expected
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
            assert_eq!(window.acknowledge(ack), Ok(1));
            assert_eq!(window.acknowledge(ack), Ok(0));
            if round > 0 {
                assert_eq!(window.acknowledge(low(round)), Ok(0), "an old one");
            }
            assert_eq!(
                (window.take_acknowledged(), window.take_acknowledged()),
                (Some(round), None)
            );
        }
    }

    #[test]
    fn acknowledged_frames_are_not_in_flight_before_they_are_taken() {
        let mut window = SendWindow::new(3);
        window.push('a');
        window.push('b');
        assert!(!window.open());
        assert_eq!(window.acknowledge(1), Ok(1));
        assert!(window.open());
        assert_eq!(window.push('c'), 2);
        assert_eq!(window.iter().collect::<Vec<_>>(), [(1, &'b'), (2, &'c')]);
        assert_eq!((window.take_acknowledged(), window.take_acknowledged()), (Some('a'), None));
        assert_eq!(window.acknowledge(3), Ok(2));
        assert_eq!(window.take_acknowledged(), Some('b'));
        assert_eq!(window.drain().collect::<Vec<_>>(), ['c']);
        assert_eq!((window.in_flight(), window.seq()), (0, 3));
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
        let error = window.acknowledge(2).unwrap_err();
        assert_eq!(error, WindowError::AckBeyondSent { ack: 2, sent: 1 });
        assert_eq!(window.acknowledge(1), Ok(1));
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
