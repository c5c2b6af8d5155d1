//! Tests of the search on traffic with known periods.

use alloc::vec::Vec;

use weft_units::{Rng, Seed};

use super::*;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn rules() -> ReservationRules {
    ReservationRules::default()
}

/// Traffic from the start on. Each iteration computes, then sends 10 MB every 50 ms, of which each is seen as a number of
/// samples that varies by a fifth; `wait` returns the time of the next computation.
fn traffic(
    until: Duration,
    length: Duration,
    rng: &mut Rng,
    mut wait: impl FnMut(&mut Rng) -> Duration,
) -> Traffic {
    let (mut traffic, mut now) = (Traffic::default(), Instant::EPOCH);
    let until = Instant::EPOCH + until;
    while now < until {
        now += wait(rng);
        let end = now + length;
        while now < end.min(until) {
            traffic.record(now, 8_000_000 + rng.below(4_000_000), &rules());
            now += millis(50);
        }
        now = end;
    }
    traffic
}

fn rng(seed: u64) -> Rng {
    Seed(seed).child("traffic", 0).rng()
}

fn seconds(count: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(count)
}

#[test]
fn periods_of_iterations_are_found_to_a_part_of_a_bin() {
    for (wait, length) in [(6_000, 4_000), (8_300, 4_900), (1_700, 1_600), (12_000, 8_170)] {
        let (wait, length) = (millis(wait), millis(length));
        let traffic = traffic(Duration::from_secs(120), length, &mut rng(1), |_| wait);
        let found = traffic.find(seconds(120), &rules()).unwrap();
        let error = found.period.abs_diff(wait + length);
        assert!(error < millis(60), "{wait} + {length}: {found:?}");
        assert!(found.length.abs_diff(length) <= millis(500), "{wait} + {length}: {found:?}");
        // The start of the twentieth burst, some of them before and some after the end of the record.
        let twentieth = Instant::EPOCH + (wait + length) * 20 - length;
        let near = found.starts(twentieth - millis(900), twentieth + millis(900)).count();
        assert_eq!(near, 1, "{wait} + {length}: {found:?}");
    }
}

#[test]
fn iterations_that_vary_by_a_twentieth_are_periodic() {
    for seed in 0..20 {
        let wait = |rng: &mut Rng| millis(5_700 + rng.below(600));
        let traffic = traffic(Duration::from_secs(120), millis(4_000), &mut rng(seed), wait);
        let found = traffic.find(seconds(120), &rules());
        let found = found.unwrap_or_else(|| panic!("seed {seed}: not periodic"));
        assert!(found.period.abs_diff(millis(10_000)) < millis(400), "seed {seed}: {found:?}");
    }
}

#[test]
fn traffic_without_a_period_has_no_bursts() {
    let two_minutes = Duration::from_secs(120);
    for seed in 0..20 {
        // Steady traffic; then pauses of any length up to 20 s.
        let steady = traffic(two_minutes, two_minutes, &mut rng(seed), |_| Duration::ZERO);
        assert_eq!(steady.find(seconds(120), &rules()), None, "seed {seed}");
        let wait = |rng: &mut Rng| millis(200 + rng.below(20_000));
        let random = traffic(two_minutes, millis(2_000), &mut rng(seed), wait);
        assert_eq!(random.find(seconds(120), &rules()), None, "seed {seed}");
    }
    // Two iterations are not known to be periodic; nor is a job periodic that has ended.
    let wait = |_: &mut Rng| millis(6_000);
    let short = traffic(Duration::from_secs(25), millis(4_000), &mut rng(1), wait);
    assert_eq!(short.find(seconds(25), &rules()), None);
    let ended = traffic(Duration::from_secs(60), millis(4_000), &mut rng(1), wait);
    assert!(ended.find(seconds(60), &rules()).is_some());
    assert_eq!(ended.find(seconds(90), &rules()), None);
}

#[test]
fn a_changed_period_replaces_the_old_one() {
    let mut waits = 0;
    let wait = |_: &mut Rng| {
        waits += 1;
        millis(if waits <= 6 { 6_000 } else { 3_000 })
    };
    // Six iterations of 10 s, then some of 7 s.
    let traffic = traffic(Duration::from_secs(100), millis(4_000), &mut rng(1), wait);
    let found = traffic.find(seconds(100), &rules()).unwrap();
    assert!(found.period.abs_diff(millis(7_000)) < millis(200), "{found:?}");
}

#[test]
fn samples_far_apart_or_late_keep_the_bins_in_bounds() {
    let mut traffic = Traffic::default();
    for at in [5, 1 << 40, (1 << 40) + 1, 7, u64::MAX / 1_000_000] {
        traffic.record(Instant::EPOCH + millis(at), u64::MAX, &rules());
        assert!(traffic.bins.len() <= rules().bins, "{}", traffic.bins.len());
    }
    assert_eq!(traffic.find(Instant::EPOCH, &rules()), None);
    assert_eq!(traffic.find(Instant::from_nanos(u64::MAX), &rules()), None);
}

#[test]
fn predicted_bursts_cover_their_time_and_the_jitter_around_it() {
    let bursts = Bursts {
        period: millis(10_000),
        length: millis(4_000),
        start: seconds(100),
        jitter: millis(100),
    };
    let at = |ms: u64| Instant::EPOCH + millis(ms);
    // Also before the known start.
    for (ms, is_covered) in [
        (899_000, false),
        (899_950, true),
        (904_050, true),
        (904_150, false),
        (50_000, true),
        (55_000, false),
    ] {
        assert_eq!(bursts.covers(at(ms)), is_covered, "{ms}");
    }
    let starts: Vec<u64> =
        bursts.starts(seconds(95), seconds(120)).map(|it| it.as_nanos() / 1_000_000_000).collect();
    assert_eq!(starts, [100, 110, 120]);
    assert_eq!(bursts.active(seconds(90), seconds(100)), millis(4_000));
    assert_eq!(bursts.active(seconds(102), seconds(131)), millis(2_000 + 4_000 + 4_000 + 1_000));
    assert_eq!(bursts.active(seconds(105), seconds(109)), Duration::ZERO);
}
