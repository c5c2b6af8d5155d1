//! What the network counts, and why it loses packets.

/// Why the network lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// No room in a queue or in its switch's buffer.
    QueueFull,
    /// A switch (or the host itself) knew no way.
    NoRoute,
    /// The link was down, or went down under it.
    LinkDown,
    /// A lossy link lost it.
    LossyLink,
    /// The receiving host's checksum did not match.
    BadChecksum,
    /// The receiving host could not parse it.
    Malformed,
}

impl Loss {
    /// Every reason, in the order of [`Counters::lost`].
    pub const ALL: [Self; 6] = [
        Self::QueueFull,
        Self::NoRoute,
        Self::LinkDown,
        Self::LossyLink,
        Self::BadChecksum,
        Self::Malformed,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::NoRoute => "no_route",
            Self::LinkDown => "link_down",
            Self::LossyLink => "lossy_link",
            Self::BadChecksum => "bad_checksum",
            Self::Malformed => "malformed",
        }
    }
}

/// What the network counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets hosts put in.
    pub injected: u64,
    /// Packets faulty links made.
    pub duplicated: u64,
    /// Control packets switches made.
    pub switch_made: u64,
    /// Packets given to hosts.
    pub delivered: u64,
    /// Control packets that reached the switch they were for.
    pub switch_taken: u64,
    /// Packets lost, by [`Loss`].
    pub lost: [u64; Loss::ALL.len()],
    /// Packets an attacker put in.
    pub attacker_made: u64,
    /// Packets damaged so that their receivers cannot tell.
    pub forged: u64,
    /// Packets marked, each time a switch marked one that was not.
    pub marked: u64,
}
