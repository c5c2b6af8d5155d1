//! Several agents on one thread, so that a lab does not need a thread for each host.

use weft_udp::wait::{MAX_SLEEP, sharpen_timers, wait};
use weft_udp::{Agent, Application, Clock};
use weft_units::{Duration, Instant};

/// Agents that share a thread and a clock.
#[derive(Debug)]
pub struct AgentGroup {
    agents: Vec<Agent>,
    clock: Clock,
    longest_pause: Duration,
}

impl AgentGroup {
    /// Returns a crew of these agents. The calling thread gets precise timers and must make all steps.
    pub fn new(agents: Vec<Agent>) -> Self {
        sharpen_timers();
        Self { agents, clock: Clock, longest_pause: Duration::ZERO }
    }

    /// Returns the current time of the agents' clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the agents.
    pub fn agents(&mut self) -> &mut [Agent] {
        &mut self.agents
    }

    /// Gives each agent a turn with its own application. If none had work, sleeps until a socket is ready, a timer is
    /// due or `until`, for at most 0.1 s.
    pub fn step<A: Application>(&mut self, applications: &mut [A], until: Instant) {
        let (began, mut worked) = (self.clock.now(), false);
        for (agent, application) in self.agents.iter_mut().zip(applications) {
            worked |= agent.turn(application).worked();
        }
        let requested = if worked { Duration::ZERO } else { self.sleep(until) };
        let took = self.clock.now().since(began);
        self.longest_pause = self.longest_pause.max(took.saturating_sub(requested));
    }

    /// Returns the maximum duration of a step without its requested sleep: the longest delay of work by a busy machine.
    pub fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// Sleeps until a socket is ready, a timer is due or `until`, for at most 0.1 s. Returns the requested duration.
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
