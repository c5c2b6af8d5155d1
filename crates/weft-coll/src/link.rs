//! What a group asks of whoever carries its messages.

use alloc::string::String;

use crate::Channel;

/// Carries messages to the peers of a rank, over one channel or two. Messages of one lane of one channel arrive whole,
/// once and in order; nothing is promised between lanes.
pub trait Link {
    /// A message that arrived, with the memory it lies in.
    type Message;

    /// Takes a message, whose bytes are `head` and `body` one after the other, and copies it; or says that there is no
    /// room now. The lane is any number: as many are kept apart as the link has lanes.
    ///
    /// # Errors
    /// Why the peer cannot be reached any more.
    fn send(
        &mut self,
        to: usize,
        channel: Channel,
        lane: u64,
        head: &[u8],
        body: &[u8],
    ) -> Result<bool, String>;

    /// A message's bytes.
    fn bytes<'a>(&'a self, message: &'a Self::Message) -> &'a [u8];

    /// Takes a message's memory back.
    fn release(&mut self, message: Self::Message);
}
