//! Ends of connections that are not announced to the program yet. The program is to see the queue pair's completions
//! first: the message that ends the connection is not ordered with the queue pair's packets, and a program that polls,
//! loses its processor, and then looks for events would close the connection with completions unseen. On hardware the
//! end arrives much later than the completions, because the card acknowledges a message before the other program has
//! seen it.

use weft_units::{Duration, Instant};

use super::State;
use crate::manager::Event;
use crate::message::CommunicationId;

/// The maximum time for which an end is held; a program that has not polled by then does not need it.
const MAX_HOLD: Duration = Duration::from_millis(50);
/// The interval between two checks for unseen completions.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_micros(500);

/// A connection that the other end has ended.
#[derive(Debug)]
pub(super) struct End {
    about: CommunicationId,
    event: Event,
    queue_pair: u32,
    until: Instant,
}

impl State {
    /// Holds the end of a connection if its queue pair has unsent requests, or completions to poll; otherwise returns
    /// the event.
    pub(super) fn hold_end(&mut self, about: CommunicationId, event: Event) -> Option<Event> {
        let (queue_pair, unseen) = match (&event, self.ids.get(&about)) {
            (Event::Disconnected { .. }, Some(id)) => {
                // SAFETY: the handle leaves the table before its identifier is destroyed, under the lock that is held.
                let id = unsafe { &*id.0 };
                let queue_pair = id.queue_pair();
                (queue_pair, id.has_unseen(queue_pair))
            }
            _ => return Some(event),
        };
        if !unseen {
            return Some(event);
        }
        self.ends.push(End { about, event, queue_pair, until: self.now + MAX_HOLD });
        None
    }

    /// Returns the ends that are due for their programs.
    pub(super) fn due_ends(&mut self) -> Vec<(CommunicationId, Event)> {
        let now = self.now;
        let ids = &self.ids;
        let has_unseen = |end: &End| {
            // SAFETY: as in `hold_end`.
            ids.get(&end.about).is_some_and(|id| unsafe { &*id.0 }.has_unseen(end.queue_pair))
        };
        let due = self.ends.extract_if(.., |end| now >= end.until || !has_unseen(end));
        due.map(|end| (end.about, end.event)).collect()
    }
}
