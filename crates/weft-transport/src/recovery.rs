//! How losses are found: what a receiver makes of packets out of order, and what its sender makes of
//! what it hears. `docs/design/loss.md` tells the four apart.

/// The name of a way. Both ends of a connection are configured alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Every packet is placed where it belongs; one is lost when a later one of its own path arrived.
    PerPath,
    /// Likewise placed, but the receiver asks for what is missing (IRN; Mittal et al., SIGCOMM 2018).
    Irn,
    /// The receiver refuses what is out of order and the sender begins again where it was lost
    /// (`RoCEv2` NICs before selective repeat; IBTA 1.4, section 9.7).
    GoBackN,
    /// Every packet is placed where it belongs; one is lost when no ACK covered it for the
    /// retransmission timeout, however many later ones arrived (STELLAR, section 7.2).
    Timeout,
}

impl Kind {
    /// Every way.
    pub const ALL: &[Self] = &[Self::PerPath, Self::Irn, Self::GoBackN, Self::Timeout];

    /// Its name on the command line and in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerPath => "per-path",
            Self::Irn => "irn",
            Self::GoBackN => "go-back-n",
            Self::Timeout => "timeout",
        }
    }

    /// What it does, in one line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::PerPath => "lost when overtaken on its own path, whatever other paths do",
            Self::Irn => "lost when the receiver says so: selective repeat after a NACK (IRN)",
            Self::GoBackN => "only in order: everything after a loss is sent again (RoCE)",
            Self::Timeout => "lost when its timeout passes, never sooner (STELLAR, section 7.2)",
        }
    }
}

crate::registry::named!(Kind, "loss recovery");
