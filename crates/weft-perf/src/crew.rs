//! Several agents on one thread: a lab needs no thread for each host.

use weft_udp::wait::{MAX_SLEEP, sharpen_timers, wait};
use weft_udp::{Agent, Application, Clock};
use weft_units::{Duration, Instant};

/// Agents that share a thread and a clock.
#[derive(Debug)]
pub struct Crew {
    agents: Vec<Agent>,
    clock: Clock,
    longest_pause: Duration,
}

impl Crew {
    /// Returns a crew of these agents, for the thread that takes their steps from now on.
    pub fn new(agents: Vec<Agent>) -> Self {
        sharpen_timers();
        Self { agents, clock: Clock, longest_pause: Duration::ZERO }
    }

    /// Returns the time of their clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the agents.
    pub fn agents(&mut self) -> &mut [Agent] {
        &mut self.agents
    }

    /// Each agent takes a turn with its own application. If none had anything to do, sleeps until
    /// `until`, but at most 0.1 s.
    pub fn step<A: Application>(&mut self, applications: &mut [A], until: Instant) {
        let (began, mut worked) = (self.clock.now(), false);
        for (agent, application) in self.agents.iter_mut().zip(applications) {
            worked |= agent.turn(application).worked();
        }
        let asked = if worked { Duration::ZERO } else { self.sleep(until) };
        let took = self.clock.now().since(began);
        self.longest_pause = self.longest_pause.max(took.saturating_sub(asked));
    }

    /// Returns the longest step without its requested sleep: the longest delay of any work because
    /// the machine was busy.
    pub fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// Returns the longest permitted sleep.
    fn sleep(&self, until: Instant) -> Duration {
        let now = self.clock.now();
        let due = self.agents.iter().map(Agent::next_due).min().unwrap_or(Instant::FAR_FUTURE);
        let until = until.min(due).min(now + MAX_SLEEP);
        let readable = self.agents.iter().map(|agent| agent.sockets().readable());
        let writable = self.agents.iter().flat_map(|agent| agent.sockets().outbox.blocked());
        let span = until.since(now);
        // A failed wait counts as a short one: the caller steps again.
        let _ = wait(readable, writable, span);
        span
    }
}
