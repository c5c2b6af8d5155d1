//! The transport interface of a group.

use weft_msg::SendError;

use crate::Channel;

/// The reason why a peer is unreachable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Its channels are closed.
    #[error("there is no channel to it any more")]
    NoChannel,
    /// Its channel refuses messages.
    #[error(transparent)]
    Refused(#[from] SendError),
}

/// A transport of messages to a rank's peers, over one channel or two. Messages of one lane of one channel
/// arrive whole, once and in order; messages of different lanes may overtake each other.
pub trait Link {
    /// A received message, which owns its memory.
    type Message;

    /// Sends a copy of `header` followed by `body` to rank `to`. Returns `false` if there is currently no room.
    /// `lane` is any number; the transport maps it to one of its lanes.
    ///
    /// # Errors
    /// Returns the reason why the peer is unreachable.
    fn send(
        &mut self,
        to: usize,
        channel: Channel,
        lane: u64,
        header: &[u8],
        body: &[u8],
    ) -> Result<bool, LinkError>;

    /// Returns the bytes of a message.
    fn bytes<'a>(&'a self, message: &'a Self::Message) -> &'a [u8];

    /// Frees the memory of a message.
    fn release(&mut self, message: Self::Message);
}
