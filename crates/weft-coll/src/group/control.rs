//! Control messages: assignments of blocks, progress, and failure.

use alloc::string::ToString;

use weft_plan::collective::Channel;

use super::{CHANNELS, Group, Peer, index};
use crate::header::{Header, Kind};
use crate::{Call, Link};

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// Sends pending control messages to the other ranks: assignments, progress that no data message carried,
    /// and failure.
    pub(super) fn notify_peers<L: Link<Message = M>>(&mut self, link: &mut L) {
        let own = self.rank;
        for to in (0..self.ranks()).filter(|&to| to != own) {
            self.send_notices(to, link);
            for channel in CHANNELS {
                self.send_progress(to, channel, link);
            }
        }
    }

    fn send_notices<L: Link<Message = M>>(&mut self, to: usize, link: &mut L) {
        while let Some((header, text)) = self.peers[to].notices.front() {
            if self.peers[to].gone || self.peers[to].left {
                self.peers[to].notices.clear();
                return;
            }
            let channel = match header.kind {
                Kind::Abort => self.config.channel.unwrap_or(Channel::Network),
                _ => self.config.channel.unwrap_or(Channel::Inner),
            };
            match link.send(to, channel, 0, &header.emit(), text.as_bytes()) {
                Ok(true) => drop(self.peers[to].notices.pop_front()),
                Ok(false) => return,
                Err(why) => return self.peer_gone(to, why.to_string()),
            }
        }
    }

    fn send_progress<L: Link<Message = M>>(&mut self, to: usize, channel: Channel, link: &mut L) {
        let state = &self.channels[index(channel)];
        let (done, reported) = (state.done, state.peers[to].reported);
        let Peer { left, gone, .. } = self.peers[to];
        let due = done - reported >= u64::from(self.config.window / 4).max(1);
        if left || gone || !due || self.failed.is_some() {
            return;
        }
        let header = self.header(Kind::Progress, Call::barrier(), self.first, 0, channel);
        match link.send(to, channel, 0, &header.emit(), &[]) {
            Ok(true) => self.channels[index(channel)].peers[to].reported = done,
            Ok(false) => {}
            Err(why) => self.peer_gone(to, why.to_string()),
        }
    }

    /// Returns the header of a message, with this rank's progress on the channel.
    pub(super) fn header(
        &self,
        kind: Kind,
        call: Call,
        number: u64,
        block: u32,
        channel: Channel,
    ) -> Header {
        let done = self.channels[index(channel)].done;
        let channel = u8::try_from(index(channel)).expect("two channels");
        Header { kind, call, number, block, count: 0, channel, done }
    }
}
