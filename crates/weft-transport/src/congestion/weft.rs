//! One window for all paths, reduced by signals that all paths share: congestion marks, and the minimum delay of a
//! round trip. A loss without either is a bad path, which the path policy must leave. `docs/design/congestion.md` gives
//! the reasons and the measurements.
//!
//! Once a round trip, over the ACKs of all paths:
//! * *Marks* reduce it by half of the smoothed fraction of marked packets (RFC 8257).
//! * *Standing delay* reduces it by [`DELAY_GAIN`] of the part beyond the target, which allows
//!   [`queue_target`](TransportConfig::queue_target) for a queue. The delay that counts is the minimum over a round
//!   trip and at least [`FILTER`] samples: a queue that every packet on every path meets. A single slow path, and a
//!   host whose processor was elsewhere, raise the mean and not the minimum (LEDBAT filters so, RFC 6817, section
//!   3.4.2; Swift targets a delay).
//! * *Losses* count as marks only if more than [`MAX_HARMLESS_LOSS`] of all packets are lost: no link stays in service
//!   with such a loss, but a policer or a short queue causes it.
//! * Otherwise the window grows by a packet, and by twice as many each time as long as no sample shows half of the
//!   target.
//!
//! **Beside a sender that fills the queue** (TCP's CUBIC, RFC 9438) a delay target would leave no bandwidth. A
//! connection's own queue shrinks with its window; a queue of twice the target that stays while the window is cut
//! [`FOREIGN_AFTER_CUTS`] times in a row is foreign. Then the window follows losses, as CUBIC's does, until the queue
//! is gone, and after [`RETEST`] the next loss tries the delay again.

use weft_units::{Duration, Instant};

use super::marked_fraction::{MarkedFraction, ONE, scale};
use super::silence::Silence;
use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;

/// The first and largest window, as a multiple of the bandwidth-delay product: 3/2. At the target delay it fills the
/// line; more would only wait in queues.
const MAX_WINDOW: (u32, u32) = (3, 2);

/// Minimum number of delay samples for a conclusion; RFC 6817 names four.
const FILTER: u8 = 4;

/// The decrease for each unit of relative excess delay, in units of 1/[`ONE`]: 0.8, Swift's `beta`.
const DELAY_GAIN: u64 = (ONE as u64) * 4 / 5;

/// The maximum decrease in one round trip: half.
const MAX_DECREASE: u32 = ONE / 2;

/// The smoothed fraction of lost packets up to which losses are attributed to paths: 1/16.
const MAX_HARMLESS_LOSS: u32 = ONE / 16;

/// The initial window that RFC 6928 allows: ten packets.
const INITIAL_PACKETS: u32 = 10;

/// Minimum number of packets from which a fraction of lost ones is computed.
const MIN_SENT: u64 = 32;

/// The fraction of one round trip's packets beyond which a queue has overflowed: 1/4.
const OVERFLOW: u32 = ONE / 4;

/// Number of consecutive cuts without an effect on the queue after which the queue is foreign.
const FOREIGN_AFTER_CUTS: u8 = 4;

/// The smallest cut that counts for that: an eighth.
const MIN_PROVING_CUT: u32 = ONE / 8;

/// The time during which the window follows losses before a loss makes it try the delay again.
const RETEST: Duration = Duration::from_secs(1);

/// The decrease for a loss beside a sender that fills the queue: 0.3 (RFC 9438, section 4.6).
const LOSS_DECREASE: u32 = ONE / 10 * 3;

/// A window of at least one packet, initially and at most [`MAX_WINDOW`] bandwidth-delay products.
#[derive(Debug)]
pub struct Controller {
    marks: MarkedFraction,
    losses: LostFraction,
    window: u32,
    packet: u32,
    max_window: u32,
    /// Bytes that the next clean round trip adds.
    increase: u32,
    /// The round trip of the empty network, and the queueing delay to allow beyond it, nanoseconds. Both are as
    /// configured: all senders of a queue then have the same target, whatever they measured first.
    base_ns: u32,
    queue_ns: u32,
    /// The minimum delay since the last conclusion, nanoseconds, and the number of samples, at most [`FILTER`].
    standing_ns: u32,
    samples: u8,
    /// The maximum of those delays, nanoseconds.
    peak_ns: u32,
    /// `true` if the window limited sending at some time in this round trip.
    used: bool,
    /// Number of packets lost and acknowledged since the last conclusion.
    lost: u32,
    acked: u32,
    competition: Competition,
    silence: Silence,
}

/// The origin of the queue.
#[derive(Clone, Copy, Debug)]
enum Competition {
    /// This sender's queue, as far as known.
    None,
    /// A suspected foreign queue: it stayed after this many consecutive cuts.
    Suspected {
        cuts: u8,
        /// A standing delay above this one is unaffected by the latest cut, nanoseconds.
        unmoved_ns: u32,
        /// The window before the first of the cuts.
        window: u32,
    },
    /// A foreign queue, since this time.
    Present { since: Instant },
}

/// The smoothed fraction of lost packets, with the gain of [`MarkedFraction`].
#[derive(Clone, Copy, Debug, Default)]
struct LostFraction {
    smoothed: u32,
    lost: u32,
    acked: u32,
}

impl LostFraction {
    /// Ends a round trip; returns the decrease for losses. Fewer than [`MIN_SENT`] packets give no fraction: one lost
    /// of two is not a loss rate of a half.
    fn end_round(&mut self) -> u32 {
        let sent = u64::from(self.lost) + u64::from(self.acked);
        if sent < MIN_SENT {
            return 0;
        }
        let fraction = u64::from(self.lost) * u64::from(ONE) / sent;
        let fraction = u32::try_from(fraction).expect("at most ONE");
        self.smoothed = self.smoothed - (self.smoothed >> 4) + (fraction >> 4);
        (self.lost, self.acked) = (0, 0);
        self.decrease(fraction)
    }

    /// Returns the decrease for losses: half of their smoothed fraction, or of this round trip's if a queue overflowed.
    fn decrease(&self, latest: u32) -> u32 {
        let fraction = if latest > OVERFLOW { latest } else { self.smoothed };
        if fraction > MAX_HARMLESS_LOSS { fraction / 2 } else { 0 }
    }
}

/// The delay of a round trip, compared with the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelayState {
    /// There are too few samples.
    Unknown,
    /// All samples are below half of the queueing delay up to the target.
    Empty,
    /// Some samples are below the target.
    Short,
    /// All samples are above the target; the minimum by this part of itself, in units of 1/[`ONE`].
    Standing(u32),
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let packet = u32::from(config.mtu);
        let product = bandwidth_delay_product(config);
        let max_window = product.saturating_mul(MAX_WINDOW.0) / MAX_WINDOW.1;
        Self {
            // Alpha starts at zero, not at DCTCP's one: the delay target reacts to a congested start.
            marks: MarkedFraction::new(0, max_window),
            losses: LostFraction::default(),
            window: max_window,
            packet,
            max_window,
            increase: packet,
            base_ns: nanos(config.base_rtt),
            queue_ns: nanos(config.queue_target.max(config.base_rtt / 2)),
            standing_ns: u32::MAX,
            samples: 0,
            peak_ns: 0,
            used: false,
            lost: 0,
            acked: 0,
            competition: Competition::None,
            silence: Silence::new(),
        }
    }

    fn sample_delay(&mut self, delay: Duration) {
        let delay = nanos(delay).max(1);
        self.standing_ns = self.standing_ns.min(delay);
        self.peak_ns = self.peak_ns.max(delay);
        self.samples = (self.samples + 1).min(FILTER);
    }

    /// Compares the samples with the target, if there are enough; without any the network counts as empty.
    fn classify_delay(&mut self) -> DelayState {
        let delay = u64::from(self.standing_ns);
        let (empty, target) = (u64::from(self.base_ns), u64::from(self.base_ns + self.queue_ns));
        match self.samples {
            0 => return DelayState::Empty,
            1..FILTER => return DelayState::Unknown,
            _ => {}
        }
        if delay > target {
            let excess = (delay - target) * u64::from(ONE) / delay;
            DelayState::Standing(u32::try_from(excess).expect("a part of one"))
        } else if u64::from(self.peak_ns) <= empty.midpoint(target) {
            DelayState::Empty
        } else {
            DelayState::Short
        }
    }

    fn end_round(&mut self, marked: bool, ack: &AckSample) {
        let losses = self.losses.end_round();
        let state = self.classify_delay();
        let delayed = match state {
            DelayState::Standing(excess) => self.delay_decrease(excess, ack),
            DelayState::Empty | DelayState::Short => {
                self.competition = Competition::None;
                0
            }
            DelayState::Unknown => 0,
        };
        let marks = if marked { self.marks.alpha() / 2 } else { 0 };
        let decrease = marks.max(losses).max(delayed);
        if decrease > 0 {
            self.reduce(decrease, ack);
        } else if self.used && !marked && state != DelayState::Unknown {
            self.grow(state);
        }
        if state != DelayState::Unknown {
            (self.standing_ns, self.samples, self.peak_ns) = (u32::MAX, 0, 0);
            (self.lost, self.acked) = (0, 0);
        }
        self.used = false;
    }

    /// Returns the decrease for a standing queue, depending on its origin.
    fn delay_decrease(&mut self, excess: u32, ack: &AckSample) -> u32 {
        let cut = u64::from(excess) * DELAY_GAIN / u64::from(ONE);
        let cut = u32::try_from(cut).expect("a part of one").min(MAX_DECREASE);
        // A queue of senders that react to delay shrinks with their cuts; a foreign queue stays.
        let unmoved_ns = self.standing_ns - scale(self.standing_ns, cut / 2);
        let used = self.used_window(ack);
        let suspected = |cuts, window| Competition::Suspected { cuts, unmoved_ns, window };
        match self.competition {
            Competition::None => self.competition = suspected(0, used),
            // A small cut proves little; while packets are lost, retransmissions fill the queue. A queue that overflows
            // stays full until all have cut, so cuts before that prove nothing.
            Competition::Suspected { cuts, unmoved_ns, window } => {
                let stayed = self.standing_ns > unmoved_ns && !self.overflows();
                let proof = cut >= MIN_PROVING_CUT && self.is_deep() && self.lost == 0;
                let cuts = if stayed { cuts + u8::from(proof) } else { 0 };
                if cuts >= FOREIGN_AFTER_CUTS {
                    self.competition = Competition::Present { since: ack.now };
                    self.window = self.window.max(window);
                    return 0;
                }
                let window = if stayed { window } else { used };
                self.competition = suspected(cuts, window);
            }
            Competition::Present { since } => {
                if self.lost == 0 {
                    return 0;
                }
                if ack.now.since(since) >= RETEST {
                    self.competition = Competition::None;
                }
                return LOSS_DECREASE;
            }
        }
        cut
    }

    /// Returns `true` if the queue is more than twice the target: senders that all cut keep it near the target.
    fn is_deep(&self) -> bool {
        u64::from(self.standing_ns) > u64::from(self.base_ns) + 2 * u64::from(self.queue_ns)
    }

    /// Returns `true` if more packets were lost since the last conclusion than bad paths explain.
    fn overflows(&self) -> bool {
        let sent = u64::from(self.lost) + u64::from(self.acked);
        u64::from(self.lost) * u64::from(ONE) > sent * u64::from(MAX_HARMLESS_LOSS)
    }

    fn grow(&mut self, state: DelayState) {
        if matches!(self.competition, Competition::Present { .. }) {
            // RFC 5681. CUBIC's 0.53 of a packet would be fair, except for the cost of trying the delay.
            self.window = self.window.saturating_add(self.packet).min(self.max_window);
            return;
        }
        self.window = self.window.saturating_add(self.increase).min(self.max_window);
        let faster = self.increase.saturating_mul(2).min(self.window / 4).max(self.packet);
        self.increase = if state == DelayState::Empty { faster } else { self.packet };
    }

    /// Returns the used part of the window: the rest delays no packet. The bytes in flight are sampled at their
    /// minimum, after an ACK; and a sender with little to send keeps the initial window of RFC 6928.
    fn used_window(&self, ack: &AckSample) -> u32 {
        let flight = ack.in_flight.saturating_add(ack.acked_bytes);
        let min_window = INITIAL_PACKETS * self.packet;
        self.window.min(flight.saturating_mul(2).max(min_window))
    }

    fn reduce(&mut self, fraction: u32, ack: &AckSample) {
        let used = self.used_window(ack);
        self.window = (used - scale(used, fraction)).max(self.packet);
        self.increase = self.packet;
    }
}

/// Returns the span in nanoseconds, at most `u32::MAX`: 4.29 s exceeds any delay of interest.
fn nanos(span: Duration) -> u32 {
    u32::try_from(span.as_nanos()).unwrap_or(u32::MAX)
}

impl Congestion for Controller {
    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        self.silence.on_ack(ack.now);
        // A lack of room for one more packet limits as well: small packets fill little of a small window.
        let flight = ack.in_flight.saturating_add(ack.acked_bytes);
        self.used |= ack.used(self.window) || flight.saturating_add(self.packet) > self.window;
        self.losses.acked = self.losses.acked.saturating_add(ack.acked_packets);
        self.acked = self.acked.saturating_add(ack.acked_packets);
        if let Some(delay) = ack.fabric_delay.or(ack.rtt) {
            self.sample_delay(delay);
        }
        if let Some(marked) = self.marks.observe(ack) {
            self.end_round(marked, ack);
        }
    }

    fn on_loss(&mut self, _now: Instant) {
        self.losses.lost = self.losses.lost.saturating_add(1);
        self.lost = self.lost.saturating_add(1);
    }

    fn on_timeout(&mut self, now: Instant) {
        // At the target a round trip includes the queueing delay.
        let round_trip = Duration::from_nanos(u64::from(self.base_ns) + u64::from(self.queue_ns));
        if self.silence.on_timeout(now, round_trip) {
            self.window = (self.window / 2).max(self.packet);
            self.increase = self.packet;
            self.marks.end_with_next_ack();
        } else {
            self.on_loss(now);
        }
    }

    fn window(&self) -> u32 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use weft_units::BitRate;

    use super::*;

    const BASE: Duration = Duration::from_micros(10);
    const PACKET: u32 = 1000;

    /// Creates a controller with packets of 1000 bytes and a bandwidth-delay product of 100 of them.
    fn controller() -> Controller {
        Controller::new(&TransportConfig {
            mtu: 1000,
            line_rate: BitRate::gbps(80).expect("not zero"),
            base_rtt: BASE,
            ..TransportConfig::stellar()
        })
    }

    /// Runs a round trip with a full window, in four ACKs: `marked` packets of each are marked.
    fn round(controller: &mut Controller, now: Instant, marked: u32, delays: [Duration; 4]) {
        let packets = (controller.window() / PACKET).div_ceil(4).max(1);
        for (number, delay) in (1..).zip(delays) {
            if number == delays.len() {
                controller.marks.end_with_next_ack();
            }
            controller.on_ack(&AckSample {
                now,
                marked_packets: marked.min(packets),
                rtt: Some(delay),
                in_flight: controller.window(),
                ..AckSample::of_packets(packets, PACKET)
            });
        }
    }

    fn clean(controller: &mut Controller) {
        round(controller, Instant::EPOCH, 0, [BASE; 4]);
    }

    /// Returns the delay of a bottleneck of this many bytes in [`BASE`], shared with a queue that another sender keeps.
    fn delay_of(flight: u32, capacity: u32, foreign: Duration) -> Duration {
        let queued = u64::from(flight.saturating_sub(capacity));
        BASE + foreign + Duration::from_nanos(BASE.as_nanos() * queued / u64::from(capacity))
    }

    #[test]
    fn the_window_starts_at_one_and_a_half_products_and_stays_there_in_an_empty_network() {
        let mut controller = controller();
        (0..10).for_each(|_| clean(&mut controller));
        assert_eq!(controller.window(), 150_000);
    }

    #[test]
    fn losses_of_bad_paths_change_nothing_and_a_policer_halves() {
        let lossy = |percent: u32| {
            let mut controller = controller();
            for round in 0..300 {
                let lost = (controller.window() / PACKET * percent + 50) / 100;
                let lost = if percent == 0 { 0 } else { lost.max(u32::from(round % 8 == 0)) };
                (0..lost).for_each(|_| controller.on_loss(Instant::EPOCH));
                clean(&mut controller);
            }
            controller.window()
        };
        assert_eq!([lossy(0), lossy(1), lossy(2), lossy(3)], [150_000; 4]);
        assert!(lossy(30) < 50_000, "{}", lossy(30));
    }

    #[test]
    fn full_marking_shrinks_to_a_packet_and_one_path_of_128_costs_less_than_two_per_cent() {
        let mut all = controller();
        (0..200).for_each(|_| round(&mut all, Instant::EPOCH, 1000, [BASE; 4]));
        assert_eq!(all.window(), PACKET);
        let mut one = controller();
        for step in 0..1000 {
            let acks = [BASE; 4];
            round(&mut one, Instant::EPOCH, 0, acks);
            if step % 2 == 0 {
                one.on_ack(&AckSample {
                    marked_packets: 1,
                    in_flight: one.window(),
                    ..AckSample::of_packets(1, PACKET)
                });
            }
        }
        assert!(one.window() > 147_000, "{}", one.window());
    }

    #[test]
    fn a_queue_that_all_samples_meet_is_cut_at_once_and_one_that_some_miss_is_not() {
        let queue = Duration::from_micros(30);
        let mut all = controller();
        round(&mut all, Instant::EPOCH, 0, [queue; 4]);
        // Half of 30 us is beyond 15 us: 0.8 of it is taken off.
        assert_eq!(all.window(), 90_001);
        let mut some = controller();
        (0..20).for_each(|_| round(&mut some, Instant::EPOCH, 0, [queue, queue, queue, BASE]));
        assert_eq!(some.window(), 150_000);
    }

    /// Four to one: a window that is alone on a bottleneck of a quarter of its own link settles where the queue is near
    /// the target, neither below the bottleneck nor beside a queue that does not exist.
    #[test]
    fn alone_at_a_bottleneck_it_keeps_the_bottleneck_full_and_the_queue_at_the_target() {
        let mut controller = controller();
        clean(&mut controller);
        let (mut least, mut most) = (u32::MAX, 0);
        for step in 0..400 {
            let delay = delay_of(controller.window(), 25_000, Duration::ZERO);
            round(&mut controller, Instant::EPOCH, 0, [delay; 4]);
            if step > 50 {
                least = least.min(controller.window());
                most = most.max(controller.window());
            }
        }
        assert!(matches!(
            controller.competition,
            Competition::None | Competition::Suspected { .. }
        ));
        assert!(least > 25_000, "the line runs empty: {least}");
        assert!(most < 2 * 25_000, "a queue of more than a round trip: {most}");
    }

    #[test]
    fn beside_a_queue_that_does_not_shrink_it_follows_losses_and_returns_when_the_queue_is_gone() {
        let mut controller = controller();
        let foreign = Duration::from_micros(200);
        let at = |step: u64| Instant::EPOCH + Duration::from_micros(200) * step;
        clean(&mut controller);
        for step in 0..12 {
            let delay = delay_of(controller.window(), 50_000, foreign);
            round(&mut controller, at(step), 0, [delay; 4]);
        }
        assert!(matches!(controller.competition, Competition::Present { .. }));
        let before = controller.window();
        assert!(before > 100_000, "the window from before the cuts: {before}");
        controller.on_loss(at(12));
        controller.on_loss(at(12));
        let delay = delay_of(controller.window(), 50_000, foreign);
        round(&mut controller, at(12), 0, [delay; 4]);
        assert_eq!(controller.window(), before - scale(before, LOSS_DECREASE), "CUBIC's decrease");
        let after = controller.window();
        (13..23).for_each(|step| round(&mut controller, at(step), 0, [delay; 4]));
        assert_eq!(controller.window(), after + 10 * PACKET, "a packet in a round trip");
        round(&mut controller, at(23), 0, [BASE; 4]);
        assert!(matches!(controller.competition, Competition::None));
    }

    /// Many senders that open together overflow a queue, which stays full until all have cut.
    #[test]
    fn a_queue_that_overflows_is_no_proof_of_a_foreign_one() {
        let mut controller = controller();
        clean(&mut controller);
        for _ in 0..12 {
            let lost = controller.window() / PACKET / 4 + 1;
            (0..lost).for_each(|_| controller.on_loss(Instant::EPOCH));
            round(&mut controller, Instant::EPOCH, 0, [Duration::from_micros(200); 4]);
            assert!(!matches!(controller.competition, Competition::Present { .. }));
        }
        assert_eq!(controller.window(), PACKET);
        // Losses end; cuts before then do not count.
        for _ in 0..3 {
            round(&mut controller, Instant::EPOCH, 0, [Duration::from_micros(200); 4]);
            assert!(!matches!(controller.competition, Competition::Present { .. }));
        }
    }

    /// A tenant's frames of 100 bytes, of which one in a hundred is lost, fill no window and need one that permits
    /// several of them.
    #[test]
    fn small_packets_of_which_some_are_lost_keep_a_window_that_lets_several_out() {
        let mut controller = controller();
        for step in 0..5_000 {
            if step % 50 == 0 {
                controller.on_loss(Instant::EPOCH);
            }
            controller.on_ack(&AckSample {
                rtt: Some(BASE * if step % 7 == 0 { 40 } else { 1 }),
                in_flight: 100,
                ..AckSample::of_packets(1, 100)
            });
        }
        assert!(controller.window() >= 5 * PACKET, "{}", controller.window());
    }

    #[test]
    fn a_window_of_one_packet_opens_again_for_packets_that_are_small() {
        let mut controller = controller();
        (1..=20).for_each(|at| controller.on_timeout(Instant::EPOCH + Duration::from_millis(at)));
        assert_eq!(controller.window(), PACKET);
        for _ in 0..40 {
            let rtt = Some(BASE);
            controller.on_ack(&AckSample { rtt, ..AckSample::of_packets(1, 100) });
        }
        assert!(controller.window() >= 2 * PACKET, "{}", controller.window());
    }

    #[test]
    fn each_silence_halves_once() {
        let mut controller = controller();
        clean(&mut controller);
        let silent = Instant::EPOCH + Duration::from_micros(250);
        (0..5).for_each(|_| controller.on_timeout(silent));
        assert_eq!(controller.window(), 75_000);
        controller.on_timeout(silent + Duration::from_micros(250));
        assert_eq!(controller.window(), 37_500);
    }
}
