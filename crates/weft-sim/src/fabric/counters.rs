//! The network's counters, and the reasons for lost packets.

/// The reason why the network lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// A queue or its switch's buffer had no room.
    QueueFull,
    /// A switch, or the host itself, had no route.
    NoRoute,
    /// The link was down, or went down while the packet was on it.
    LinkDown,
    /// A lossy link lost it.
    LossyLink,
    /// The receiving host's checksum did not match.
    BadChecksum,
    /// The receiving host could not parse it.
    Malformed,
}

impl Loss {
    /// All reasons, in the order of [`Counters::lost`].
    pub const ALL: [Self; 6] = [
        Self::QueueFull,
        Self::NoRoute,
        Self::LinkDown,
        Self::LossyLink,
        Self::BadChecksum,
        Self::Malformed,
    ];

    /// Returns its name in reports.
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

/// The network's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent by hosts.
    pub injected: u64,
    /// Packets duplicated by faulty links.
    pub duplicated: u64,
    /// Control packets sent by switches.
    pub control_sent: u64,
    /// Packets delivered to hosts.
    pub delivered: u64,
    /// Control packets that reached the switch they were addressed to.
    pub control_received: u64,
    /// Packets lost, by [`Loss`].
    pub lost: [u64; Loss::ALL.len()],
    /// Packets sent by an attacker.
    pub attacker_made: u64,
    /// Packets changed in a way that their receivers cannot detect.
    pub forged: u64,
    /// Packets marked; a packet that was marked already is not counted again.
    pub marked: u64,
    /// Packets cut to their headers.
    pub trimmed: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, more: Self) {
        let Self {
            injected,
            duplicated,
            control_sent,
            delivered,
            control_received,
            lost,
            attacker_made,
            forged,
            marked,
            trimmed,
        } = more;
        self.injected += injected;
        self.duplicated += duplicated;
        self.control_sent += control_sent;
        self.delivered += delivered;
        self.control_received += control_received;
        self.lost.iter_mut().zip(lost).for_each(|(sum, count)| *sum += count);
        self.attacker_made += attacker_made;
        self.forged += forged;
        self.marked += marked;
        self.trimmed += trimmed;
    }
}
