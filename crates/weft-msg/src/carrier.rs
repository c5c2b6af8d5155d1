//! The two carriers of a channel's frames.

/// The carrier of one direction's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// The queue pair.
    Rdma,
    /// A TCP stream of the owner (X-RDMA's Mock, section VI.C).
    Stream,
}

impl Carrier {
    /// Returns the carrier's name: `rdma` or `tcp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Stream => "tcp",
        }
    }

    /// Returns the carrier of this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Rdma, Self::Stream].into_iter().find(|carrier| carrier.name() == name)
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Rdma => Self::Stream,
            Self::Stream => Self::Rdma,
        }
    }
}
