//! Rate limits of a port: token buckets over bytes and over frames, one pair for each direction.
//!
//! A bucket is exact: it counts tokens in billionths of a bit (or of a frame), so that the tokens of each nanosecond
//! are an integer, nothing is rounded, and hours add up to the last frame. A limiter passes or drops a frame at once;
//! it queues none. BIFROST reports a frame dropped here to its sender as a congestion mark, so that the sender slows
//! down (section 7.1).

use core::num::NonZeroU64;

use thiserror::Error;
use weft_units::{BitRate, ByteCount, Duration, Instant};

/// The limit of a port in one direction. The default is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct Limit {
    /// Bits per second of Ethernet frames without preamble and check sequence.
    pub rate: Option<BitRate>,
    /// Bytes that may pass at once after a pause, at most 1 GB. By default the rate's bytes of
    /// 10 ms, and at least 128 KiB, two of the largest super-frames.
    pub burst: Option<ByteCount>,
    /// Frames per second; a super-frame counts as the frames it is cut into.
    pub frames_per_second: Option<NonZeroU64>,
    /// Frames that may pass at once after a pause, at most a billion. By default the rate's frames of 10 ms,
    /// and at least 128.
    pub frame_burst: Option<NonZeroU64>,
}

/// The reason that a limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LimitError {
    /// A burst without a rate, which limits nothing.
    #[error("{burst} without {rate}: a burst is how far a rate may be exceeded")]
    BurstWithoutRate {
        /// The key that is present.
        burst: &'static str,
        /// The key that is missing.
        rate: &'static str,
    },
    /// A burst of zero, which nothing passes, or one too large for the bucket.
    #[error("{burst} of {got}, expected 1 to {}", Limit::MAX_BURST)]
    Burst {
        /// The key of the burst.
        burst: &'static str,
        /// The value.
        got: u64,
    },
}

impl Limit {
    /// The largest burst, bytes or frames.
    pub const MAX_BURST: u64 = 1_000_000_000;

    /// Checks the limit.
    ///
    /// # Errors
    /// The first mistake, with its key in a configuration.
    pub fn check(&self) -> Result<(), LimitError> {
        let burst = self.burst.map(|burst| burst.0);
        let frames = self.frame_burst.map(NonZeroU64::get);
        for (name, burst, rate_name, rate) in [
            ("burst", burst, "rate", self.rate.is_some()),
            ("frame-burst", frames, "frames-per-second", self.frames_per_second.is_some()),
        ] {
            let Some(got) = burst else { continue };
            if !rate {
                return Err(LimitError::BurstWithoutRate { burst: name, rate: rate_name });
            }
            if !(1..=Self::MAX_BURST).contains(&got) {
                return Err(LimitError::Burst { burst: name, got });
            }
        }
        Ok(())
    }
}

/// The state of a limit: its token buckets and counters.
#[derive(Clone, Debug)]
pub struct Limiter {
    limit: Limit,
    bits: Option<Bucket>,
    frames: Option<Bucket>,
    dropped: Dropped,
}

/// The frames that a limit did not let pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Number of frames; a super-frame counts as the frames that it is cut into.
    pub frames: u64,
    /// Their bytes.
    pub bytes: ByteCount,
}

impl Limiter {
    /// Creates a limiter with full buckets.
    ///
    /// # Errors
    /// The errors of [`Limit::check`].
    pub fn new(limit: Limit, now: Instant) -> Result<Self, LimitError> {
        limit.check()?;
        let burst = |given: Option<u64>, rate: u64, min: u64| {
            given.unwrap_or_else(|| (rate / 100).clamp(min, Limit::MAX_BURST))
        };
        let bits = limit.rate.map(|rate| {
            let given = limit.burst.map(|burst| burst.0);
            let bytes = burst(given, rate.as_bps() / 8, 128 << 10);
            Bucket::new(rate.as_bps(), 8 * bytes, now)
        });
        let frames = limit.frames_per_second.map(|rate| {
            let given = limit.frame_burst.map(NonZeroU64::get);
            Bucket::new(rate.get(), burst(given, rate.get(), 128), now)
        });
        Ok(Self { limit, bits, frames, dropped: Dropped::default() })
    }

    /// Returns `true` if a frame of `len` bytes passes, which counts as `frames` frames if it is a super-frame;
    /// otherwise counts it as dropped. A frame longer than the burst passes when the bucket is full, and the bucket's
    /// level then becomes negative.
    pub fn admit(&mut self, len: ByteCount, frames: u64, now: Instant) -> bool {
        let bits = len.0.saturating_mul(8);
        let passes = self.bits.as_mut().is_none_or(|bucket| bucket.holds(bits, now))
            && self.frames.as_mut().is_none_or(|bucket| bucket.holds(frames, now));
        if passes {
            // Tokens are taken only if both buckets have enough: a frame that one bucket refuses costs nothing.
            self.bits.iter_mut().for_each(|bucket| bucket.take(bits));
            self.frames.iter_mut().for_each(|bucket| bucket.take(frames));
        } else {
            self.dropped.frames += frames;
            self.dropped.bytes += len;
        }
        passes
    }

    /// Replaces the limit. The part of the burst that the tenant has used stays used.
    ///
    /// # Errors
    /// The errors of [`Limit::check`]; the old limit then stays.
    pub fn set(&mut self, limit: Limit, now: Instant) -> Result<(), LimitError> {
        let mut new = Self::new(limit, now)?;
        for (new, old) in [(&mut new.bits, &mut self.bits), (&mut new.frames, &mut self.frames)] {
            if let (Some(new), Some(old)) = (new, old) {
                old.fill(now);
                new.level -= old.capacity - old.level;
                new.level = new.level.max(-new.capacity);
            }
        }
        *self = Self { dropped: self.dropped, ..new };
        Ok(())
    }

    /// Returns the limit.
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Returns the frames dropped so far.
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }
}

/// A token bucket in billionths of a token: a rate of one per second gives one billionth per nanosecond.
#[derive(Clone, Debug)]
struct Bucket {
    /// Tokens per second.
    rate: u64,
    capacity: i128,
    /// Negative after a frame larger than the capacity has passed.
    level: i128,
    /// The time up to which tokens were added.
    filled: Instant,
}

const BILLION: i128 = 1_000_000_000;

impl Bucket {
    fn new(rate: u64, burst: u64, now: Instant) -> Self {
        let capacity = i128::from(burst) * BILLION;
        Self { rate, capacity, level: capacity, filled: now }
    }

    /// Adds the tokens that have accrued until `now`.
    fn fill(&mut self, now: Instant) {
        let elapsed: Duration = now.since(self.filled);
        let gained = i128::from(elapsed.as_nanos()) * i128::from(self.rate);
        self.level = (self.level + gained).min(self.capacity);
        self.filled = self.filled.max(now);
    }

    /// Returns `true` if there are `tokens` tokens, or the bucket is full.
    fn holds(&mut self, tokens: u64, now: Instant) -> bool {
        self.fill(now);
        self.level >= (i128::from(tokens) * BILLION).min(self.capacity)
    }

    fn take(&mut self, tokens: u64) {
        self.level -= i128::from(tokens) * BILLION;
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn limiter(rate: &str, burst: u64) -> Limiter {
        let rate = Some(rate.parse().unwrap());
        let limit = Limit { rate, burst: Some(ByteCount(burst)), ..Limit::default() };
        Limiter::new(limit, at(0)).unwrap()
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate() {
        // 8 Mbps is a byte per microsecond.
        let mut limiter = limiter("8Mbps", 3000);
        let mut admit = |nanos| limiter.admit(ByteCount(1500), 1, at(nanos));
        assert!(admit(0) && admit(0) && !admit(0));
        assert!(!admit(1_499_999) && admit(1_500_000) && !admit(1_500_000));
        assert!(admit(3_000_000));
        // After a long pause no more than the burst passes.
        assert!(admit(1_000_000_000) && admit(1_000_000_000) && !admit(1_000_000_000));
        assert_eq!(limiter.dropped(), Dropped { frames: 4, bytes: ByteCount(6000) });
    }

    #[test]
    fn ten_hours_of_odd_steps_add_up_to_the_byte() {
        // A rate without divisors: 999,999,937 bits per second, a prime, with a frame every 333,337 ns.
        let mut limiter = limiter("999999937bps", 200_000);
        let (mut passed, step, len) = (0_u64, 333_337, 60_000);
        let steps = 10 * 3600 * 1_000_000_000_u64 / step;
        for index in 0..=steps {
            passed += u64::from(limiter.admit(ByteCount(len), 1, at(index * step)));
        }
        // A step gives less than a frame takes, so the bucket is never full after the first steps and
        // never holds a frame after a step: the passed frames use all tokens.
        let billionths = u128::from(steps * step) * 999_999_937 + 8 * 200_000 * 1_000_000_000;
        assert_eq!(u128::from(passed), billionths / (8 * u128::from(len) * 1_000_000_000));
        assert_eq!(passed, 74_999_998);
    }

    #[test]
    fn a_frame_larger_than_the_burst_passes_when_full_and_is_charged() {
        let mut limiter = limiter("8Mbps", 1000);
        assert!(limiter.admit(ByteCount(64_000), 1, at(0)));
        // The level is -63,000 bytes and the frame needs one more: a byte per microsecond.
        assert!(!limiter.admit(ByteCount(1), 1, at(63_000_999)));
        assert!(limiter.admit(ByteCount(1), 1, at(63_001_000)));
        // The super-frame passes only when the bucket is full.
        assert!(!limiter.admit(ByteCount(64_000), 1, at(64_000_999)));
        assert!(limiter.admit(ByteCount(64_000), 1, at(64_001_000)));
    }

    #[test]
    fn frames_are_limited_besides_and_a_refusal_costs_nothing() {
        let limit = Limit {
            rate: Some("8Mbps".parse().unwrap()),
            burst: Some(ByteCount(10_000)),
            frames_per_second: NonZeroU64::new(1000),
            frame_burst: NonZeroU64::new(2),
        };
        let mut limiter = Limiter::new(limit, at(0)).unwrap();
        assert!(limiter.admit(ByteCount(100), 2, at(0)));
        assert!((0..100).all(|_| !limiter.admit(ByteCount(1000), 1, at(999_999))));
        // The buckets have 9,900 bytes and one frame.
        assert!(limiter.admit(ByteCount(9900), 1, at(1_000_000)));
        assert_eq!(limiter.dropped(), Dropped { frames: 100, bytes: ByteCount(100_000) });
    }

    #[test]
    fn time_that_goes_back_adds_no_tokens() {
        let mut limiter = limiter("8Mbps", 1000);
        assert!(limiter.admit(ByteCount(1000), 1, at(5_000_000)));
        assert!(!limiter.admit(ByteCount(1), 1, at(0)));
        assert!(!limiter.admit(ByteCount(2), 1, at(5_001_000)));
        assert!(limiter.admit(ByteCount(1), 1, at(5_001_000)));
    }

    #[test]
    fn a_replaced_limit_does_not_refill_the_burst() {
        let mut limiter = limiter("8Mbps", 3000);
        assert!(limiter.admit(ByteCount(3000), 1, at(0)));
        let wider = Limit { burst: Some(ByteCount(4000)), ..limiter.limit() };
        limiter.set(wider, at(0)).unwrap();
        assert!(!limiter.admit(ByteCount(1001), 1, at(0)));
        assert!(limiter.admit(ByteCount(1000), 1, at(0)));
        let wrong = Limit { burst: Some(ByteCount(0)), ..wider };
        assert_eq!(limiter.set(wrong, at(0)), Err(LimitError::Burst { burst: "burst", got: 0 }));
        assert_eq!(limiter.limit(), wider);
        limiter.set(Limit::default(), at(0)).unwrap();
        assert!((0..1000).all(|_| limiter.admit(ByteCount(65_000), 44, at(0))));
    }

    #[test]
    fn a_burst_needs_a_rate_and_bounds() {
        let check =
            |text: &str, limit: Limit| assert_eq!(limit.check().unwrap_err().to_string(), text);
        let lonely = Limit { burst: Some(ByteCount(1)), ..Limit::default() };
        check("burst without rate: a burst is how far a rate may be exceeded", lonely);
        let rate = NonZeroU64::new(1);
        let large = NonZeroU64::new(1_000_000_001);
        let large = Limit { frames_per_second: rate, frame_burst: large, ..Limit::default() };
        check("frame-burst of 1000000001, expected 1 to 1000000000", large);
    }

    /// Checks that no window has more than the burst and the rate's bytes.
    #[test]
    fn no_time_window_has_more_bytes_than_burst_and_rate_allow() {
        for index in 0..100 {
            let mut rng = Seed(3).child("limit", index).rng();
            let rate = 1 + rng.below(10_000_000_000);
            let burst = 2000 + rng.below(1 << 20);
            let limit = Limit {
                rate: BitRate::bps(rate),
                burst: Some(ByteCount(burst)),
                ..Limit::default()
            };
            let mut limiter = Limiter::new(limit, at(0)).unwrap();
            let (mut now, mut passed) = (0, Vec::new());
            for _ in 0..300 {
                now += rng.below(100_000);
                let len = 60 + rng.below(1441);
                if limiter.admit(ByteCount(len), 1, at(now)) {
                    passed.push((now, len));
                }
            }
            for (start, &(from, _)) in passed.iter().enumerate() {
                let mut bytes = 0;
                for &(to, len) in &passed[start..] {
                    bytes += len;
                    let gained = u128::from(to - from) * u128::from(rate) / 8_000_000_000;
                    assert!(u128::from(bytes) <= u128::from(burst) + gained + 1, "seed {index}");
                }
            }
        }
    }
}
