//! The decomposition of a call's duration (X-RDMA, section VI.A, method I), from T2 - T1 - Toff.

use weft_units::{Duration, Instant};
use weft_wire::TraceExtension;

/// The components of one traced call's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decomposition {
    /// The request's transfer time: T2 - T1 - Toff.
    pub request: Duration,
    /// The time at the peer: T3 - T2.
    pub peer: Duration,
    /// The response's transfer time: T4 - T3 + Toff.
    pub response: Duration,
    /// The peer's clock minus this end's, in ns.
    pub offset: i64,
}

/// The offset of the peer's clock, from calls' timestamps (RFC 5905, section 8). It is taken from the call with the least
/// error among the last 16. Half of a call's transfer time bounds its error, because queueing delays differ between
/// directions; while a sample ages, the error grows by the clocks' drift.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClockOffset {
    samples: [Option<Sample>; Self::MAX_SAMPLES],
    next: usize,
}

/// An estimate of the peer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockEstimate {
    /// The peer's clock minus this end's, in ns.
    pub offset: i64,
    /// The age of the measurement.
    pub age: Duration,
    /// The greatest error: half of the measured call's transfer time, and the clocks' drift since.
    pub error: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    /// The offset of the peer's clock, ns.
    offset: i64,
    /// The transfer time in both directions, ns.
    transit: u64,
}

impl Sample {
    /// Drift of two clocks against each other, in millionths: twice the tolerance of RFC 5905 (section 7.2, PHI).
    const DRIFT: u64 = 30;
    /// The age at which a sample is not used any more: the clocks may be 3 ms apart by then.
    const MAX_AGE: Duration = Duration::from_secs(100);

    fn error(&self, now: Instant) -> u64 {
        let drift = now.since(self.at).as_nanos() / 1_000_000 * Self::DRIFT;
        (self.transit / 2).saturating_add(drift)
    }
}

impl ClockOffset {
    const MAX_SAMPLES: usize = 16;

    /// Decomposes a call that was sent at `sent` and whose response arrived at `now`.
    pub(crate) fn decompose(
        &mut self,
        sent: Instant,
        answer: &TraceExtension,
        now: Instant,
    ) -> Decomposition {
        let (t1, t2) = (i128::from(sent.as_nanos()), i128::from(answer.received_at));
        let (t3, t4) = (i128::from(answer.sent_at), i128::from(now.as_nanos()));
        // A peer's timestamps may have any value.
        let peer = (t3 - t2).clamp(0, t4 - t1);
        let transit = clamp(t4 - t1 - peer);
        let offset = (t2 - t1 + t3 - t4) / 2;
        let offset = offset.clamp(i64::MIN.into(), i64::MAX.into());
        let offset = i64::try_from(offset).expect("clamped");
        self.samples[self.next] = Some(Sample { at: now, offset, transit });
        self.next = (self.next + 1) % Self::MAX_SAMPLES;
        let offset = self.estimate(now).map_or(offset, |best| best.offset);
        let request = clamp(t2 - t1 - i128::from(offset)).min(transit);
        Decomposition {
            request: Duration::from_nanos(request),
            peer: Duration::from_nanos(clamp(peer)),
            response: Duration::from_nanos(transit - request),
            offset,
        }
    }

    /// Returns the estimate with the least error; `None` if no call was traced recently.
    pub(crate) fn estimate(&self, now: Instant) -> Option<ClockEstimate> {
        let recent = |sample: &&Sample| now.since(sample.at) <= Sample::MAX_AGE;
        let recent = self.samples.iter().flatten().filter(recent);
        recent.min_by_key(|sample| sample.error(now)).map(|sample| ClockEstimate {
            offset: sample.offset,
            age: now.since(sample.at),
            error: Duration::from_nanos(sample.error(now)),
        })
    }
}

fn clamp(nanos: i128) -> u64 {
    u64::try_from(nanos.clamp(0, u64::MAX.into())).expect("clamped")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(
        clock: &mut ClockOffset,
        t1: u64,
        out: u64,
        peer: u64,
        back: u64,
        ahead: i64,
    ) -> Decomposition {
        let t2 = t1 + out;
        let by_peer = |time: u64| time.checked_add_signed(ahead).unwrap();
        let answer =
            TraceExtension { id: 1, received_at: by_peer(t2), sent_at: by_peer(t2 + peer) };
        clock.decompose(Instant::from_nanos(t1), &answer, Instant::from_nanos(t2 + peer + back))
    }

    #[test]
    fn a_call_is_decomposed_across_clocks_that_differ() {
        for ahead in [-5_000_000, 0, 7_000_000_000] {
            let mut clock = ClockOffset::default();
            let time = call(&mut clock, 10_000_000_000, 2000, 10_000, 2000, ahead);
            let nanos = Duration::from_nanos;
            let want = Decomposition {
                request: nanos(2000),
                peer: nanos(10_000),
                response: nanos(2000),
                offset: ahead,
            };
            assert_eq!(time, want);
            // A request that waits in a queue does not change the offset, and has its true transfer time.
            let time = call(&mut clock, 10_001_000_000, 90_000, 10_000, 2000, ahead);
            assert_eq!(time, Decomposition { request: nanos(90_000), ..want });
        }
    }

    #[test]
    fn an_old_sample_gives_way_to_a_newer_one_and_is_not_used_in_the_end() {
        let second = 1_000_000_000;
        let mut clock = ClockOffset::default();
        call(&mut clock, 10 * second, 2000, 1000, 2000, 5_000);
        let at = |seconds: u64| Instant::from_nanos(seconds * second);
        let first = clock.estimate(at(11)).unwrap();
        assert_eq!(first.offset, 5_000);
        // 2 us of transfer, and 30 us of drift in a second.
        assert!((31_900..32_100).contains(&first.error.as_nanos()), "{first:?}");
        // Its transfer took ten times as long, but the clocks have drifted for 20 s before.
        call(&mut clock, 30 * second, 20_000, 1000, 20_000, 300_000);
        let second_one = clock.estimate(at(30) + Duration::from_micros(41)).unwrap();
        assert_eq!((second_one.offset, second_one.age), (300_000, Duration::ZERO));
        assert!(clock.estimate(at(129)).is_some());
        assert_eq!(clock.estimate(at(131)), None, "too old");
    }

    #[test]
    fn invalid_timestamps_give_times_that_add_up() {
        let mut clock = ClockOffset::default();
        for (received_at, sent_at) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            let answer = TraceExtension { id: 1, received_at, sent_at };
            let (sent, now) = (Instant::from_nanos(5_000), Instant::from_nanos(9_000));
            let time = clock.decompose(sent, &answer, now);
            assert_eq!((time.request + time.peer + time.response).as_nanos(), 4_000);
        }
    }
}
