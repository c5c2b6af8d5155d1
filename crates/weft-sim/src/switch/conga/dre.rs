//! CONGA's discounting rate estimator: the utilisation of a link.

use weft_topo::LinkId;
use weft_topo::Topology;

use super::Config;
use crate::time::{SimSpan, SimTime};

/// An estimator for each link. Each sent packet adds its bytes to a register, which loses the share `alpha` every
/// `period`; so the register of a busy link converges to `rate * period / alpha`.
#[derive(Debug)]
pub(super) struct Estimators {
    period: SimSpan,
    /// The share of the register that remains after one period.
    remaining: f64,
    grades: f64,
    registers: Vec<Register>,
}

#[derive(Clone, Copy, Debug)]
struct Register {
    bytes: f64,
    /// Number of periods that had passed at the last update.
    periods: u64,
    /// The value of the register when its link is always busy.
    full: f64,
}

/// Number of periods without a byte after which a full register is zero in effect.
const MAX_IDLE_PERIODS: u64 = 1_000;

impl Estimators {
    pub(super) fn new(config: &Config, topology: &Topology) -> Self {
        let time_constant = config.dre_period.as_secs_f64() / config.dre_alpha;
        let register = |link| {
            #[expect(clippy::cast_precision_loss, reason = "rates are below 2^53")]
            let bytes_per_second = topology.link(link).rate.as_bps() as f64 / 8.0;
            Register { bytes: 0.0, periods: 0, full: bytes_per_second * time_constant }
        };
        Self {
            period: config.dre_period.into(),
            remaining: 1.0 - config.dre_alpha,
            grades: f64::from(1u32 << config.bits),
            registers: topology.link_ids().map(register).collect(),
        }
    }

    /// Counts a packet and returns the link's utilisation with it.
    pub(super) fn count(&mut self, link: LinkId, bytes: u16, now: SimTime) -> u8 {
        let register = self.at(link, now);
        register.bytes += f64::from(bytes);
        self.grade(link, now)
    }

    /// Returns a link's utilisation as an integer from 0 to the largest number of `bits` bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^8")]
    pub(super) fn grade(&mut self, link: LinkId, now: SimTime) -> u8 {
        let grades = self.grades;
        let register = self.at(link, now);
        (register.bytes / register.full * grades).min(grades - 1.0) as u8
    }

    /// Returns the register, discounted up to `now`.
    fn at(&mut self, link: LinkId, now: SimTime) -> &mut Register {
        let periods = now.as_picos() / self.period.as_picos();
        let register = &mut self.registers[link.index()];
        let passed = periods - register.periods;
        if passed > MAX_IDLE_PERIODS {
            register.bytes = 0.0;
        } else {
            (0..passed).for_each(|_| register.bytes *= self.remaining);
        }
        register.periods = periods;
        register
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;
    use weft_units::BitRate;

    use super::*;

    /// 100 Gb/s, 50 us and 0.2: a busy link holds 3,125,000 bytes, a grade is an eighth of it.
    fn estimators() -> Estimators {
        let rate = BitRate::gbps(100).unwrap();
        let shape = LeafSpine { host_rate: rate, uplink_rates: vec![rate], ..LeafSpine::default() };
        Estimators::new(&Config::default(), &shape.build().unwrap())
    }

    const LINK: LinkId = LinkId(7);

    #[test]
    fn a_register_loses_a_fifth_every_50_us() {
        let mut estimators = estimators();
        let at = |micros: u64| SimTime::from_picos(micros * 1_000_000);
        for _ in 0..100 {
            estimators.count(LINK, 10_000, at(10));
        }
        let bytes = |estimators: &mut Estimators, micros| estimators.at(LINK, at(micros)).bytes;
        assert!((bytes(&mut estimators, 49) - 1_000_000.0).abs() < 1.0);
        assert!((bytes(&mut estimators, 50) - 800_000.0).abs() < 1.0);
        assert!((bytes(&mut estimators, 160) - 512_000.0).abs() < 1.0);
        assert!(bytes(&mut estimators, 1_000_000) < 1.0);
    }

    #[test]
    fn grades_are_eighths_of_a_busy_link() {
        let mut estimators = estimators();
        let at = SimTime::from_picos(1);
        let mut grades = Vec::new();
        for _ in 0..80 {
            grades.push(estimators.count(LINK, 39_063, at));
        }
        assert_eq!((grades[8], grades[9], grades[19], grades[79]), (0, 1, 2, 7));
        for _ in 0..80 {
            grades.push(estimators.count(LINK, 39_063, at));
        }
        assert_eq!(grades.last(), Some(&7), "and no more than three bits");
        assert_eq!(estimators.grade(LinkId(6), at), 0);
    }

    #[test]
    fn grades_converge_to_the_share_of_time_a_link_is_busy() {
        for (share, want) in [(100, 7), (55, 4), (30, 2)] {
            let mut estimators = estimators();
            // 1,250 bytes every 100 ns are 100 Gb/s.
            let packets = (0..50_000u64).filter(|packet| packet % 100 < share);
            packets.for_each(|packet| {
                estimators.count(LINK, 1_250, SimTime::from_picos(packet * 100_000));
            });
            assert_eq!(
                estimators.grade(LINK, SimTime::from_picos(4_999_999_999)),
                want,
                "{share} %"
            );
        }
    }
}
