//! Fragments of IP packets.

/// The place of a fragment in its packet (RFC 791, section 3.2; RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The number that all fragments of a packet share, unique together with its addresses.
    pub identification: u32,
    /// The fragment's offset in the packet, bytes.
    pub offset: u16,
    /// `true` if another fragment follows.
    pub more: bool,
}

impl Fragment {
    /// Returns `true` if this is not the first fragment: another one has the transport header.
    pub const fn is_later(&self) -> bool {
        self.offset > 0
    }

    /// Returns `None` if the fragment is the whole packet (RFC 6946).
    pub(super) const fn unless_whole(self) -> Option<Self> {
        if self.offset == 0 && !self.more { None } else { Some(self) }
    }
}
