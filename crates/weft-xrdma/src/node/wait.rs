//! Hybrid polling (X-RDMA, section IV.B): the node busy-polls while there are events, and sleeps in epoll otherwise.

use rustix::event::{Timespec, epoll};
use weft_msg::{CallRole, ChannelId, CloseReason, Message, Payload, SendError};
use weft_units::Duration;

use super::{Event, Node, SOURCE_SHIFT, Source};
use crate::clock;

/// The default time to busy-poll after the last event: a few round trips. A longer time would cost the other programs
/// of the processor more than a wake-up costs this one.
const DEFAULT_SPIN: Duration = Duration::from_micros(50);

/// The time in which a sleeping node wakes up after a completion, on a host that is not overloaded.
const WAKE_UP: Duration = Duration::from_micros(50);

/// The errors of a call without a response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request was refused.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The channel ended; no `Closed` event follows.
    #[error("the channel ended: {0}")]
    Closed(#[from] CloseReason),
    /// No response arrived in time; a later one is dropped.
    #[error("no response in time")]
    TimedOut,
}

impl Node {
    /// Polls and sleeps until there is an event, or until `timeout` is over; `None` is no time limit. Returns `true` if
    /// there is an event.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.wait_for(timeout, |node| node.has_event().then_some(())).is_some()
    }

    /// Sends a request and waits for its response; other events stay for [`poll_event`](Self::poll_event).
    /// The context owns the response's memory: free it with `context().release`.
    ///
    /// # Errors
    /// The request is refused, the channel ends, or no response arrives in time.
    pub fn call(
        &mut self,
        channel: ChannelId,
        body: Payload<'_>,
        timeout: Option<Duration>,
    ) -> Result<Message, CallError> {
        let id = self.context.request(clock::now(), channel, body)?;
        let answer = self.wait_for(timeout, |node| node.take_answer(channel, id));
        answer.unwrap_or_else(|| {
            self.context.cancel(channel, id);
            Err(CallError::TimedOut)
        })
    }

    /// Takes the response to a request, or the end of its channel, from the queued events.
    fn take_answer(&mut self, of: ChannelId, id: u64) -> Option<Result<Message, CallError>> {
        let queued = core::iter::from_fn(|| self.context.poll_event());
        self.events.extend(queued.map(Event::Channel));
        let at = self.events.iter().position(|event| match event {
            Event::Channel(weft_msg::Event::Message { channel, message }) => {
                *channel == of && message.call == CallRole::Response(id)
            }
            Event::Channel(weft_msg::Event::Closed { channel, .. }) => *channel == of,
            _ => false,
        })?;
        match self.events.remove(at)? {
            Event::Channel(weft_msg::Event::Message { message, .. }) => Some(Ok(message)),
            Event::Channel(weft_msg::Event::Closed { reason, .. }) => Some(Err(reason.into())),
            _ => None,
        }
    }

    /// Polls and sleeps until `found` returns a result. Returns `None` after the timeout.
    pub(super) fn wait_for<R>(
        &mut self,
        timeout: Option<Duration>,
        mut found: impl FnMut(&mut Self) -> Option<R>,
    ) -> Option<R> {
        let until = timeout.map(|timeout| clock::now() + timeout);
        let spin = self.options.spin.unwrap_or(DEFAULT_SPIN);
        loop {
            self.poll();
            let now = clock::now();
            if let Some(found) = found(self) {
                self.last_active = now;
                return Some(found);
            }
            if until.is_some_and(|until| until <= now) {
                return None;
            }
            if now.since(self.last_active) < spin {
                if !self.greetings.is_empty() {
                    self.poll_sockets(Duration::ZERO);
                }
                // The peer may share the processor.
                std::thread::yield_now();
                continue;
            }
            let sleep = self.prepare();
            if let Some(found) = found(self) {
                self.last_active = now;
                return Some(found);
            }
            if let Some(sleep) = sleep {
                let left = until.map_or(Duration::MAX, |until| until.since(now));
                self.poll_sockets(sleep.min(left));
            }
        }
    }

    /// Prepares to sleep on [`event_fd`](Self::event_fd). Returns the maximum time to sleep, or `None` if work is
    /// pending.
    pub fn arm(&mut self) -> Option<Duration> {
        let sleep = self.prepare().filter(|_| !self.has_event());
        if sleep.is_some() {
            self.show_asleep();
        }
        sleep
    }

    /// Arms the device and polls once more: completions before that do not wake the sleeper. Returns the maximum time
    /// to sleep, or `None` if more completions wait.
    fn prepare(&mut self) -> Option<Duration> {
        if !self.armed {
            self.context.verbs_mut().arm();
            self.armed = true;
        }
        let now = clock::now();
        self.polled_at = now;
        let more = self.context.poll(now);
        self.work_pending = false;
        self.serve_pending_streams();
        if more {
            return None;
        }
        self.context.pause(WAKE_UP);
        let due = [self.context.poll_timeout(), self.greeting_deadline(), self.listen_again_at];
        let due = due.into_iter().flatten().min();
        let due = due.map_or(Duration::MAX, |at| at.since(now));
        Some(due.min(self.until_next_show(now)))
    }

    fn has_event(&self) -> bool {
        !self.events.is_empty() || self.context.has_event()
    }

    /// Serves the sockets, after a wait of at most `max_wait` for one of them or for the device.
    pub(super) fn poll_sockets(&mut self, max_wait: Duration) {
        self.sockets_polled_at = clock::now();
        let mut ready = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 64];
        let count = self.epoll_wait(&mut ready, max_wait);
        let began = clock::now();
        for event in &ready[..count] {
            let data = event.data.u64();
            let number = data & ((1 << SOURCE_SHIFT) - 1);
            match data >> SOURCE_SHIFT {
                source if source == Source::Listener as u64 => {
                    self.accept_connections(usize::try_from(number).expect("an index"));
                }
                source if source == Source::Greeting as u64 => self.continue_greeting(number),
                source if source == Source::Stream as u64 => self.serve_stream(number),
                source if source == Source::Control as u64 => self.serve_control(),
                _ => {
                    self.armed = false;
                    self.context.verbs_mut().take_notifications();
                }
            }
        }
        self.serve_pending_streams();
        self.expire_greetings();
        self.resume_listeners();
        // The write of the record, which they may cause, is none of them.
        self.check_segments(began);
        self.show();
    }

    fn epoll_wait(&self, ready: &mut [epoll::Event], max_wait: Duration) -> usize {
        let nanos = max_wait.as_nanos();
        if nanos > 0 {
            self.show_asleep();
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).expect("less than a second"),
        };
        let timeout = (max_wait < Duration::MAX).then_some(&timeout);
        // A wait that a signal interrupts only ends early.
        epoll::wait(&self.epoll, ready, timeout).unwrap_or(0)
    }
}
