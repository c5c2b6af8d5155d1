//! Loss recovery mechanisms: the receiver's treatment of packets out of order, and the sender's of their reports.
//! `docs/design/loss.md` compares the four.

/// The name of a loss recovery mechanism. Both ends of a connection use the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Every packet is placed; a packet is lost when a later one of its own path was placed.
    PerPath,
    /// Every packet is placed, and the receiver requests the missing ones (IRN; Mittal et al., SIGCOMM 2018).
    Irn,
    /// The receiver refuses packets out of order, and the sender resumes from the lost one (`RoCEv2` NICs before
    /// selective repeat; IBTA 1.4, section 9.7).
    GoBackN,
    /// Every packet is placed; a packet is lost when no ACK covered it for the retransmission timeout, however many
    /// later ones arrived (STELLAR, section 7.2).
    Timeout,
}

impl Kind {
    /// All mechanisms.
    pub const ALL: &[Self] = &[Self::PerPath, Self::Irn, Self::GoBackN, Self::Timeout];

    /// Returns its name on the command line and in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerPath => "per-path",
            Self::Irn => "irn",
            Self::GoBackN => "go-back-n",
            Self::Timeout => "timeout",
        }
    }

    /// Returns a one-line description.
    pub const fn about(self) -> &'static str {
        match self {
            Self::PerPath => "lost when overtaken on its own path, whatever other paths do",
            Self::Irn => "lost when the receiver reports it: selective repeat after a NACK (IRN)",
            Self::GoBackN => "only in order: all packets after a loss are retransmitted (RoCE)",
            Self::Timeout => "lost when its timeout passes, never sooner (STELLAR, section 7.2)",
        }
    }
}

crate::registry::named!(Kind, "loss recovery");
