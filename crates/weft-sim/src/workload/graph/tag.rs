//! The tags of messages and the tokens of wake-ups.

/// The subject of a message or a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The message of a send, or the end of a node that takes time.
    Node(u32),
    /// A node starts now, as the last that it waited for was done on another host at this time.
    Start(u32),
    /// A part of a collective, from one place in its group to another.
    Part {
        /// The collective, an index in the graph's operations.
        operation: u32,
        /// The sender's place.
        from: u16,
        /// The receiver's place.
        to: u16,
    },
    /// A message of which the last piece counts.
    Piece,
}

/// The bit of a message between two ranks of a server, which arrives as a wake-up.
pub(super) const LOCAL: u64 = 1 << 61;

/// Maximum number of collectives of a graph.
pub(super) const MAX_OPERATIONS: usize = 1 << 29;

impl Subject {
    /// Returns the tag. The two highest bits are the kind, the next is [`LOCAL`].
    pub(super) fn to_tag(self) -> u64 {
        match self {
            Self::Node(node) => node.into(),
            Self::Start(node) => 1 << 62 | u64::from(node),
            Self::Part { operation, from, to } => {
                2 << 62 | u64::from(operation) << 32 | u64::from(from) << 16 | u64::from(to)
            }
            Self::Piece => 3 << 62,
        }
    }

    /// Returns the subject of a tag.
    #[expect(clippy::cast_possible_truncation, reason = "takes a tag apart")]
    pub(super) const fn from_tag(tag: u64) -> Self {
        match tag >> 62 {
            0 => Self::Node(tag as u32),
            1 => Self::Start(tag as u32),
            2 => Self::Part {
                operation: (tag >> 32) as u32 & (MAX_OPERATIONS as u32 - 1),
                from: (tag >> 16) as u16,
                to: tag as u16,
            },
            _ => Self::Piece,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_holds_its_subject_and_the_local_bit() {
        let last = u32::try_from(MAX_OPERATIONS).expect("fits") - 1;
        for subject in [
            Subject::Node(u32::MAX),
            Subject::Start(7),
            Subject::Part { operation: last, from: 0xfffe, to: 0xffff },
            Subject::Piece,
        ] {
            let tag = subject.to_tag();
            assert_eq!(Subject::from_tag(tag), subject);
            assert_eq!((tag & LOCAL, Subject::from_tag(tag | LOCAL)), (0, subject));
        }
    }
}
