//! The sessions in the daemon's log: their beginnings and ends, and how many updates of each neighbour were refused.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_events::{BgpSessionDown, BgpSessionUp, RoutesRefused, per_second};
use weft_evpn::{NeighbourView, State};
use weft_units::{Duration, Instant};

/// The interval in which refused updates are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// The last state of a neighbour that was logged.
#[derive(Debug, Default)]
struct Known {
    is_up: bool,
    /// The reason that the last session ended or could not be established.
    reason: Option<String>,
    /// Number of refused updates that were logged, and number of all.
    faulty: (u64, u64),
    /// The fault of the last refused update.
    fault: String,
}

/// The logged states of all neighbours.
#[derive(Debug)]
pub(super) struct SessionLog {
    known: BTreeMap<IpAddr, Known>,
    counted_at: Instant,
}

/// A session that began or ended.
#[derive(Debug, PartialEq, Eq)]
enum Changed {
    Up,
    Down(String),
}

impl Known {
    /// Takes the state of a neighbour. Returns the change of its session, if there is one.
    fn update(&mut self, view: &NeighbourView) -> Option<Changed> {
        let faulty = view.counters.updates_faulty;
        if faulty > self.faulty.1 {
            self.faulty.1 = faulty;
            self.fault = view.error.clone().unwrap_or_default();
        }
        let was_up = std::mem::replace(&mut self.is_up, view.state == State::Established);
        if self.is_up {
            self.reason = None;
            return (!was_up).then_some(Changed::Up);
        }
        // An attempt that fails as the one before it did is no news.
        let reason = view.error.clone().filter(|_| was_up || self.reason != view.error)?;
        self.reason = Some(reason.clone());
        Some(Changed::Down(reason))
    }
}

impl SessionLog {
    pub(super) fn new(now: Instant) -> Self {
        Self { known: BTreeMap::new(), counted_at: now }
    }

    /// Logs what has changed since the last call, refused updates once in ten seconds.
    pub(super) fn on_views(&mut self, views: &[NeighbourView], now: Instant) {
        self.known.retain(|address, _| views.iter().any(|view| view.address == *address));
        let seconds = now.since(self.counted_at).as_secs_f64();
        let counts = now.since(self.counted_at) >= COUNT_INTERVAL;
        for view in views {
            let (neighbour, asn) = (view.address, u64::from(view.asn));
            let known = self.known.entry(neighbour).or_default();
            match known.update(view) {
                Some(Changed::Up) => BgpSessionUp { neighbour, asn }.emit(),
                Some(Changed::Down(reason)) => BgpSessionDown { neighbour, asn, reason }.emit(),
                None => {}
            }
            let (logged, all) = known.faulty;
            if counts && all > logged {
                known.faulty.0 = all;
                let (cause, count) = (known.fault.clone(), all - logged);
                let per_second = per_second(count, seconds);
                RoutesRefused { neighbour, asn, cause, count, seconds, per_second }.emit();
            }
        }
        if counts {
            self.counted_at = now;
        }
    }

    /// Returns the time at which refused updates are to be logged, if there are some.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let has_any = self.known.values().any(|known| known.faulty.1 > known.faulty.0);
        has_any.then(|| self.counted_at + COUNT_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use weft_evpn::SessionCounters;

    use super::*;

    fn view(state: State, error: Option<&str>, updates_faulty: u64) -> NeighbourView {
        NeighbourView {
            address: IpAddr::from([10, 0, 0, 2]),
            asn: 65_000,
            state,
            since: Instant::EPOCH,
            routes_received: 0,
            routes_sent: 0,
            counters: SessionCounters { updates_faulty, ..SessionCounters::default() },
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn a_session_that_fails_again_for_the_same_reason_is_no_news() {
        let mut known = Known::default();
        let down = |reason: &str| Some(Changed::Down(reason.to_owned()));
        let mut update = |state, error| known.update(&view(state, error, 0));
        assert_eq!(update(State::Connect, None), None);
        assert_eq!(update(State::Idle, Some("refused")), down("refused"));
        assert_eq!(update(State::Connect, Some("refused")), None);
        assert_eq!(update(State::Idle, Some("refused")), None);
        assert_eq!(update(State::Idle, Some("no answer")), down("no answer"));
        assert_eq!(update(State::Established, None), Some(Changed::Up));
        assert_eq!(update(State::Established, Some("a fault")), None);
        assert_eq!(update(State::Idle, Some("hold timer")), down("hold timer"));
        assert_eq!(update(State::Established, None), Some(Changed::Up));
        assert_eq!(update(State::Idle, Some("hold timer")), down("hold timer"), "it was up");
    }

    #[test]
    fn refused_updates_are_due_ten_seconds_after_the_last_count_and_once() {
        let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
        let mut log = SessionLog::new(at(0));
        let faulty = |count| [view(State::Established, Some("a fault"), count)];
        log.on_views(&faulty(0), at(1));
        assert_eq!(log.next_due(), None);
        log.on_views(&faulty(3), at(2));
        assert_eq!(log.next_due(), Some(at(10)));
        log.on_views(&faulty(5), at(10));
        assert_eq!(log.next_due(), None);
        log.on_views(&faulty(6), at(11));
        assert_eq!(log.next_due(), Some(at(20)));
    }
}
