//! Several agents on one thread: every host of a lab, without a thread for each to be scheduled.

use rustix::event::{PollFd, PollFlags, poll};
use weft_units::{Duration, Instant};

use crate::agent::LONGEST_SLEEP;
use crate::wait::{sharpen_timers, timespec};
use crate::{Agent, Application, Clock};

/// Agents that share a thread and a clock.
#[derive(Debug)]
pub struct Crew {
    agents: Vec<Agent>,
    clock: Clock,
    longest_pause: Duration,
}

impl Crew {
    /// These agents, on the thread that takes their steps from now on.
    pub fn new(agents: Vec<Agent>) -> Self {
        sharpen_timers();
        Self { agents, clock: Clock, longest_pause: Duration::ZERO }
    }

    /// The time by their clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The agents.
    pub fn agents(&mut self) -> &mut [Agent] {
        &mut self.agents
    }

    /// Has each agent take a turn with its own application, and sleeps when none had anything to do:
    /// at most until `until`, and never longer than a tenth of a second.
    pub fn step<A: Application>(&mut self, applications: &mut [A], until: Instant) {
        let (began, mut worked) = (self.clock.now(), false);
        for (agent, application) in self.agents.iter_mut().zip(applications) {
            worked |= agent.turn(application).worked();
        }
        let asked = if worked { Duration::ZERO } else { self.sleep(until) };
        let took = self.clock.now().since(began);
        self.longest_pause = self.longest_pause.max(took.saturating_sub(asked));
    }

    /// The longest step, without the sleep that was asked for: how late something was done, at the
    /// most, because the machine was busy.
    pub fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// Gives how long it may sleep.
    fn sleep(&self, until: Instant) -> Duration {
        let now = self.clock.now();
        let due = self.agents.iter().map(Agent::next_due).min().unwrap_or(Instant::FAR_FUTURE);
        let until = until.min(due).min(now + LONGEST_SLEEP);
        let readable = self.agents.iter().map(|agent| agent.sockets.readable());
        let writable = self.agents.iter().flat_map(|agent| agent.sockets.outbox.blocked());
        let mut watched: Vec<PollFd<'_>> = readable
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .chain(writable.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::OUT)))
            .collect();
        // An interrupted or failed poll is a short one: the caller looks and comes back.
        let span = until.since(now);
        let _ = poll(&mut watched, Some(&timespec(span)));
        span
    }
}
