//! The congestion trigger (X-RDMA's Mock, section VI.C): a channel with a stream leaves RDMA while its round trips are long.
//!
//! Two thresholds and a time between them keep it from moving back and forth. RDMA is congested when the smoothed round trip
//! has been above `congested_rtt` for `congested_for`, and healthy again when it has been below half of that for four times as
//! long. Meanwhile the channel measures it with empty WRITEs. The end that left RDMA returns to it; the other follows.

use weft_units::{Duration, Instant};

use super::{Carrier, Channel};
use crate::Config;
use crate::context::{Shared, WorkId};
use crate::event::CloseReason;
use crate::verbs::{Verbs, Work};

/// The measured round trips of a channel on RDMA.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    /// The smoothed round trip, with a weight of 1/8 for a new one (RFC 6298, section 2).
    smoothed: Option<Duration>,
    /// The time since which the round trips call for the other carrier.
    since: Option<Instant>,
    /// `true` while the channel is on its stream because RDMA is congested.
    pub(crate) left_rdma: bool,
    /// The time at which the last probe was posted; `None` while none is in flight.
    probed_at: Option<Instant>,
    /// The time of the next probe.
    next_probe: Option<Instant>,
}

/// Factor by which RDMA must be healthy for longer than it was congested.
const CAUTION: u64 = 4;
/// Number of probes in the shorter time.
const PROBES: u64 = 8;

impl Congestion {
    /// Returns the smoothed round trip.
    pub(crate) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Adds a round trip.
    fn on_round_trip(&mut self, took: Duration) {
        self.smoothed = Some(self.smoothed.map_or(took, |before| before * 7 / 8 + took / 8));
    }

    /// Returns the carrier to change to; `None` for no change.
    fn evaluate(&mut self, now: Instant, config: &Config) -> Option<Carrier> {
        let smoothed = self.smoothed?;
        let (limit, time) = (config.congested_rtt, config.congested_for);
        let (calls, time) = match (self.left_rdma, limit == Duration::ZERO) {
            // The trigger was switched off.
            (true, true) => (true, Duration::ZERO),
            (false, true) => (false, Duration::ZERO),
            (true, false) => (smoothed < limit / 2, time * CAUTION),
            (false, false) => (smoothed > limit, time),
        };
        if !calls {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) < time {
            return None;
        }
        self.since = None;
        self.left_rdma = !self.left_rdma;
        Some(if self.left_rdma { Carrier::Stream } else { Carrier::Rdma })
    }

    /// Forgets what was measured: the carrier was chosen by other means, or the queue pair is new.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Channel {
    /// Handles a measured round trip, of which the owner's late poll was at most `late`.
    pub(crate) fn on_round_trip(
        &mut self,
        now: Instant,
        took: Duration,
        late: Duration,
        config: &Config,
    ) {
        self.congestion.on_round_trip(took.saturating_sub(late));
        if self.stream.attached
            && !self.stream.rdma_lost
            && let Some(to) = self.congestion.evaluate(now, config)
        {
            self.stream.wanted = to;
        }
    }

    /// Returns the time of the next measurement of RDMA while the channel is on its stream.
    pub(crate) fn next_measurement(&self) -> Option<Instant> {
        let idle = self.congestion.probed_at.is_none();
        self.congestion.next_probe.filter(|_| idle && self.measures_rdma())
    }

    fn measures_rdma(&self) -> bool {
        let on_stream = self.stream.sending == Carrier::Stream && !self.stream.rdma_lost;
        self.congestion.left_rdma && on_stream
    }

    /// Probes RDMA if a measurement is due.
    pub(crate) fn measure_if_due<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if !self.measures_rdma() {
            return Ok(());
        }
        let interval = shared.config.congested_for / PROBES;
        let due = *self.congestion.next_probe.get_or_insert(now + interval);
        if due > now || self.congestion.probed_at.is_some() {
            return Ok(());
        }
        self.congestion.next_probe = Some(now + interval);
        self.congestion.probed_at = Some(now);
        let id = shared.work_id(WorkId::Probe);
        let posted = shared.verbs.post_send(now, self.qp, id, Work::Probe, true);
        posted.map_err(CloseReason::Device)
    }

    /// Handles the end of a probe that measured RDMA. Returns `false` if it was another probe.
    pub(crate) fn measured(&mut self, now: Instant, late: Duration, config: &Config) -> bool {
        let Some(at) = self.congestion.probed_at.take() else { return false };
        self.on_round_trip(now, now.since(at), late, config);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn config() -> Config {
        Config { congested_rtt: MS * 2, congested_for: MS * 10, ..Config::default() }
    }

    /// Adds a round trip of `took` every millisecond for `count` ms. Returns the changes, with the milliseconds until then.
    fn feed(
        state: &mut Congestion,
        from: &mut u64,
        took: Duration,
        count: u64,
    ) -> Option<(Carrier, u64)> {
        let begin = *from;
        (0..count).find_map(|_| {
            *from += 1;
            state.on_round_trip(took);
            let change = state.evaluate(Instant::from_nanos(*from * 1_000_000), &config());
            change.map(|to| (to, *from - begin))
        })
    }

    #[test]
    fn a_channel_leaves_rdma_late_and_returns_later() {
        let (mut state, mut now) = (Congestion::default(), 0);
        assert_eq!(feed(&mut state, &mut now, MS / 10, 100), None);
        let left = feed(&mut state, &mut now, MS * 8, 100).unwrap();
        assert!(left.0 == Carrier::Stream && (11..20).contains(&left.1), "{left:?}");
        assert_eq!(feed(&mut state, &mut now, MS * 3 / 2, 500), None, "between the thresholds");
        let back = feed(&mut state, &mut now, MS / 10, 500).unwrap();
        assert!(back.0 == Carrier::Rdma && (41..60).contains(&back.1), "{back:?}");
        assert_eq!(feed(&mut state, &mut now, MS * 3 / 2, 500), None, "between the thresholds");
    }

    #[test]
    fn short_congestion_and_a_trigger_that_is_off_change_nothing() {
        let (mut state, mut now) = (Congestion::default(), 0);
        for _ in 0..50 {
            assert_eq!(feed(&mut state, &mut now, MS / 10, 30), None);
            assert_eq!(feed(&mut state, &mut now, MS * 8, 3), None);
        }
        let off = Config { congested_rtt: Duration::ZERO, ..config() };
        for at in 0..1000 {
            state.on_round_trip(MS * 100);
            assert_eq!(state.evaluate(Instant::from_nanos(at * 1_000_000), &off), None);
        }
    }
}
