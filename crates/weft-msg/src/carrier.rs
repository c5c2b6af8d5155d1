//! The two carriers of a channel's frames.

/// The carrier of one direction's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The queue pair.
    Rdma,
    /// A TCP stream of the owner (X-RDMA's Mock, section VI.C).
    Stream,
}

impl Carrier {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Rdma => Self::Stream,
            Self::Stream => Self::Rdma,
        }
    }
}
