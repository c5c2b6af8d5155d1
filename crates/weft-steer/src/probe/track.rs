//! The probes of one path: those in flight, and the results since the last report.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_route::RoundTrip;

/// A probe in flight, or behind one.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    sent: Instant,
    round_trip: Option<Duration>,
}

/// The time beyond the timeout for which a host that answers no probe at all may be busy with other work. After it the
/// probes are lost.
const MAX_SILENCE: Duration = Duration::from_secs(1);

/// The probes of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// The number of the first probe of `in_flight`. Numbers wrap around.
    first: u32,
    in_flight: VecDeque<InFlight>,
}

/// The results of a path since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) sent: u32,
    pub(super) lost: u32,
    pub(super) round_trip: Option<RoundTrip>,
}

impl Track {
    /// Returns the number of the next probe.
    pub(super) fn next(&self) -> u32 {
        let count = u32::try_from(self.in_flight.len()).expect("the rate bounds it");
        self.first.wrapping_add(count)
    }

    /// Counts the next probe as sent.
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.in_flight.push_back(InFlight { sent: now, round_trip: None });
    }

    /// Counts an answer that arrived at `arrived`, to a probe that waited for `held` at its destination. A duplicate, or
    /// one of a probe that is not in flight, is ignored.
    pub(super) fn on_answer(&mut self, sequence: u32, arrived: Instant, held: Duration) {
        let place = usize::try_from(sequence.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        if let Some(probe) = self.in_flight.get_mut(place) {
            let on_the_way = || arrived.saturating_duration_since(probe.sent).saturating_sub(held);
            probe.round_trip.get_or_insert_with(on_the_way);
        }
    }

    /// Returns the results of all probes sent up to `timeout` ago, and forgets these probes; none if there are none. A
    /// probe without an answer waits for a sign that its destination served probes when the timeout passed, at most
    /// [`MAX_SILENCE`]: `served_at` is the latest time at which one that was answered arrived there.
    pub(super) fn take(
        &mut self,
        timeout: Duration,
        served_at: Option<Instant>,
        now: Instant,
    ) -> Option<Results> {
        let is_due = |it: &InFlight| {
            let age = now.saturating_duration_since(it.sent);
            let is_served = served_at.is_some_and(|served_at| served_at >= it.sent + timeout);
            age >= timeout + MAX_SILENCE || age >= timeout && (is_served || it.round_trip.is_some())
        };
        let due = self.in_flight.iter().take_while(|it| is_due(it)).count();
        let sent = u32::try_from(due).expect("the rate bounds it");
        self.first = self.first.wrapping_add(sent);
        // An answer after the timeout came too late, also if this is called later.
        let answered = self.in_flight.drain(..due).filter_map(|it| it.round_trip);
        let mut round_trips: Vec<u64> = answered
            .filter(|it| *it < timeout)
            .map(|it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX))
            .collect();
        round_trips.sort_unstable();
        let lost = sent - u32::try_from(round_trips.len()).expect("at most those sent");
        (sent > 0).then(|| Results { sent, lost, round_trip: summary(&round_trips) })
    }
}

/// Returns the lowest, the median and the 99th percentile of times in order; none if there are none.
fn summary(sorted: &[u64]) -> Option<RoundTrip> {
    let at = |percent: usize| sorted[(sorted.len() - 1) * percent / 100];
    let is_some = !sorted.is_empty();
    is_some.then(|| RoundTrip { min_ns: at(0), median_ns: at(50), p99_ns: at(99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_lost_after_the_timeout_and_late_and_doubled_answers_do_not_count() {
        let (began, millis) = (Instant::now(), Duration::from_millis);
        let mut track = Track { first: u32::MAX - 1, ..Track::default() };
        let numbers: Vec<u32> = (0..5)
            .map(|probe| {
                let number = track.next();
                track.on_sent(began + millis(10 * probe));
                number
            })
            .collect();
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1, 2], "numbers wrap around");
        let prompt = Duration::ZERO;
        track.on_answer(u32::MAX - 1, began + millis(1), prompt);
        track.on_answer(u32::MAX - 1, began + millis(90), prompt);
        track.on_answer(0, began + millis(23), millis(2));
        // The second probe is answered too late, and nobody sent the last number.
        track.on_answer(u32::MAX, began + millis(111), prompt);
        track.on_answer(77, began + millis(30), prompt);
        let round_trip = RoundTrip { min_ns: 1_000_000, median_ns: 1_000_000, p99_ns: 1_000_000 };
        let want = Results { sent: 3, lost: 1, round_trip: Some(round_trip) };
        let served_at = Some(began + millis(140));
        assert_eq!(track.take(millis(100), served_at, began + millis(121)), Some(want));
        assert_eq!(track.take(millis(100), served_at, began + millis(121)), None);
        let want = Results { sent: 2, lost: 2, round_trip: None };
        assert_eq!(track.take(millis(100), served_at, began + millis(500)), Some(want));
        assert_eq!(track.next(), 3);
    }

    #[test]
    fn probes_to_a_host_that_serves_none_wait_until_it_does_or_was_silent_for_a_second() {
        let (began, millis) = (Instant::now(), Duration::from_millis);
        let sent = || {
            let mut track = Track::default();
            [0, 20].iter().for_each(|&at| track.on_sent(began + millis(at)));
            track
        };
        let timeout = millis(100);
        let take = |track: &mut Track, served: Option<u64>, now: u64| {
            track.take(timeout, served.map(|at| began + millis(at)), began + millis(now))
        };
        let lost = |sent| Some(Results { sent, lost: sent, round_trip: None });
        let mut track = sent();
        assert_eq!(take(&mut track, Some(60), 900), None);
        assert_eq!(take(&mut track, Some(60), 1_100), lost(1));
        assert_eq!(take(&mut track, Some(60), 1_120), lost(1));
        let mut track = sent();
        assert_eq!(take(&mut track, Some(100), 130), lost(1));
        // It was busy for 250 ms: the network was not.
        track.on_answer(1, began + millis(272), millis(250));
        let round_trip = RoundTrip { min_ns: 2_000_000, median_ns: 2_000_000, p99_ns: 2_000_000 };
        let answered = Results { sent: 1, lost: 0, round_trip: Some(round_trip) };
        assert_eq!(take(&mut track, Some(100), 300), Some(answered));
    }

    #[test]
    fn a_summary_has_the_lowest_the_median_and_the_99th_percentile() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!(summary(&times), Some(RoundTrip { min_ns: 1, median_ns: 100, p99_ns: 198 }));
    }
}
