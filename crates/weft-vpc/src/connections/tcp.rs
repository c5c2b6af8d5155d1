//! The state of a TCP connection, as a middlebox between its ends sees it.

use crate::{Tcp, TcpFlags};

/// The state of a connection and its ends' last acknowledgement numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpState {
    phase: Phase,
    /// The sequence number that the originator, then the responder expects next; `None` before its first ACK.
    expected: [Option<u32>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The originator sent SYN.
    Opening,
    /// The responder sent SYN.
    SynReceived,
    Established,
    /// One end, the originator or not, sent FIN.
    HalfClosed {
        originator: bool,
    },
    Closed,
    Reset,
}

/// Maximum distance after the expected sequence number at which a reset is accepted: the maximum window
/// (RFC 7323, section 2.3).
const MAX_WINDOW: u32 = 1 << 30;

impl TcpState {
    /// Creates the state from the first segment seen of a connection. A connection that was open before, for example
    /// before a restart of the switch, counts as established: the rules have allowed the segment.
    pub(super) fn begin(tcp: &Tcp) -> Self {
        let phase = match tcp.flags.any(TcpFlags::SYN) {
            true => Phase::Opening,
            false => Phase::Established,
        };
        let mut state = Self { phase, expected: [None; 2] };
        state.advance(tcp, false);
        state
    }

    /// Updates the state for a segment of the responder if `from_responder` is `true`, otherwise of the originator.
    pub(super) fn advance(&mut self, tcp: &Tcp, from_responder: bool) {
        let has = |flag| tcp.flags.any(flag);
        if has(TcpFlags::RST) {
            if self.accepts_reset(tcp, from_responder) {
                self.phase = Phase::Reset;
            }
            return;
        }
        self.phase = match self.phase {
            Phase::Opening if from_responder && has(TcpFlags::SYN) => Phase::SynReceived,
            Phase::SynReceived if !from_responder && has(TcpFlags::ACK) => Phase::Established,
            Phase::Established if has(TcpFlags::FIN) => {
                Phase::HalfClosed { originator: !from_responder }
            }
            Phase::HalfClosed { originator }
                if originator == from_responder && has(TcpFlags::FIN) =>
            {
                Phase::Closed
            }
            phase => phase,
        };
        if has(TcpFlags::ACK) {
            self.expected[usize::from(from_responder)] = Some(tcp.acknowledgement);
        }
    }

    /// Returns `true` if the receiver of a reset would accept it. Without this check a sender that guesses the ports
    /// could end the tracking of the connection (RFC 5961, section 3).
    fn accepts_reset(&self, tcp: &Tcp, from_responder: bool) -> bool {
        match self.expected[usize::from(!from_responder)] {
            Some(expected) => tcp.sequence.wrapping_sub(expected) < MAX_WINDOW,
            // The receiver has sent no ACK: the reset refuses the connection and acknowledges the SYN.
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

    pub(super) const fn is_unreplied(self) -> bool {
        matches!(self.phase, Phase::Opening | Phase::Reset)
    }
}
