//! The sending half of a tenant's flow: a window of bytes in flight, and the ranges that the receiver has acknowledged.
//!
//! It is a model, not TCP. It has TCP's slow start, congestion avoidance and halving (RFC 5681) and SACK (RFC 2018),
//! and declares a frame lost when one that was sent [`PACKET_THRESHOLD`] frames later has arrived, as QUIC does (RFC
//! 9002, section 6.1.1). Its retransmission timeout is fixed and doubles; there are no handshake, delayed ACKs, pacing,
//! tail loss probes, undo or receive window.

use std::collections::VecDeque;

use weft_units::{Duration, Instant};

use super::ranges::Ranges;
use crate::traffic::MessageId;

/// A frame is lost when a frame that was sent this many frames later has arrived (RFC 9002's `kPacketThreshold`).
const PACKET_THRESHOLD: u64 = 3;

/// Number of segments that may be in flight at first (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;

/// Maximum number of times the timeout doubles.
const MAX_BACKOFF: u32 = 6;

/// The limits of a flow's sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Payload of a packet, bytes.
    pub(crate) mss: u64,
    /// Payload of a frame, bytes.
    pub(crate) frame: u64,
    /// Maximum number of bytes in flight.
    pub(crate) window: u64,
    /// Time without an ACK after which everything is retransmitted.
    pub(crate) timeout: Duration,
}

/// A frame in flight.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    serial: u64,
    start: u64,
    end: u64,
}

/// Part of the stream, to be sent in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    /// `true` if these bytes were sent before.
    pub(super) is_retransmission: bool,
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender {
    /// Number of bytes that were written to the stream.
    written: u64,
    /// The number of the first byte that was never sent.
    next: u64,
    acked: Ranges,
    window: u64,
    slow_start_until: u64,
    outstanding: VecDeque<Outstanding>,
    in_flight: u64,
    lost: VecDeque<(u64, u64)>,
    /// A loss of a frame below this number does not halve the window: it was sent before the last halving.
    halved_at: u64,
    backoff: u32,
    /// The start of the time without an ACK: the last new ACK, or the first frame in flight after it.
    waits_since: Instant,
    /// Messages by the end of their bytes, oldest first.
    messages: VecDeque<(u64, MessageId)>,
}

impl Sender {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            written: 0,
            next: 0,
            acked: Ranges::default(),
            window: (limits.mss * INITIAL_SEGMENTS).min(limits.window),
            slow_start_until: u64::MAX,
            outstanding: VecDeque::new(),
            in_flight: 0,
            lost: VecDeque::new(),
            halved_at: 0,
            backoff: 0,
            waits_since: Instant::EPOCH,
            messages: VecDeque::new(),
        }
    }

    /// Appends a message to the stream.
    pub(super) fn write(&mut self, message: MessageId, length: u64) {
        self.written += length;
        self.messages.push_back((self.written, message));
    }

    /// Returns the next message of which the receiver has acknowledged all bytes.
    pub(super) fn poll_acked(&mut self) -> Option<MessageId> {
        let &(end, message) = self.messages.front()?;
        (end <= self.acked.next()).then(|| self.messages.pop_front())?;
        Some(message)
    }

    /// Returns the number of the first byte that was not acknowledged; the numbers in ACKs are near it.
    pub(super) const fn acknowledged(&self) -> u64 {
        self.acked.next()
    }

    /// Returns the part of the stream to send now as frame `serial`, if there is one.
    pub(super) fn poll_piece(
        &mut self,
        now: Instant,
        serial: u64,
        limits: &Limits,
    ) -> Option<Piece> {
        let room = self.window.saturating_sub(self.in_flight);
        // A window shorter than a segment would stop the flow.
        let room = if self.in_flight == 0 { room.max(limits.mss) } else { room };
        let max_len = limits.frame.min(room - room % limits.mss.min(room.max(1)));
        let piece = self.lost_piece(max_len).or_else(|| self.new_piece(max_len, room, limits))?;
        if self.outstanding.is_empty() {
            self.waits_since = now;
        }
        self.in_flight += piece.end - piece.start;
        self.outstanding.push_back(Outstanding { serial, start: piece.start, end: piece.end });
        Some(piece)
    }

    fn lost_piece(&mut self, max_len: u64) -> Option<Piece> {
        if max_len == 0 {
            return None;
        }
        while let Some((start, end)) = self.lost.pop_front() {
            // It may have arrived meanwhile.
            let Some((first, gap_end)) = self.acked.missing(start, end).next() else { continue };
            let last = gap_end.min(first + max_len);
            if last < end {
                self.lost.push_front((last, end));
            }
            return Some(Piece { start: first, end: last, is_retransmission: true });
        }
        None
    }

    fn new_piece(&mut self, max_len: u64, room: u64, limits: &Limits) -> Option<Piece> {
        let left = self.written - self.next;
        // The end of a stream may be shorter than a segment.
        let max_len = if left <= room.min(limits.frame) { left } else { max_len };
        let (start, end) = (self.next, self.next + left.min(max_len));
        self.next = end;
        (start < end).then_some(Piece { start, end, is_retransmission: false })
    }

    /// Handles an ACK: the receiver has all bytes below `next`, the ranges `sacks`, and frame `echo`.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        next: u64,
        sacks: impl Iterator<Item = (u64, u64)>,
        echo: u64,
        limits: &Limits,
    ) {
        let mut fresh = self.acked.insert(0, next.min(self.next));
        for (start, end) in sacks {
            fresh += self.acked.insert(start, end.min(self.next));
        }
        let (acked, in_flight) = (&self.acked, &mut self.in_flight);
        self.outstanding.retain(|frame| {
            let is_missing = acked.missing(frame.start, frame.end).next().is_some();
            *in_flight -= if is_missing { 0 } else { frame.end - frame.start };
            is_missing
        });
        if fresh > 0 {
            (self.waits_since, self.backoff) = (now, 0);
            self.widen(fresh, limits);
        }
        let late =
            self.outstanding.partition_point(|frame| frame.serial + PACKET_THRESHOLD <= echo);
        self.lose_first(late, limits);
    }

    /// Widens the window after an ACK of `fresh` new bytes.
    fn widen(&mut self, fresh: u64, limits: &Limits) {
        let slow = self.window < self.slow_start_until;
        let more = if slow { fresh } else { limits.mss * fresh / self.window.max(1) };
        self.window = (self.window + more).min(limits.window);
    }

    /// Declares the oldest `count` frames in flight lost: their unacknowledged bytes are retransmitted.
    fn lose_first(&mut self, count: usize, limits: &Limits) {
        let next_serial = self.outstanding.back().map_or(0, |frame| frame.serial + 1);
        let before = self.in_flight;
        for _ in 0..count {
            let Some(Outstanding { serial, start, end }) = self.outstanding.pop_front() else {
                break;
            };
            self.in_flight -= end - start;
            self.lost.extend(self.acked.missing(start, end));
            if serial >= self.halved_at {
                self.halved_at = next_serial;
                self.window = (self.window.min(before) / 2).max(2 * limits.mss);
                self.slow_start_until = self.window;
            }
        }
    }

    /// Returns the time of the retransmission timeout; `None` if no frame is in flight.
    pub(super) fn poll_timeout(&self, limits: &Limits) -> Option<Instant> {
        let span = Duration::from_nanos(limits.timeout.as_nanos() << self.backoff);
        (!self.outstanding.is_empty()).then(|| self.waits_since + span)
    }

    /// Handles the retransmission timeout: all frames in flight are lost.
    pub(super) fn handle_timeout(&mut self, now: Instant, limits: &Limits) {
        let half = (self.window.min(self.in_flight) / 2).max(2 * limits.mss);
        self.lose_first(self.outstanding.len(), limits);
        (self.window, self.slow_start_until) = (limits.mss, half);
        (self.waits_since, self.backoff) = (now, (self.backoff + 1).min(MAX_BACKOFF));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { mss: 1000, frame: 4000, window: 64_000, timeout: Duration::from_millis(5) };

    fn at(micros: u64) -> Instant {
        Instant::EPOCH + Duration::from_micros(micros)
    }

    /// Sends all frames that may be sent, numbered from `serial` on; returns their ranges of bytes.
    fn pieces(sender: &mut Sender, now: Instant, serial: u64) -> Vec<(u64, u64)> {
        let mut serial = serial..;
        let piece = || sender.poll_piece(now, serial.next().unwrap(), &LIMITS);
        std::iter::from_fn(piece).map(|piece| (piece.start, piece.end)).collect()
    }

    fn sender(length: u64) -> Sender {
        let mut sender = Sender::new(&LIMITS);
        sender.write(MessageId(7), length);
        sender
    }

    #[test]
    fn the_window_begins_with_ten_segments_and_doubles() {
        let mut sender = sender(100_000);
        assert_eq!(pieces(&mut sender, at(0), 0), [(0, 4000), (4000, 8000), (8000, 10_000)]);
        sender.on_ack(at(10), 4000, [].into_iter(), 0, &LIMITS);
        assert_eq!(pieces(&mut sender, at(10), 3), [(10_000, 14_000), (14_000, 18_000)]);
        sender.on_ack(at(20), 18_000, [].into_iter(), 4, &LIMITS);
        let sent = pieces(&mut sender, at(20), 5);
        assert_eq!(sent.last().unwrap().1, 18_000 + 28_000);
    }

    #[test]
    fn the_window_bounds_the_bytes_in_flight() {
        let mut sender = sender(1_000_000);
        let (mut serial, mut max_len) = (0, 0);
        while sender.acknowledged() < 1_000_000 {
            let sent = pieces(&mut sender, at(0), serial);
            serial += sent.len() as u64;
            max_len = max_len.max(sender.next - sender.acknowledged());
            let next = sender.next;
            sender.on_ack(at(0), next, [].into_iter(), serial - 1, &LIMITS);
        }
        assert_eq!(max_len, 64_000);
        assert_eq!((sender.poll_acked(), sender.poll_acked()), (Some(MessageId(7)), None));
        assert_eq!(sender.poll_timeout(&LIMITS), None);
    }

    #[test]
    fn frames_that_three_later_ones_overtook_are_retransmitted_and_halve_the_window_once() {
        let mut sender = sender(10_000);
        let limits = Limits { frame: 1000, ..LIMITS };
        for serial in 0..10 {
            assert!(sender.poll_piece(at(0), serial, &limits).is_some());
        }
        // The first two are missing.
        sender.on_ack(at(9), 0, [(2000, 4000)].into_iter(), 3, &limits);
        let again = Piece { start: 0, end: 1000, is_retransmission: true };
        assert_eq!(sender.window, 4000, "half of the 8,000 bytes that were on their way");
        sender.on_ack(at(9), 0, [(2000, 10_000)].into_iter(), 9, &limits);
        assert_eq!(sender.poll_piece(at(9), 10, &limits), Some(again));
        let more = Piece { start: 1000, end: 2000, is_retransmission: true };
        assert_eq!(sender.poll_piece(at(9), 11, &limits), Some(more));
        assert_eq!(sender.poll_piece(at(9), 12, &limits), None);
        assert!(sender.window >= 4000);
        sender.on_ack(at(10), 10_000, [].into_iter(), 11, &limits);
        assert_eq!(sender.poll_acked(), Some(MessageId(7)));
    }

    #[test]
    fn without_acks_everything_is_retransmitted_with_backoff() {
        let mut sender = sender(3000);
        pieces(&mut sender, at(100), 0);
        assert_eq!(sender.poll_timeout(&LIMITS), Some(at(5100)));
        sender.handle_timeout(at(5100), &LIMITS);
        assert_eq!(pieces(&mut sender, at(5100), 1), [(0, 1000)]);
        assert_eq!(sender.poll_timeout(&LIMITS), Some(at(15_100)));
        sender.on_ack(at(6000), 1000, [].into_iter(), 1, &LIMITS);
        assert_eq!(pieces(&mut sender, at(6000), 2), [(1000, 3000)]);
        assert_eq!(sender.poll_timeout(&LIMITS), Some(at(11_000)));
    }
}
