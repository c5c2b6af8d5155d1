//! RDMA and shared memory as a group's link. The inner channel between two ranks is the memory that they share; if they
//! share none, it is RDMA, as the network is.

use weft_coll::{Channel, Link, LinkError, MessageLink};
use weft_xrdma::IbVerbs;

use crate::shared::{Shared, Slot};

/// A message of either channel.
#[derive(Debug)]
pub(crate) enum Message {
    /// A message in the messaging layer's memory.
    Net(weft_msg::Message),
    /// A message in a slot of the shared memory.
    Slot(Slot),
    /// A message copied out of the shared memory.
    Copied(Vec<u8>),
}

/// The messaging layer's context and the shared memory.
#[derive(Debug)]
pub(crate) struct HostLink<'a> {
    pub(crate) net: MessageLink<'a, IbVerbs>,
    pub(crate) shared: Option<&'a mut Shared>,
}

impl Link for HostLink<'_> {
    type Message = Message;

    fn send(
        &mut self,
        to: usize,
        channel: Channel,
        lane: u64,
        head: &[u8],
        body: &[u8],
    ) -> Result<bool, LinkError> {
        match (&mut self.shared, channel) {
            (Some(shared), Channel::Inner) if shared.has(to) => {
                Ok(shared.send(to, self.net.now, head, body))
            }
            _ => self.net.send(to, channel, lane, head, body),
        }
    }

    fn bytes<'a>(&'a self, message: &'a Message) -> &'a [u8] {
        match (message, &self.shared) {
            (Message::Net(message), _) => self.net.bytes(message),
            (Message::Slot(slot), Some(shared)) => shared.bytes(slot),
            (Message::Slot(_), None) => &[],
            (Message::Copied(bytes), _) => bytes,
        }
    }

    fn release(&mut self, message: Message) {
        match (message, &mut self.shared) {
            (Message::Net(message), _) => self.net.release(message),
            (Message::Slot(slot), Some(shared)) => shared.release(&slot),
            (Message::Slot(_), None) | (Message::Copied(_), _) => {}
        }
    }
}
