//! DCQCN (Zhu et al., SIGCOMM 2015): a rate that starts at the port's, is cut by an estimate of congestion when
//! notifications arrive, and increases again on a timer.
//!
//! A congestion notification (CNP) is an ACK that reports a mark. This is the NIC's variant in the ns-3 models of HPCC,
//! ConWeave and Hopper: alpha is updated at fixed intervals, a cut is made at most once in `decrease_interval`, and no
//! byte counter raises the rate.
//!
//! Those models update alpha with a timer every microsecond; here it is computed when needed: between notifications
//! alpha only decays, `alpha * (1 - g)^n` over `n` intervals. So only a cut and an increase need a timer.
//!
//! The differences from the models: a lost packet counts as a notification, as a packet out of order does there; a
//! timeout also sets alpha to one, so that a silent network is left with a small rate.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{BitRate, Duration, Instant};

use super::{AckSample, Congestion, Scope, bandwidth_delay_product};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// DCQCN's parameters. The defaults are those of the ns-3 models that papers compare with (HPCC, ConWeave, Hopper), at
/// 100 Gb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct DcqcnConfig {
    /// 1/g: the number of updates over which alpha averages.
    pub g_inverse: u16,
    /// The interval between updates of alpha.
    pub alpha_interval: Duration,
    /// The interval between cuts of the rate; a cut needs a congestion notification since the last one.
    pub decrease_interval: Duration,
    /// The time from a cut, and from each increase, to the next increase of the rate.
    pub increase_interval: Duration,
    /// The number of increases after a cut that only go halfway back to the rate before it.
    pub fast_recovery: u8,
    /// R_AI: the amount that the first increase after those adds to the target.
    pub additive_increase: BitRate,
    /// R_HAI: the amount that each later increase adds.
    pub hyper_increase: BitRate,
    /// The minimum rate; cuts stop there.
    pub min_rate: BitRate,
    /// `true` limits the bytes in flight to a bandwidth-delay product, as with IRN. With `false` only the rate and the
    /// send window hold packets back: RoCE over a lossless fabric.
    pub bdp_cap: bool,
    /// The scope of a rate. `connection`: the queue pair keeps its rate when its packets take another path. `path`:
    /// each path is a queue pair of its own, as in Hopper, which starts at the port's rate; while it is unused its rate
    /// increases by its timers (`docs/design/hopper.md`).
    pub scope: Scope,
}

impl Default for DcqcnConfig {
    fn default() -> Self {
        let mbps = |mega: u64| BitRate::bps(mega * 1_000_000).expect("not zero");
        Self {
            g_inverse: 256,
            alpha_interval: Duration::from_micros(1),
            decrease_interval: Duration::from_micros(4),
            increase_interval: Duration::from_micros(300),
            fast_recovery: 1,
            additive_increase: mbps(40),
            hyper_increase: mbps(100),
            min_rate: mbps(100),
            bdp_cap: true,
            scope: Scope::Connection,
        }
    }
}

impl Settings for DcqcnConfig {
    fn ranges(&self) -> Vec<Range> {
        let interval =
            |name, span: Duration| (name, span.as_nanos(), 100, 1_000_000_000, "100ns to 1s");
        vec![
            ("dcqcn.g_inverse", self.g_inverse.into(), 1, 65_535, "at least 1"),
            interval("dcqcn.alpha_interval", self.alpha_interval),
            interval("dcqcn.decrease_interval", self.decrease_interval),
            interval("dcqcn.increase_interval", self.increase_interval),
        ]
    }
    fn scope(&self) -> Option<Scope> {
        Some(self.scope)
    }
}

/// DCQCN's reaction point. Rates are bits per second.
#[derive(Debug)]
pub struct Controller {
    config: Box<DcqcnConfig>,
    rate: f64,
    target: f64,
    line_rate: f64,
    /// The estimate of congestion, as of the latest multiple of its interval since `began`.
    alpha: f64,
    alpha_at: Instant,
    /// `true` if a notification arrived since `alpha_at`.
    notified: bool,
    /// The time of the first notification, from which intervals count; `FAR_FUTURE` before it.
    began: Instant,
    /// The time of the next cut; `FAR_FUTURE` if no notification arrived.
    cut_at: Instant,
    /// The time of the next increase; `FAR_FUTURE` at the port's rate.
    increase_at: Instant,
    /// Number of increases since the cut.
    increases: u8,
    window: u32,
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let line_rate = bps(config.line_rate);
        let window = if config.dcqcn.bdp_cap { bandwidth_delay_product(config) } else { u32::MAX };
        Self {
            config: Box::new(config.dcqcn),
            rate: line_rate,
            target: line_rate,
            line_rate,
            alpha: 1.0,
            alpha_at: Instant::EPOCH,
            notified: false,
            began: Instant::FAR_FUTURE,
            cut_at: Instant::FAR_FUTURE,
            increase_at: Instant::FAR_FUTURE,
            increases: 0,
            window,
        }
    }

    /// Processes a congestion notification.
    fn notify(&mut self, now: Instant) {
        if self.began == Instant::FAR_FUTURE {
            (self.began, self.alpha_at) = (now, now);
        } else {
            self.update_alpha(now);
            self.notified = true;
        }
        if self.cut_at == Instant::FAR_FUTURE {
            let interval = self.config.decrease_interval;
            let passed = intervals(now.since(self.began), interval);
            self.cut_at = self.began + interval * (passed + 1);
        }
    }

    /// Updates alpha to `now`: once with the notification, then once for each interval without one.
    fn update_alpha(&mut self, now: Instant) {
        let interval = self.config.alpha_interval;
        let passed = intervals(now.since(self.alpha_at), interval);
        if passed == 0 {
            return;
        }
        self.alpha_at += interval * passed;
        let g = 1.0 / f64::from(self.config.g_inverse);
        self.alpha *= libm::pow(1.0 - g, float(passed));
        if core::mem::take(&mut self.notified) {
            self.alpha += g * libm::pow(1.0 - g, float(passed - 1));
        }
    }

    fn cut(&mut self, now: Instant) {
        self.update_alpha(now);
        if self.increases > 0 {
            self.target = self.rate;
        }
        let least = bps(self.config.min_rate).min(self.line_rate);
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(least);
        self.increases = 0;
        self.cut_at = Instant::FAR_FUTURE;
        self.increase_at = now + self.config.increase_interval;
    }

    fn increase(&mut self) {
        let DcqcnConfig { fast_recovery, additive_increase, hyper_increase, .. } = *self.config;
        let step = match self.increases.cmp(&fast_recovery) {
            core::cmp::Ordering::Less => 0.0,
            core::cmp::Ordering::Equal => bps(additive_increase),
            core::cmp::Ordering::Greater => bps(hyper_increase),
        };
        self.increases = self.increases.saturating_add(1);
        self.target = (self.target + step).min(self.line_rate);
        self.rate = f64::midpoint(self.rate, self.target);
        self.increase_at += self.config.increase_interval;
        // Halving the distance never reaches the port's rate; a difference below one bit per second is ignored.
        if self.line_rate - self.rate < 1.0 {
            self.rate = self.line_rate;
            self.increase_at = Instant::FAR_FUTURE;
        }
    }
}

impl Congestion for Controller {
    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        if ack.marked_packets > 0 {
            self.notify(ack.now);
        }
    }

    fn on_loss(&mut self, now: Instant) {
        self.notify(now);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.notify(now);
        self.alpha = 1.0;
    }

    fn window(&self) -> u32 {
        self.window
    }

    /// Returns `None` at the port's rate, because the port itself paces then. Without a window it returns the port's
    /// rate, because nothing else would limit the packets that queue at the port.
    fn rate(&self) -> Option<BitRate> {
        let limits = self.rate < self.line_rate || self.window == u32::MAX;
        if limits { BitRate::bps(whole(self.rate)) } else { None }
    }

    fn timer(&self) -> Option<Instant> {
        let next = self.cut_at.min(self.increase_at);
        (next != Instant::FAR_FUTURE).then_some(next)
    }

    fn on_timer(&mut self, now: Instant) {
        if self.cut_at <= now {
            self.cut(now);
        }
        while self.increase_at <= now {
            self.increase();
        }
    }
}

/// Returns the number of whole intervals in a span.
fn intervals(span: Duration, interval: Duration) -> u64 {
    span.as_nanos() / interval.as_nanos()
}

#[expect(clippy::cast_precision_loss, reason = "a count of intervals, or a rate below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

fn bps(rate: BitRate) -> f64 {
    float(rate.as_bps())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between the least rate and the port's"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 100e9;

    /// Creates a controller for the reference fabric: 100 Gb/s, 8.32 us.
    fn controller() -> Controller {
        Controller::new(&TransportConfig {
            mtu: 1000,
            line_rate: BitRate::gbps(100).expect("not zero"),
            base_rtt: Duration::from_nanos(8320),
            ..TransportConfig::stellar()
        })
    }

    fn at(micros: u64) -> Instant {
        Instant::EPOCH + Duration::from_micros(1_000 + micros)
    }

    fn mark(controller: &mut Controller, now: Instant) {
        let ack = AckSample::of_packets(1, 1000);
        controller.on_ack(&AckSample { now, marked_packets: 1, ..ack });
    }

    /// Serves every timer up to `until`.
    fn run(controller: &mut Controller, until: Instant) {
        while let Some(next) = controller.timer().filter(|&next| next <= until) {
            controller.on_timer(next);
        }
    }

    #[track_caller]
    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() <= expected * 1e-9, "{got}, expected {expected}");
    }

    #[test]
    fn it_starts_at_the_ports_rate_under_a_bandwidth_delay_product() {
        let controller = controller();
        assert_eq!((controller.rate(), controller.window()), (None, 104_000));
        assert_eq!(controller.timer(), None);
    }

    #[test]
    fn without_the_cap_the_rate_alone_holds_back() {
        let config = TransportConfig::stellar();
        let dcqcn = DcqcnConfig { bdp_cap: false, ..config.dcqcn };
        let controller = Controller::new(&TransportConfig { dcqcn, ..config });
        assert_eq!((controller.rate(), controller.window()), (BitRate::gbps(200), u32::MAX));
    }

    /// With g = 1/256: one notification, then 4 updates of 1 us with none: alpha = (255/256)^4.
    #[test]
    fn the_first_cut_takes_half_of_alpha_after_four_microseconds() {
        let mut controller = controller();
        mark(&mut controller, at(0));
        assert_eq!(controller.timer(), Some(at(4)));
        run(&mut controller, at(4));
        let alpha = (255.0f64 / 256.0).powi(4);
        close(controller.alpha, alpha);
        close(controller.rate, LINE * (1.0 - alpha / 2.0));
        close(controller.target, LINE);
    }

    /// alpha = (1 - g) alpha + g F, where F is one for an interval with a notification and zero otherwise (g = 1/256).
    #[test]
    fn alpha_follows_its_recurrence_step_by_step() {
        let mut controller = controller();
        let pattern =
            [true, false, false, true, true, false, true, false, false, false, true, true];
        let (mut alpha, mut came) = (1.0, false);
        mark(&mut controller, at(0));
        for (micros, &marked) in (1..).zip(&pattern) {
            alpha = alpha * 255.0 / 256.0 + f64::from(u8::from(came)) / 256.0;
            came = marked;
            controller.update_alpha(at(micros));
            close(controller.alpha, alpha);
            if marked {
                mark(&mut controller, at(micros));
            }
        }
        // The next update covers 300 intervals: one with the notification, the others without.
        let expected = (alpha * 255.0 / 256.0 + 1.0 / 256.0) * (255.0f64 / 256.0).powi(299);
        controller.update_alpha(at(12 + 300));
        close(controller.alpha, expected);
    }

    /// A notification every microsecond: alpha stays as near to one as the updates without notification left it, and
    /// each cut takes about half.
    #[test]
    fn notifications_within_four_microseconds_cut_once() {
        let mut controller = controller();
        (0..4).for_each(|micros| mark(&mut controller, at(micros)));
        run(&mut controller, at(7));
        let once = controller.rate;
        assert!(once > 0.5 * LINE && once < 0.51 * LINE, "{once}");
        mark(&mut controller, at(7));
        assert_eq!(controller.timer(), Some(at(8)));
        run(&mut controller, at(8));
        assert!(controller.rate < 0.27 * LINE);
        close(controller.target, LINE);
    }

    /// Every 300 us: halfway back, then R_AI = 40 Mb/s, then R_HAI = 100 Mb/s more each time.
    #[test]
    fn the_rate_climbs_back_in_three_stages() {
        let mut controller = controller();
        // Two cuts with an increase between them leave the target below the port's rate.
        mark(&mut controller, at(0));
        run(&mut controller, at(304));
        mark(&mut controller, at(310));
        run(&mut controller, at(312));
        let (mut rate, mut target) = (controller.rate, controller.target);
        assert!(target < 0.76 * LINE, "{target}");
        for (step, more) in [(1, 0.0), (2, 40e6), (3, 100e6), (4, 100e6)] {
            run(&mut controller, at(312 + 300 * step));
            target += more;
            rate = f64::midpoint(rate, target);
            close(controller.target, target);
            close(controller.rate, rate);
        }
    }

    #[test]
    fn back_at_the_ports_rate_it_needs_no_timer() {
        let mut controller = controller();
        mark(&mut controller, at(0));
        run(&mut controller, at(100_000));
        assert_eq!((controller.timer(), controller.rate()), (None, None));
    }

    /// Each path is a queue pair (Hopper, section 3.3), or one queue pair serves all paths.
    #[test]
    fn a_path_first_used_starts_at_the_ports_rate_where_rates_are_of_paths() {
        use super::super::{Controllers, Scope};
        use crate::path::{PathId, Paths};

        for scope in [Scope::Path, Scope::Connection] {
            let dcqcn = DcqcnConfig { scope, ..DcqcnConfig::default() };
            let config = TransportConfig {
                congestion: crate::congestion::Kind::Dcqcn,
                line_rate: BitRate::gbps(100).expect("not zero"),
                paths: 2,
                dcqcn,
                ..TransportConfig::stellar()
            };
            let mut paths = Paths::new(2, config.mtu, at(0));
            let mut controllers = Controllers::new(&config, 0);
            controllers.open_windows(&mut paths);
            controllers.on_loss(PathId(0), at(0), &mut paths);
            controllers.on_timer(at(4), &mut paths);
            let cut = controllers.of(PathId(0)).rate();
            assert!(cut.is_some_and(|rate| rate.as_bps() < 51_000_000_000), "{cut:?}");
            let fresh = controllers.of(PathId(1)).rate();
            assert_eq!(fresh, if scope == Scope::Path { None } else { cut });
        }
    }

    #[test]
    fn the_rate_is_never_below_the_least() {
        let mut controller = controller();
        for micros in 0..1_000 {
            mark(&mut controller, at(micros));
            run(&mut controller, at(micros));
        }
        assert_eq!(controller.rate(), BitRate::bps(100_000_000));
    }
}
