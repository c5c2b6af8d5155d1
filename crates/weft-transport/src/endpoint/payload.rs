//! Messages to send and their parts.

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The owner's token, returned in [`Event::Acked`](crate::Event::Acked) and in every [`Payload`].
    pub token: u64,
    /// The owner's operation code, delivered to the peer's owner.
    pub opcode: u8,
    /// Further data of the owner, delivered to the peer's owner with every packet of the message.
    pub tag: u16,
    /// The message's length, bytes. Zero is valid.
    pub length: u32,
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The message's token.
    pub token: u64,
    /// The part's offset in the message, bytes.
    pub offset: u32,
    /// The part's length, bytes.
    pub len: u16,
}
