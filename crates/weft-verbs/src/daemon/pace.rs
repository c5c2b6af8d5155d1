//! The limit of messages a second of a device: a virtual schedule (the generic cell rate algorithm, ITU-T I.371, annex A).

use weft_units::{Duration, Instant};

/// The time by which a device may be ahead of its schedule; the messages of this time may leave at once.
const BURST: Duration = Duration::from_millis(10);

/// A device's schedule.
#[derive(Debug)]
pub(super) struct Pace {
    /// The time of the next message if each kept its distance.
    next: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { next: Instant::EPOCH }
    }
}

impl Pace {
    /// Returns the time from which the next message may leave, if that is not now.
    pub(super) fn waits_until(&self, now: Instant) -> Option<Instant> {
        let ahead = self.next.since(now);
        (ahead > BURST).then(|| now + (ahead - BURST))
    }

    /// Counts a message.
    pub(super) fn charge(&mut self, now: Instant, per_second: u32) {
        let distance = Duration::from_nanos(1_000_000_000 / u64::from(per_second.max(1)));
        self.next = self.next.max(now) + distance;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_leave_in_bursts_of_ten_milliseconds_at_the_rate() {
        for per_second in [1, 3, 100, 1_000, 1_000_000] {
            let (mut pace, start) = (Pace::default(), Instant::EPOCH + Duration::from_secs(5));
            let (mut now, mut sent) = (start, 0_u64);
            while now.since(start) < Duration::from_secs(4) {
                match pace.waits_until(now) {
                    Some(due) => {
                        assert!(due > now);
                        now = due;
                    }
                    None => {
                        pace.charge(now, per_second);
                        sent += 1;
                    }
                }
            }
            let expected = 4 * u64::from(per_second);
            let burst = u64::from(per_second) / 100 + 2;
            assert!((expected..=expected + burst).contains(&sent), "{sent} at {per_second}/s");
        }
    }

    #[test]
    fn a_device_that_rested_is_not_owed_the_time() {
        let (mut pace, mut now) = (Pace::default(), Instant::EPOCH + Duration::from_secs(1));
        pace.charge(now, 1_000);
        now += Duration::from_secs(3_600);
        let at_once = (0..1_000).take_while(|_| {
            let may = pace.waits_until(now).is_none();
            pace.charge(now, 1_000);
            may
        });
        assert!((10..=12).contains(&at_once.count()));
    }
}
