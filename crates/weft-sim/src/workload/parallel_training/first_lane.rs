//! A first lane that uses no network: it is executed when an iteration begins.
//!
//! The lane of a job without pipeline, whose tensor parallelism is inside servers, waits for nothing but computation and
//! the servers' own links, and does the same in every replica. So it is executed once, for one replica and before any
//! packet is sent. The other lanes find the times at which it sets its records, and a skip of any length leaves them true.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weft_topo::NodeId;

use super::exchange::{Parallelism, Peers};
use super::job::{Job, MESSAGE, RECORD};
use super::op::{LANES, Op};
use super::timeline::Timeline;
use super::track::Members;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, SendRequest};
use crate::world::{Session, Stage};

/// The servers' own links and the computation of one replica, apart from the network.
#[derive(Debug)]
struct Apart {
    now: SimTime,
    /// Coming wake-ups: those of one instant in the order of requests.
    events: BinaryHeap<Reverse<(SimTime, u64, u64)>>,
    requests: u64,
}

impl Stage for Apart {
    fn now(&self) -> SimTime {
        self.now
    }

    fn open(&mut self, _workload: u32, _from: NodeId, _to: NodeId) -> ChannelId {
        unreachable!("channels open at the start")
    }

    fn send(&mut self, _workload: u32, _request: SendRequest) {
        unreachable!("the lane uses no network")
    }

    fn close(&mut self, _channel: ChannelId) {}

    fn wake(&mut self, _workload: u32, _at: SimTime, _token: u64) {
        unreachable!("ranks wake at their hosts")
    }

    fn wake_at(&mut self, _workload: u32, _host: NodeId, at: SimTime, token: u64) {
        self.requests += 1;
        self.events.push(Reverse((at, self.requests, token)));
    }
}

impl Job {
    /// Returns `true` if the first lane uses no network and waits for no other lane, and each replica's does the same.
    pub(super) fn is_first_lane_apart(&self) -> bool {
        let (grid, server) = (self.plan.grid, &self.config.server);
        let [_, reduce, gather] = &self.plan.programs[0];
        let is_alike = grid.tensor.is_multiple_of(server.gpus_per_host)
            || server.gpus_per_host.is_multiple_of(grid.tensor);
        let has_tokens =
            self.plan.exchanges.iter().any(|exchange| exchange.kind == Parallelism::Expert);
        let shares_links = reduce.iter().any(|op| match *op {
            Op::Exchange(exchange) => self.is_inside_server(exchange),
            _ => false,
        });
        grid.pipeline == 1
            && gather.is_empty()
            && is_alike
            && !has_tokens
            && !shares_links
            && self.channels.keys().all(|&(_, _, lane, _)| lane > 0)
    }

    /// Returns `true` if ranks of a server exchange messages with each other in an exchange.
    fn is_inside_server(&self, exchange: usize) -> bool {
        let server = |rank: u32| self.ranks[rank as usize].server;
        self.representatives.ranks().any(|rank| {
            self.plan.exchanges[exchange].phases.iter().any(|phase| match &phase.with {
                Peers::Group(groups, moves) => {
                    let (group, place) = self.plan.groups[*groups].of(rank);
                    let mut to = moves.destinations(place).iter();
                    to.any(|&(to, _)| server(group[to]) == server(rank))
                }
                Peers::Send { .. } | Peers::Receive { .. } => true,
            })
        })
    }

    /// Executes the first lane of the first replica from now to its end, for all replicas.
    pub(super) fn execute_first_lane(&mut self, session: &Session<'_>) {
        let places = self.representatives.width();
        self.timeline = Some(Timeline::new(places, self.plan.records));
        let mut apart = Apart { now: session.now(), events: BinaryHeap::new(), requests: 0 };
        for rank in 0..places {
            while self.step(rank, 0, &mut Session::new(&mut apart, 0)) {}
        }
        while let Some(Reverse((at, _, token))) = apart.events.pop() {
            apart.now = at;
            let session = &mut Session::new(&mut apart, 0);
            let rank = if token & MESSAGE == 0 {
                let rank = u32::try_from(token).expect("a rank");
                self.end_computation(rank, session);
                rank
            } else {
                self.ingest(token & !MESSAGE)
            };
            while self.step(rank, 0, session) {}
        }
        let end = self.plan.programs[0][0].len();
        for rank in self.representatives.ranks() {
            self.ranks[rank as usize].lanes[0].next = end;
        }
        self.skipping.tracks[0].tally.multiply(self.plan.grid.data.into());
    }

    /// Returns the time at which a rank's first lane sets a record, if it is known beforehand.
    pub(super) fn time_of_record(&self, rank: u32, record: usize) -> Option<SimTime> {
        let timeline = self.timeline.as_ref()?;
        Some(timeline.at(rank % self.plan.grid.tensor, record))
    }

    /// Returns `true` if a record is set by now; otherwise requests a wake-up at its time, unless the lane has.
    pub(super) fn await_record(
        &mut self,
        rank: u32,
        lane: usize,
        at: SimTime,
        session: &mut Session<'_>,
    ) -> bool {
        let state = &mut self.ranks[rank as usize];
        let since = &mut state.lanes[lane].since;
        if at <= session.now() {
            *since = None;
            return true;
        }
        if since.is_none() {
            *since = Some(session.now());
            session.wake_at(state.host, at, RECORD | u64::from(rank));
        }
        false
    }

    /// Lets lanes that wait for a record find it set after a skip, or request a wake-up at its new place in network time.
    /// Earlier requests come later, and find nothing to do.
    pub(super) fn await_again(&mut self, session: &mut Session<'_>) {
        for rank in self.representatives.ranks() {
            for lane in 1..LANES {
                let state = &mut self.ranks[rank as usize].lanes[lane];
                if let Some(Op::Await(_)) = self.plan.programs[0][lane].get(state.next) {
                    state.since = None;
                }
            }
            self.advance(rank, session);
        }
    }

    /// Returns the time from a record to the next one if all members of a lane wait for records: the units of the lane,
    /// measured as `period`, then take that time, whatever its exchanges take. `None` if a member began its exchange
    /// more than a hundredth of a unit after the record.
    pub(super) fn pace_of_records(&self, members: Members, period: SimSpan) -> Option<SimSpan> {
        let lag = SimSpan::from_picos(period.as_picos() / 100);
        let mut ranks = members.ranks().map(|rank| {
            let unit = self.unit_of(rank, members.lane)?;
            let is_prompt = unit.start <= unit.record + lag;
            let next = self.records_ahead(rank, members.lane).next()?;
            is_prompt.then(|| next.since(unit.record))
        });
        let first = ranks.next()??;
        ranks.all(|other| other.is_some()).then_some(first)
    }

    /// Returns the number of units of a lane that its members pass in this `period` each without waiting longer for records
    /// than before. Periods are compared as [`plan`](crate::fast_forward::plan) does: they may differ by 0.5 %.
    pub(super) fn units_before_records(&self, members: Members, period: SimSpan) -> u64 {
        let longest = period.as_picos().saturating_add(period.as_picos() / 200);
        let of_rank = |rank: u32| {
            let start = self.unit_of(rank, members.lane)?.start;
            let due = |units: u64| start + SimSpan::from_picos(longest.saturating_mul(units));
            let mut ahead = (1..).zip(self.records_ahead(rank, members.lane));
            ahead.find(|&(units, at)| at > due(units)).map(|(units, _)| units - 1)
        };
        members.ranks().filter_map(of_rank).min().unwrap_or(u64::MAX)
    }

    /// Returns the unit of a lane that a rank is in: an exchange that it began after a record, or will begin then.
    fn unit_of(&self, rank: u32, lane: usize) -> Option<Unit> {
        self.timeline.as_ref()?;
        let program = &self.plan.programs[0][lane];
        let state = &self.ranks[rank as usize].lanes[lane];
        let mut latest = program[..=state.next.min(program.len() - 1)].iter().rev();
        let record = latest.find_map(|op| self.time_awaited(rank, op))?;
        let waits = matches!(program.get(state.next), Some(Op::Await(_)));
        Some(Unit { record, start: if waits { record } else { state.since? } })
    }

    /// Returns the times of the records that a rank's lane waits for after its current operation.
    fn records_ahead(&self, rank: u32, lane: usize) -> impl Iterator<Item = SimTime> {
        let next = self.ranks[rank as usize].lanes[lane].next;
        let ahead = self.plan.programs[0][lane].iter().skip(next + 1);
        ahead.filter_map(move |op| self.time_awaited(rank, op))
    }

    /// Returns the time of the record that an operation waits for.
    fn time_awaited(&self, rank: u32, op: &Op) -> Option<SimTime> {
        match *op {
            Op::Await(record) => self.time_of_record(rank, record),
            _ => None,
        }
    }
}

/// A unit of a lane: an exchange after a record.
struct Unit {
    /// The time of the record.
    record: SimTime,
    /// The start of the exchange.
    start: SimTime,
}
