//! Incoming messages: validation of the sender, the call and the step.

use alloc::format;
use alloc::string::{String, ToString};

use super::{CHANNELS, Group};
use crate::algorithm::max_messages;
use crate::header::{Header, Kind};
use crate::{Call, Error, Link};

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// Handles a message of rank `from`; [`advance`](Self::advance) performs the steps that it enables. An invalid
    /// message fails the group.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn handle_message<L: Link<Message = M>>(&mut self, from: usize, message: M, link: &mut L) {
        let parsed = Header::parse(link.bytes(&message)).map(|(header, body)| {
            let text = (header.kind == Kind::Abort).then(|| String::from_utf8_lossy(body).into());
            (header, text)
        });
        let keep = match parsed {
            _ if self.failed.is_some() => false,
            Ok((header, text)) => self.ingest(from, &header, text),
            Err(error) => {
                self.fail(Error::Protocol { rank: from, why: error.to_string() });
                false
            }
        };
        match keep {
            true => {
                let (header, _) = Header::parse(link.bytes(&message)).expect("parsed before");
                let step = (header.number, header.block, from);
                self.inbox.entry(step).or_default().push_back(message);
            }
            false => link.release(message),
        }
    }

    /// Processes the header of a message. Returns `true` if the message is kept for a step.
    fn ingest(&mut self, from: usize, header: &Header, text: Option<String>) -> bool {
        let Some(state) = self.channels.get_mut(usize::from(header.channel)) else {
            let why = format!("channel {}", header.channel);
            self.fail(Error::Protocol { rank: from, why });
            return false;
        };
        let done = &mut state.peers[from].done;
        *done = (*done).max(header.done);
        match header.kind {
            Kind::Progress => false,
            Kind::Stalled => {
                self.on_stalled(from, header);
                false
            }
            Kind::Abort => {
                let why = text.unwrap_or_default();
                self.fail(Error::GivenUp { by: from, why });
                false
            }
            Kind::Assign => {
                if from == 0 && self.shares() {
                    self.announced.push_back(*header);
                } else {
                    let why = "it assigns blocks and is not to".into();
                    self.fail(Error::Protocol { rank: from, why });
                }
                false
            }
            Kind::Data => self.is_expected(from, header) && self.has_room(from),
        }
    }

    /// Compares the sender's call with this rank's call of the same number.
    fn is_expected(&mut self, from: usize, header: &Header) -> bool {
        let (number, theirs) = (header.number, header.call);
        let ours = match self.active_call(number) {
            Some(active) => Some((active.call, active.blocks)),
            None if number < self.first => {
                // The call is complete here, so all messages that it needed have arrived.
                let back = usize::try_from(self.first - number).unwrap_or(usize::MAX);
                let past = self.past.len().checked_sub(back).map(|place| self.past[place]);
                let ours = past.unwrap_or(theirs);
                self.refuse(from, number, ours, theirs);
                return false;
            }
            None => None,
        };
        match ours {
            None => {
                let first = *self.early_calls.entry((number, from)).or_insert(theirs);
                if first != theirs {
                    self.refuse(from, number, first, theirs);
                }
                first == theirs
            }
            Some((ours, blocks)) if ours != theirs || header.block >= blocks => {
                self.refuse(from, number, ours, theirs);
                false
            }
            Some(_) => true,
        }
    }

    /// Counts a message that waits for its step. Returns `false`, and fails the group, if its sender has sent more of them
    /// than the window permits: those of the window's blocks on each channel.
    fn has_room(&mut self, from: usize) -> bool {
        let channels = if self.shares() { CHANNELS.len() } else { 1 };
        let of_a_block = max_messages(self.ranks());
        let max = (self.config.window as usize).saturating_mul(channels * of_a_block);
        let waiting = &mut self.peers[from].waiting;
        if *waiting >= max {
            let why = format!("more than {max} of its messages wait for their steps");
            self.fail(Error::Protocol { rank: from, why });
            return false;
        }
        *waiting += 1;
        true
    }

    /// Fails the group because of a rank's call or message that does not match this rank's call.
    pub(super) fn refuse(&mut self, peer: usize, call: u64, ours: Call, theirs: Call) {
        let rank = self.rank;
        self.fail(if ours == theirs {
            let why = format!("it sent more of call {call} than there is");
            Error::Protocol { rank: peer, why }
        } else {
            Error::Mismatch { call, rank, ours, peer, theirs }
        });
    }

    /// Returns `true` if long calls are shared between two channels.
    pub(super) const fn shares(&self) -> bool {
        self.config.channel.is_none() && CHANNELS.len() > 1
    }
}
