//! Ends of connections that programs have not heard of yet. What the queue pair did before is theirs to see first: the
//! word of the end comes another way, and a program that polls, is kept from its processor, and then looks for
//! events would close the connection with completions that it has not seen. From hardware it hears of them
//! long before, for the acknowledgement leaves the card before the other program has even seen the message.

use weft_units::{Duration, Instant};

use super::State;
use crate::ibverbs::has_unseen;
use crate::manager::Event;
use crate::message::CommunicationId;

/// A program that does not look for that long does not care.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often it is looked whether it has.
pub(super) const LOOKS_EVERY: Duration = Duration::from_micros(500);

/// A connection that the other end has ended.
#[derive(Debug)]
pub(super) struct End {
    about: CommunicationId,
    event: Event,
    queue_pair: u32,
    until: Instant,
}

impl State {
    /// Has the end of a connection wait if its queue pair has something for the program to see; else gives it back.
    pub(super) fn hold_end(&mut self, about: CommunicationId, event: Event) -> Option<Event> {
        let queue_pair = match (&event, self.ids.get(&about)) {
            // SAFETY: it is taken out of the table before it is destroyed, under the lock that is held.
            (Event::Disconnected { .. }, Some(id)) => unsafe { &*id.0 }.queue_pair(),
            _ => return Some(event),
        };
        if !has_unseen(queue_pair) {
            return Some(event);
        }
        self.ends.push(End { about, event, queue_pair, until: self.now + PATIENCE });
        None
    }

    /// The ends that programs may hear of now.
    pub(super) fn ripe_ends(&mut self) -> Vec<(CommunicationId, Event)> {
        let now = self.now;
        let ripe = self.ends.extract_if(.., |end| now >= end.until || !has_unseen(end.queue_pair));
        ripe.map(|end| (end.about, end.event)).collect()
    }
}
