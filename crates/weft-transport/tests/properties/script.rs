//! Bytes as a source of choices.

/// The bytes of a script that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script<'a> {
    bytes: &'a [u8],
}

impl<'a> Script<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the next byte; `None` at the end.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// Returns the next `count` bytes, or all that are left.
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        head
    }

    /// Returns two bytes; zeros follow the end.
    pub(super) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte().unwrap_or(0), self.byte().unwrap_or(0)])
    }

    /// Returns four bytes.
    pub(super) fn wide(&mut self) -> u32 {
        u32::from(self.word()) << 16 | u32::from(self.word())
    }

    /// Returns eight bytes.
    pub(super) fn long(&mut self) -> u64 {
        u64::from(self.wide()) << 32 | u64::from(self.wide())
    }

    /// Returns a number near `around` three times out of four, otherwise any number.
    pub(super) fn near(&mut self, around: u32) -> u32 {
        match self.byte().unwrap_or(0) {
            close @ 0..128 => around.wrapping_add(u32::from(close)),
            128..192 => around.wrapping_add(u32::from(self.word())).wrapping_sub(0x8000),
            _ => self.wide(),
        }
    }
}
