//! The settings of a prober, with their limits.

use std::net::IpAddr;
use std::time::Duration;

/// The UDP port at which hosts answer probes by default.
pub const PROBE_PORT: u16 = 4794;

/// The settings of a prober.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// The address of this host, from which it probes and answers.
    pub source: IpAddr,
    /// The UDP port at which this and all other hosts answer.
    pub port: u16,
    /// The hosts whose probes are answered.
    pub hosts: Vec<IpAddr>,
    /// The hosts that are probed.
    pub destinations: Vec<IpAddr>,
    /// The first UDP source port; the others follow it.
    pub first_port: u16,
    /// Number of source ports, each of which is a path to every destination.
    pub ports: u16,
    /// The time between two probes of a path.
    pub interval: Duration,
    /// Maximum number of probes per second of all paths together; the time between two probes of a path is longer if
    /// this requires it.
    pub rate: u32,
    /// The time after which a probe without an answer is lost.
    pub timeout: Duration,
    /// The interval of reports.
    pub report: Duration,
}

/// The reason why a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbePlanError {
    /// No paths, or more than a controller keeps for a host.
    #[error("{destinations} destinations over {ports} source ports are {} paths, expected 1 to {MAX_PATHS}", destinations * ports)]
    Paths {
        /// Number of destinations.
        destinations: usize,
        /// Number of source ports.
        ports: usize,
    },
    /// Source ports beyond the last.
    #[error(
        "{ports} source ports from {first_port} on end beyond 65535, or contain the port {port} of answers"
    )]
    Ports {
        /// The first source port.
        first_port: u16,
        /// Number of source ports.
        ports: u16,
        /// The port at which hosts answer.
        port: u16,
    },
    /// A time out of its range.
    #[error("the {name} of probes is {span:?}, expected {min:?} to {max:?}")]
    Time {
        /// The name of the setting.
        name: &'static str,
        /// Its value.
        span: Duration,
        /// Its lowest value.
        min: Duration,
        /// Its highest value.
        max: Duration,
    },
    /// A rate out of its range.
    #[error("{0} probes per second, expected 1 to {MAX_RATE}")]
    Rate(u32),
}

/// Maximum number of paths, that of a report.
const MAX_PATHS: usize = 1024;
/// Maximum number of probes per second: 69 Mb/s on an Ethernet.
const MAX_RATE: u32 = 100_000;

impl ProbePlan {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns the first fault.
    pub fn check(&self) -> Result<(), ProbePlanError> {
        let Self { first_port, ports, port, rate, .. } = *self;
        let (destinations, count) = (self.destinations.len(), usize::from(ports));
        if !(1..=MAX_PATHS).contains(&destinations.saturating_mul(count)) {
            return Err(ProbePlanError::Paths { destinations, ports: count });
        }
        let last = first_port.checked_add(ports - 1);
        if first_port == 0 || last.is_none_or(|last| (first_port..=last).contains(&port)) {
            return Err(ProbePlanError::Ports { first_port, ports, port });
        }
        let millis = Duration::from_millis;
        for (name, span, min, max) in [
            ("interval", self.interval, millis(1), millis(1000)),
            ("timeout", self.timeout, millis(1), millis(1000)),
            ("report", self.report, millis(100), millis(10_000)),
        ] {
            if !(min..=max).contains(&span) {
                return Err(ProbePlanError::Time { name, span, min, max });
            }
        }
        if (1..=MAX_RATE).contains(&rate) { Ok(()) } else { Err(ProbePlanError::Rate(rate)) }
    }

    /// Returns the number of paths.
    pub fn paths(&self) -> usize {
        self.destinations.len() * usize::from(self.ports)
    }

    /// Returns the time between two probes of any paths. It bounds the cost: as many probes as it allows, and an answer
    /// to each.
    pub fn spacing(&self) -> Duration {
        let paths = u32::try_from(self.paths()).unwrap_or(u32::MAX).max(1);
        (self.interval / paths).max(Duration::from_secs(1) / self.rate.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ProbePlan {
        ProbePlan {
            source: [10, 1, 0, 2].into(),
            port: PROBE_PORT,
            hosts: vec![[10, 2, 0, 2].into()],
            destinations: vec![[10, 2, 0, 2].into(); 8],
            first_port: 61_000,
            ports: 4,
            interval: Duration::from_millis(20),
            rate: 2000,
            timeout: Duration::from_millis(100),
            report: Duration::from_millis(200),
        }
    }

    #[test]
    fn the_rate_bounds_the_probes_of_all_paths() {
        // 32 paths every 20 ms are 1,600 probes per second.
        assert_eq!((plan().check(), plan().spacing()), (Ok(()), Duration::from_micros(625)));
        let more = ProbePlan { ports: 64, ..plan() };
        assert_eq!(more.spacing(), Duration::from_micros(500));
    }

    #[test]
    fn a_plan_beyond_its_limits_is_refused_by_name() {
        let millis = Duration::from_millis;
        for (plan, words) in [
            (ProbePlan { destinations: vec![], ..plan() }, "0 paths"),
            (ProbePlan { ports: 0, ..plan() }, "0 paths"),
            (ProbePlan { ports: 129, ..plan() }, "1032 paths"),
            (ProbePlan { first_port: 65_533, ..plan() }, "beyond 65535"),
            (ProbePlan { port: 61_003, ..plan() }, "the port 61003 of answers"),
            (ProbePlan { interval: millis(0), ..plan() }, "interval of probes is 0ns"),
            (ProbePlan { timeout: millis(1001), ..plan() }, "timeout of probes is 1.001s"),
            (ProbePlan { report: millis(99), ..plan() }, "report of probes is 99ms"),
            (ProbePlan { rate: 0, ..plan() }, "0 probes per second"),
        ] {
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
