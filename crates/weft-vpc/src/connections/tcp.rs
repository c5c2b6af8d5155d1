//! How far a TCP connection is, as seen from between its ends.

use crate::{Tcp, TcpFlags};

/// The state of a connection, and what its ends have acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpState {
    phase: Phase,
    /// What the originator, then the answerer expects next, where it has said so.
    expected: [Option<u32>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The originator asked.
    Opening,
    /// The answerer agreed.
    Agreed,
    Established,
    /// One end, the originator or not, will send no more.
    HalfClosed {
        originator: bool,
    },
    Closed,
    Reset,
}

/// How far before what an end expects, or after, a reset may be to be believed: the largest window
/// (RFC 7323, section 2.3).
const LARGEST_WINDOW: u32 = 1 << 30;

impl TcpState {
    /// A connection whose first segment this is. One that was under way before, as after a restart of
    /// the switch, is taken as established: the rules have let the segment pass.
    pub(super) fn begin(tcp: &Tcp) -> Self {
        let phase = match tcp.flags.any(TcpFlags::SYN) {
            true => Phase::Opening,
            false => Phase::Established,
        };
        let mut state = Self { phase, expected: [None; 2] };
        state.advance(tcp, false);
        state
    }

    /// A segment of the originator, or of the answerer.
    pub(super) fn advance(&mut self, tcp: &Tcp, answer: bool) {
        let has = |flag| tcp.flags.any(flag);
        if has(TcpFlags::RST) {
            if self.believes_reset(tcp, answer) {
                self.phase = Phase::Reset;
            }
            return;
        }
        self.phase = match self.phase {
            Phase::Opening if answer && has(TcpFlags::SYN) => Phase::Agreed,
            Phase::Agreed if !answer && has(TcpFlags::ACK) => Phase::Established,
            Phase::Established if has(TcpFlags::FIN) => Phase::HalfClosed { originator: !answer },
            Phase::HalfClosed { originator } if originator == answer && has(TcpFlags::FIN) => {
                Phase::Closed
            }
            phase => phase,
        };
        if has(TcpFlags::ACK) {
            self.expected[usize::from(answer)] = Some(tcp.acknowledgement);
        }
    }

    /// Whether the end that a reset is for would believe it. Otherwise anybody who guesses the ports
    /// could end the answer's right to pass (RFC 5961, section 3).
    fn believes_reset(&self, tcp: &Tcp, answer: bool) -> bool {
        match self.expected[usize::from(!answer)] {
            Some(expected) => tcp.sequence.wrapping_sub(expected) < LARGEST_WINDOW,
            // A connection that is refused: the reset acknowledges the question.
            None => true,
        }
    }

    pub(super) const fn is_established(self) -> bool {
        matches!(self.phase, Phase::Established | Phase::HalfClosed { .. })
    }

    pub(super) const fn is_reset(self) -> bool {
        matches!(self.phase, Phase::Reset)
    }

    pub(super) const fn is_over(self) -> bool {
        matches!(self.phase, Phase::Reset | Phase::Closed)
    }

    pub(super) const fn is_unanswered(self) -> bool {
        matches!(self.phase, Phase::Opening | Phase::Reset)
    }
}
