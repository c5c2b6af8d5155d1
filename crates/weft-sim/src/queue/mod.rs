//! Queue disciplines: the treatment of packets that wait at a switch port.
//!
//! The decision is made when the packet arrives, from the queue at that time: marking on enqueue, as DCTCP's reference
//! switches and htsim do. (ns-3's ConWeave fork marks on dequeue.) A discipline reads the queue as a time, so that its
//! thresholds are converted once for each rate and never for each packet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{BitRate, ByteCount, Rng};

use crate::pace::Pace;
use crate::time::SimSpan;

mod drop_tail;
mod ecn;
mod trim;

pub use trim::TrimConfig;

/// The decision about a packet that arrives at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The packet is queued.
    Accept,
    /// The packet is queued and marked.
    Mark,
    /// The packet is cut to its headers, which join a queue of their own.
    Trim,
    /// The packet is dropped: there is no room for it.
    Refuse,
}

/// A queue discipline: decides about packets that arrive at a port.
pub trait QueueDiscipline {
    /// Returns the decision about a packet that takes `packet` to send and has `backlog` before it.
    fn admit(&self, backlog: SimSpan, packet: SimSpan, rng: &mut Rng) -> Admission;

    /// Returns the queue length up to which every packet is accepted.
    fn accepts_up_to(&self) -> SimSpan;
}

/// Configuration of a switch port's queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// The discipline.
    pub kind: Kind,
    /// Maximum number of bytes that wait at one port, even if the shared buffer has room.
    pub limit: ByteCount,
    /// Depth below which no packet is marked, for a port of 100 Gb/s; for others in proportion.
    pub ecn_min: ByteCount,
    /// Depth above which every packet is marked, likewise. Equal to `ecn_min` it is DCTCP's step.
    pub ecn_max: ByteCount,
    /// Share of packets marked just below `ecn_max`; between the depths it grows linearly.
    pub ecn_probability: f64,
    /// The cutting of packets; used by `trim`.
    pub trim: TrimConfig,
}

impl Default for QueueConfig {
    /// Returns the thresholds of HPCC's and ConWeave's simulations: 100 KB, 400 KB and 0.2 at 100 Gb/s.
    fn default() -> Self {
        Self {
            kind: Kind::Ecn,
            limit: ByteCount::mib(64),
            ecn_min: ByteCount(100_000),
            ecn_max: ByteCount(400_000),
            ecn_probability: 0.2,
            trim: TrimConfig::default(),
        }
    }
}

/// Declares every discipline once: module, name, one-line description.
macro_rules! queue_disciplines {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        weft_units::registry! {
            /// The name of a queue discipline.
            #[non_exhaustive]
            pub enum Kind: "queue discipline" { $($kind => $name, $about;)+ }
        }

        impl Kind {
            /// Returns the discipline for ports of `rate`.
            pub fn build(self, config: &QueueConfig, rate: BitRate) -> Discipline {
                let thresholds = Thresholds::new(config, rate);
                match self { $(Self::$kind => Discipline::$kind($module::Discipline::new(thresholds))),+ }
            }
        }

        /// A discipline by value.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Discipline { $(#[doc = $about] $kind($module::Discipline)),+ }

        impl QueueDiscipline for Discipline {
            #[inline]
            fn admit(&self, backlog: SimSpan, packet: SimSpan, rng: &mut Rng) -> Admission {
                match self { $(Self::$kind(queue) => queue.admit(backlog, packet, rng)),+ }
            }

            fn accepts_up_to(&self) -> SimSpan {
                match self { $(Self::$kind(queue) => queue.accepts_up_to()),+ }
            }
        }
    };
}

queue_disciplines! {
    DropTail => drop_tail, "drop-tail", "first in, first out, until the queue is full";
    Ecn => ecn, "ecn", "drop-tail that marks between two depths (RED's slope, DCTCP's step)";
    Trim => trim, "trim", "marks likewise, and cuts packets beyond a third depth to their headers (Ultra Ethernet, NDP)";
}

/// A [`QueueConfig`] as times at one rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    limit: SimSpan,
    ecn_min: SimSpan,
    ecn_max: SimSpan,
    /// The probability in units of 2^-32.
    ecn_probability: u64,
    trim: SimSpan,
}

impl Thresholds {
    fn new(config: &QueueConfig, rate: BitRate) -> Self {
        // The thresholds are in proportion to the rate, so they are the same time at every rate: that at 100 Gb/s.
        let reference = Pace::new(BitRate::gbps(100).expect("not zero"));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^32")]
        let ecn_probability =
            (config.ecn_probability.clamp(0.0, 1.0) * f64::from(1u32 << 31) * 2.0) as u64;
        Self {
            limit: Pace::new(rate).span(config.limit.0),
            ecn_min: reference.span(config.ecn_min.0),
            ecn_max: reference.span(config.ecn_max.0),
            ecn_probability,
            trim: reference.span(config.trim.threshold.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn build(kind: Kind, config: &QueueConfig) -> (Discipline, Pace) {
        let rate = BitRate::gbps(400).unwrap();
        (kind.build(config, rate), Pace::new(rate))
    }

    #[test]
    fn every_discipline_accepts_into_an_empty_queue_and_refuses_past_its_limit() {
        let config = QueueConfig { limit: ByteCount(10_000), ..QueueConfig::default() };
        for &kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let (queue, pace) = build(kind, &config);
            let mut rng = Seed(1).rng();
            let packet = pace.span(1_000);
            assert_eq!(queue.admit(SimSpan::ZERO, packet, &mut rng), Admission::Accept);
            assert_ne!(queue.admit(pace.span(9_000), packet, &mut rng), Admission::Refuse);
            assert_eq!(queue.admit(pace.span(9_001), packet, &mut rng), Admission::Refuse);
        }
    }

    #[test]
    fn trimming_begins_beyond_its_threshold_in_proportion_to_the_rate() {
        let trim = TrimConfig { threshold: ByteCount(50_000), ..TrimConfig::default() };
        let (queue, pace) = build(Kind::Trim, &QueueConfig { trim, ..QueueConfig::default() });
        let admit = |waiting| queue.admit(pace.span(waiting), pace.span(1_000), &mut Seed(1).rng());
        // 50 KB at 100 Gb/s is 200 KB at 400.
        assert_eq!([admit(199_000), admit(199_001)], [Admission::Accept, Admission::Trim]);
    }

    #[test]
    fn marking_grows_from_none_to_the_slope_to_all_in_proportion_to_the_rate() {
        let (queue, pace) = build(Kind::Ecn, &QueueConfig::default());
        let share = |bytes| {
            let mut rng = Seed(2).rng();
            let mut admit = || queue.admit(pace.span(bytes), pace.span(1000), &mut rng);
            (0..10_000).map(|_| admit()).filter(|&got| got == Admission::Mark).count()
        };
        // At 400 Gb/s the thresholds are 400 KB and 1600 KB.
        assert_eq!(share(399_000), 0);
        assert!((900..1100).contains(&share(1_000_000)), "{}", share(1_000_000));
        assert_eq!(share(1_600_001), 10_000);
    }
}
