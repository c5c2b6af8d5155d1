//! A training job: every rank executes its program, and an iteration ends when all have.
//!
//! A rank acts only on events at its own host: its computation ends, or a message for it arrives. So no rank learns of
//! another's progress sooner than a message could carry it.

use std::collections::BTreeMap;

use super::Config;
use super::exchange::{Parallelism, Peers, Phase};
use super::moves::Move;
use super::op::{LANES, Op};
use super::program::Plan;
use super::rank::{BACKWARD, Cursor, FORWARD, Inlet, Rank};
use super::representatives::Representatives;
use super::timeline::Timeline;
use super::track::{Skipping, Tally, track_of};
use crate::fast_forward::{Advance, Criterion, Cycle, EqualParts, Grain, Refusal};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::workload::{Iteration, Shares, Workload};
use crate::world::Session;

/// The bit of a wake's token that marks a message from a GPU of the same server.
pub(super) const MESSAGE: u64 = 1 << 63;
/// The bit that marks the time of a record; the rank is below.
pub(super) const RECORD: u64 = 1 << 62;
/// The token with which an iteration begins.
const BEGIN: u64 = u64::MAX;

/// The workload: a training job, with the state of its current iteration.
#[derive(Debug)]
pub(super) struct Job {
    pub config: Config,
    pub plan: Plan,
    pub ranks: Vec<Rank>,
    /// The channels between two ranks for a lane and groups, by queue pair.
    pub(super) channels: BTreeMap<(u32, u32, u8, u8), Vec<ChannelId>>,
    began: SimTime,
    /// The latest completion of a rank so far.
    latest: SimTime,
    /// Number of ranks that have not completed the iteration.
    busy: usize,
    /// The bytes that ranks sent over the network in this iteration.
    pub(super) bytes: u64,
    /// The paces of the lanes, and the time spent in them.
    pub(super) skipping: Skipping,
    /// `true` if the run may skip time, and the first lane is executed at the start of each iteration.
    is_first_apart: bool,
    /// The times of the first lane in this iteration, if it is executed at the start.
    pub(super) timeline: Option<Timeline>,
    /// The ranks that are simulated, for all.
    pub(super) representatives: Representatives,
    /// The reason why all ranks are simulated, if they are.
    pub(super) refusal: Option<Refusal>,
    /// The least time that a message takes from one host to another inside a server, if the run may skip time.
    min_latency: SimSpan,
    finished: Vec<Iteration>,
    /// Number of messages that were sent over the network.
    sent: u64,
    /// The bytes of these messages.
    pub(super) sent_bytes: u64,
    /// Number of those that were acknowledged.
    acknowledged: u64,
    /// `true` if a channel closed: this iteration will never finish.
    broken: bool,
    /// The rank, start and end of each computation, for tests.
    #[cfg(test)]
    pub log: Vec<(u32, SimTime, SimTime)>,
}

/// The next action of a slice of an exchange.
enum Action {
    Send { to: u32, inlet: Inlet, bytes: u32 },
    Receive(Inlet),
    Skip,
}

impl Job {
    pub(super) fn new(config: Config, plan: Plan, ranks: Vec<Rank>) -> Self {
        Self {
            representatives: Representatives::all(plan.grid),
            refusal: Some(Refusal::NoEqualParts),
            skipping: Skipping::new(&plan, Representatives::all(plan.grid), config.slices, true),
            config,
            plan,
            ranks,
            channels: BTreeMap::new(),
            is_first_apart: false,
            timeline: None,
            min_latency: SimSpan::ZERO,
            began: SimTime::EPOCH,
            latest: SimTime::EPOCH,
            busy: 0,
            bytes: 0,
            finished: Vec::new(),
            sent: 0,
            sent_bytes: 0,
            acknowledged: 0,
            broken: false,
            #[cfg(test)]
            log: Vec::new(),
        }
    }

    /// Begins an iteration.
    fn begin(&mut self, session: &mut Session<'_>) {
        (self.began, self.latest) = (session.now(), session.now());
        self.busy = self.representatives.count() as usize;
        self.bytes = 0;
        self.skipping.begin(session.now());
        self.ranks.iter_mut().for_each(Rank::begin);
        if self.is_first_apart {
            self.execute_first_lane(session);
        }
        self.representatives.ranks().for_each(|rank| self.advance(rank, session));
    }

    /// Executes a rank's program until every lane waits.
    pub(super) fn advance(&mut self, rank: u32, session: &mut Session<'_>) {
        while (0..LANES).any(|lane| self.step(rank, lane, session)) {}
        let stage = self.plan.grid.stage(rank) as usize;
        let ends = self.plan.programs[stage].each_ref().map(Vec::len);
        let state = &mut self.ranks[rank as usize];
        let at_end = state.lanes.iter().zip(ends).all(|(lane, end)| lane.next == end);
        if !state.done && at_end {
            state.done = true;
            self.latest = self.latest.max(session.now());
            self.busy -= 1;
            if self.busy == 0 {
                self.finish(session);
            }
        }
    }

    /// Executes one operation of a lane; returns `false` if it must wait or the lane is at its end.
    pub(super) fn step(&mut self, rank: u32, lane: usize, session: &mut Session<'_>) -> bool {
        let stage = self.plan.grid.stage(rank) as usize;
        let state = &mut self.ranks[rank as usize];
        let Some(&op) = self.plan.programs[stage][lane].get(state.lanes[lane].next) else {
            return false;
        };
        let is_over = match op {
            Op::Compute(span) => {
                if state.lanes[lane].since.is_none() {
                    let end = session.now() + span;
                    state.lanes[lane].since = Some(session.now());
                    session.wake_at(state.host, end, rank.into());
                }
                false
            }
            Op::Exchange(exchange) => self.exchange(rank, lane, exchange, session),
            Op::Record(number) => {
                state.records[number] = true;
                let place = rank % self.plan.grid.tensor;
                self.timeline.iter_mut().for_each(|times| times.set(place, number, session.now()));
                true
            }
            Op::Await(number) => match self.time_of_record(rank, number) {
                Some(at) => self.await_record(rank, lane, at, session),
                None => self.ranks[rank as usize].records[number],
            },
        };
        if is_over {
            self.pass(rank, lane, session);
        }
        is_over
    }

    /// Moves a lane to its next operation.
    fn pass(&mut self, rank: u32, lane: usize, session: &mut Session<'_>) {
        let next = &mut self.ranks[rank as usize].lanes[lane].next;
        let passed = *next;
        *next += 1;
        self.count_operation(rank, lane, passed, session);
    }

    /// Returns the time spent in a rank's lane by all that advance with it.
    fn tally(&mut self, rank: u32, lane: usize) -> &mut Tally {
        &mut self.skipping.tracks[track_of(rank, lane, self.representatives)].tally
    }

    /// Ends a rank's computation, and goes on.
    fn computed(&mut self, rank: u32, session: &mut Session<'_>) {
        self.end_computation(rank, session);
        self.advance(rank, session);
    }

    /// Ends a rank's computation.
    pub(super) fn end_computation(&mut self, rank: u32, session: &mut Session<'_>) {
        let lane = &mut self.ranks[rank as usize].lanes[0];
        let since = lane.since.take().expect("it woke because it computes");
        self.tally(rank, 0).computing += session.now().since(since);
        self.pass(rank, 0, session);
        #[cfg(test)]
        self.log.push((rank, since, session.now()));
    }

    /// Advances every slice of an exchange as far as possible; returns `true` if all are complete.
    fn exchange(
        &mut self,
        rank: u32,
        lane: usize,
        exchange: usize,
        session: &mut Session<'_>,
    ) -> bool {
        let state = &mut self.ranks[rank as usize].lanes[lane];
        if state.since.is_none() {
            state.since = Some(session.now());
            state.slices = vec![Cursor::default(); self.config.slices as usize];
        }
        let mut all = true;
        for slice in 0..self.config.slices as usize {
            all &= self.slice(rank, lane, exchange, slice, session);
        }
        if all {
            let state = &mut self.ranks[rank as usize].lanes[lane];
            let since = state.since.take().expect("set above");
            let kind = self.plan.exchanges[exchange].kind;
            self.tally(rank, lane).exchanging[kind as usize] += session.now().since(since);
        }
        all
    }

    /// Advances one slice; returns `true` if it is complete.
    fn slice(
        &mut self,
        rank: u32,
        lane: usize,
        exchange: usize,
        slice: usize,
        session: &mut Session<'_>,
    ) -> bool {
        loop {
            let cursor = self.ranks[rank as usize].lanes[lane].slices[slice];
            let Some(phase) = self.plan.exchanges[exchange].phases.get(cursor.phase) else {
                return true;
            };
            let next = self.next_action(rank, (lane, slice), phase, cursor.step);
            let passed = match next {
                None => Cursor { phase: cursor.phase + 1, step: 0 },
                Some(next) => {
                    match next {
                        Action::Skip => {}
                        Action::Receive(inlet) => {
                            if !self.ranks[rank as usize].take(inlet) {
                                return false;
                            }
                            self.count_receive(rank, lane, (exchange, cursor.phase), session);
                        }
                        Action::Send { to, inlet, bytes } => {
                            self.send(rank, to, inlet, bytes, session);
                        }
                    }
                    Cursor { step: cursor.step + 1, ..cursor }
                }
            };
            self.ranks[rank as usize].lanes[lane].slices[slice] = passed;
        }
    }

    /// Returns a slice's next action in a phase, `None` past the last step.
    fn next_action(
        &self,
        rank: u32,
        (lane, slice): (usize, usize),
        phase: &Phase,
        step: usize,
    ) -> Option<Action> {
        let (lane, slice) = (small(lane), small(slice));
        match &phase.with {
            Peers::Group(groups, moves) => {
                let (group, place) = self.plan.groups[*groups].of(rank);
                let inlet = |from: usize| {
                    let from = u16::try_from(from).expect("checked when it was built");
                    Inlet { lane, groups: small(*groups), from, slice }
                };
                let bytes = self.message(phase.bytes, group.len());
                Some(match moves.get(place, step)? {
                    Move::Send(to) => {
                        Action::Send { to: group[usize::from(to)], inlet: inlet(place), bytes }
                    }
                    Move::Receive(from) => Action::Receive(inlet(from.into())),
                    Move::Copy => Action::Skip,
                })
            }
            Peers::Send { forward } => (step == 0).then(|| {
                let (to, groups) = self.neighbour(rank, *forward);
                let inlet = Inlet { lane, groups, from: 0, slice };
                Action::Send { to, inlet, bytes: self.message(phase.bytes, 1) }
            }),
            Peers::Receive { forward } => (step == 0).then(|| {
                let groups = if *forward { FORWARD } else { BACKWARD };
                Action::Receive(Inlet { lane, groups, from: 0, slice })
            }),
        }
    }

    /// Returns the bytes of a message if `bytes` are cut for this number of ranks.
    pub(super) fn message(&self, bytes: u64, ranks: usize) -> u32 {
        let pieces = ranks as u64 * u64::from(self.config.slices);
        u32::try_from(bytes.div_ceil(pieces).max(1)).expect("checked when it was built")
    }

    /// Sends a message to another rank, over the network or inside the server.
    fn send(&mut self, rank: u32, to: u32, inlet: Inlet, bytes: u32, session: &mut Session<'_>) {
        let pairs = self.channels.get(&(rank, to, inlet.lane, inlet.groups));
        let Some(pairs) = pairs else {
            return self.send_inside((rank, to), inlet, bytes, session);
        };
        let tag = inlet.to_tag(to);
        let channel = pairs[usize::from(inlet.slice) % pairs.len()];
        self.sent += 1;
        self.bytes += u64::from(bytes);
        self.sent_bytes += u64::from(bytes);
        session.send(SendRequest {
            channel,
            from: Side::Opener,
            length: bytes,
            tag,
            recorded: false,
        });
    }

    /// Sends to a GPU of the same server, after the messages already on that link.
    fn send_inside(
        &mut self,
        (rank, to): (u32, u32),
        inlet: Inlet,
        bytes: u32,
        session: &mut Session<'_>,
    ) {
        let is_other_host = self.ranks[to as usize].host != self.ranks[rank as usize].host;
        let server = &self.config.server;
        let picos = u128::from(bytes) * 8_000_000_000_000 / u128::from(server.rate.as_bps());
        let span = SimSpan::from_picos(u64::try_from(picos).unwrap_or(u64::MAX));
        let sender = &mut self.ranks[rank as usize];
        sender.local_free = sender.local_free.max(session.now()) + span;
        let mut at = sender.local_free + SimSpan::from(server.latency);
        if is_other_host {
            at = at.max(session.now() + self.min_latency);
        }
        let (to, inlet) = self.representatives.receiver(rank, to, inlet);
        let token = MESSAGE | inlet.to_tag(to);
        session.wake_at(self.ranks[to as usize].host, at, token);
    }

    /// Handles the arrival of a message.
    fn received(&mut self, tag: u64, session: &mut Session<'_>) {
        let rank = self.ingest(tag);
        self.advance(rank, session);
    }

    /// Puts a message into its receiver's inbox; returns the receiver.
    pub(super) fn ingest(&mut self, tag: u64) -> u32 {
        let (rank, inlet) = Inlet::from_tag(tag);
        *self.ranks[rank as usize].inbox.entry(inlet).or_default() += 1;
        rank
    }

    /// Ends the iteration when all ranks are done: a barrier, as the norm of the gradients is in training.
    #[expect(clippy::cast_precision_loss, reason = "sizes of a report")]
    fn finish(&mut self, session: &mut Session<'_>) {
        // An empty iteration takes no time and has no shares.
        let duration = self.latest.since(self.began).max(SimSpan::from_picos(1));
        let ranks = f64::from(self.representatives.count());
        let of_time = |span: SimSpan| span.as_secs_f64() / duration.as_secs_f64();
        let add = |one: SimSpan, other| one + other;
        let tallies = self.skipping.tracks.iter().map(|track| track.tally);
        let tally = tallies.fold(Tally::default(), |all, one| all.with(one, add));
        let exchange_time = |kind: Parallelism| of_time(tally.exchanging[kind as usize]) / ranks;
        let shares = Shares {
            exposed: 1.0 - of_time(self.plan.critical_path),
            computing: of_time(tally.computing) / ranks,
            tensor: exchange_time(Parallelism::Tensor),
            pipeline: exchange_time(Parallelism::Pipeline),
            data: exchange_time(Parallelism::Data),
            expert: exchange_time(Parallelism::Expert),
        };
        self.skipping.iteration_bytes = self.bytes;
        self.finished.push(Iteration {
            start_us: self.began.since(SimTime::EPOCH).as_micros_f64(),
            time_us: duration.as_micros_f64(),
            bus_gbps: self.bytes as f64 * 8.0 / ranks / duration.as_secs_f64() / 1e9,
            shares: Some(shares),
        });
        if !self.has_all_iterations() {
            if self.skipping.iterations.count_piece(self.latest) {
                session.consider_skip();
            }
            session.wake(self.latest, BEGIN);
        }
    }

    /// Returns the number of iterations that are complete or were skipped.
    fn completed(&self) -> u64 {
        self.finished.len() as u64 + self.skipping.skipped_iterations
    }

    fn has_all_iterations(&self) -> bool {
        self.completed() >= u64::from(self.config.iterations)
    }
}

/// Returns a number that was checked to fit a byte.
pub(super) fn small(number: usize) -> u8 {
    u8::try_from(number).expect("checked when it was built")
}

impl Workload for Job {
    fn start(&mut self, session: &mut Session<'_>) {
        let network = session.network().filter(|network| network.may_skip());
        let skips = network.is_some();
        if let Some(network) = network {
            self.min_latency = network.max_skew();
            self.choose_representatives(network);
        }
        self.open(session);
        let is_local = self.channels.keys().all(|&(_, _, lane, _)| lane > 0);
        self.skipping =
            Skipping::new(&self.plan, self.representatives, self.config.slices, is_local);
        self.is_first_apart = skips && self.is_first_lane_apart();
        session.wake(SimTime::EPOCH + SimSpan::from(self.config.start), BEGIN);
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match *notice {
            Notice::Woken { token: BEGIN } => self.begin(session),
            Notice::Woken { token } if token & MESSAGE != 0 => {
                self.received(token & !MESSAGE, session);
            }
            Notice::Woken { token } if token & RECORD != 0 => {
                self.advance(u32::try_from(token & !RECORD).expect("a rank"), session);
            }
            Notice::Woken { token } => {
                self.computed(u32::try_from(token).expect("a rank"), session);
            }
            Notice::Delivered { request } => self.received(request.tag, session),
            Notice::Acknowledged { .. } => self.acknowledged += 1,
            Notice::Closed { .. } => self.broken = true,
        }
    }

    fn opens_during_run(&self) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        self.broken || self.has_all_iterations() && self.acknowledged == self.sent
    }

    fn iterations(&self) -> &[Iteration] {
        &self.finished
    }

    fn equal_parts(&self) -> Result<EqualParts, Refusal> {
        self.found_parts()
    }

    fn cycles(&self, grain: Grain, criterion: &Criterion) -> Result<Vec<Option<Cycle>>, Refusal> {
        if self.is_done() {
            return Ok(Vec::new());
        }
        if grain != Grain::Iteration {
            return self.lane_cycles(grain, criterion);
        }
        let (period, spread) = self.skipping.iterations.period(criterion)?;
        // The last iteration takes place.
        let units = u64::from(self.config.iterations).saturating_sub(self.completed() + 1);
        Ok(vec![Some(Cycle { period, spread, units, owed: 0, level: 0 })])
    }

    fn skip(
        &mut self,
        grain: Grain,
        parts: &[Option<Advance>],
        span: SimSpan,
        session: &mut Session<'_>,
    ) -> u64 {
        let bytes = if grain == Grain::Iteration {
            let units = parts.iter().flatten().map(|part| part.units).sum();
            (self.began, self.latest) = (self.began + span, self.latest + span);
            self.skip_iterations(units, span)
        } else {
            let bytes = self.skip_in_lanes(parts, span, session.now());
            if self.timeline.is_some() {
                self.await_again(session);
            }
            bytes
        };
        bytes * u64::from(self.representatives.parts())
    }
}
