//! The deadlines of a context: channels' timers, empty regions of memory, and messages that a filter rule delays.

use weft_units::Instant;

use super::shared::Held;
use super::{Context, Shared};
use crate::event::Event;
use crate::verbs::Verbs;

impl<V: Verbs> Context<V> {
    /// Registers the channels whose time has come for the end of this poll, and frees memory.
    #[inline(always)]
    pub(super) fn serve_timers(&mut self, now: Instant) {
        if self.timers.first().is_some_and(|(at, _)| *at <= now) {
            self.expire_timers(now);
        }
        let Shared { memory, verbs, .. } = &mut self.shared;
        if memory.shrink_at().is_some_and(|at| at <= now) {
            memory.shrink(now, verbs);
        }
    }

    fn expire_timers(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            if let Some(channel) = self.channels.get_mut(id) {
                channel.timer = None;
            }
            self.touch(id);
        }
    }

    /// Releases messages whose delay by a filter rule has expired.
    #[inline]
    pub(super) fn release_held(&mut self, now: Instant) {
        if !self.shared.held.is_empty() {
            self.release_due(now);
        }
    }

    fn release_due(&mut self, now: Instant) {
        while let Some(entry) = self.shared.held.first_entry().filter(|entry| entry.key().0 <= now)
        {
            match entry.remove() {
                Held::In(channel, message) => {
                    self.shared.events.push_back(Event::Message { channel, message });
                }
                Held::Out(id, frame) => {
                    let frame = match self.channels.get_mut(id) {
                        Some(channel) => {
                            channel.backlog.push_back(frame);
                            None
                        }
                        None => Some(frame),
                    };
                    self.touch(id);
                    if let Some(frame) = frame {
                        self.shared.drop_frame(now, frame);
                    }
                }
            }
        }
    }
}
