//! Clear to send: the place of a receive, as a message from the receiver to the sender.

/// Size of the message, bytes.
pub(super) const LEN: usize = 32;

/// The place of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clear {
    /// The number of the message on this comm, from 0.
    pub(super) number: u64,
    /// The address in the receiver's memory.
    pub(super) address: u64,
    /// The key of that memory.
    pub(super) rkey: u32,
    /// Maximum size of the message, bytes.
    pub(super) size: u64,
}

impl Clear {
    pub(super) fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.rkey.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let long =
            |from: usize| u64::from_le_bytes(bytes[from..from + 8].try_into().expect("8 bytes"));
        let rkey = u32::from_le_bytes(bytes[24..28].try_into().expect("4 bytes"));
        Self { number: long(0), address: long(8), size: long(16), rkey }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_its_bytes() {
        let clear = Clear { number: 1 << 40, address: u64::MAX, rkey: 7, size: 1 << 30 };
        assert_eq!(Clear::from_bytes(&clear.to_bytes()), clear);
    }
}
