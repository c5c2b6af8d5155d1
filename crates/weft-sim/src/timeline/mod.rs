//! A run over time, for pictures: what each link carried and held, the messages in progress, and the faults.
//!
//! Time is divided into columns. When their number reaches its maximum, neighbours are merged and new columns become
//! twice as long, so memory is bounded for a run of any length. A [`Timeline`] watches a run and only reads the network.

mod faults;
mod messages;
mod picture;

use std::cmp::Reverse;

use weft_topo::{LinkId, Topology};

pub use faults::link_name;
pub use messages::Messages;

use crate::fabric::{Fabric, Loss};
use crate::time::{SimSpan, SimTime};
use crate::world::{Network, Watcher, Window, World};

/// Maximum number of columns.
const MAX_COLUMNS: usize = 1024;
/// Minimum of that maximum, for networks with many links.
const FEW_COLUMNS: usize = 64;
/// Cells, one for each link and column, up to which there are more than [`FEW_COLUMNS`]; a cell has 24 bytes.
const MAX_CELLS: usize = 1 << 20;
/// Samples of the queues in a column.
const SAMPLES: u64 = 4;

/// One link in one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Bytes that left the port.
    pub sent: u64,
    /// The deepest of the queue's samples, bytes.
    pub deepest: u64,
    /// Packets that the port marked.
    pub marked: u32,
    /// Packets for which the port had no room.
    pub refused: u32,
}

/// The whole network in one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The end; the start is the end of the column before, or the run's.
    pub end: SimTime,
    /// Messages in progress at the end.
    pub in_progress: u64,
    /// Packets lost, in the order of [`Loss::ALL`].
    pub lost: [u64; Loss::ALL.len()],
    /// Changes of path by senders.
    pub path_switches: u64,
    /// Packets that senders retransmitted.
    pub retransmissions: u64,
}

/// A run over time.
#[derive(Debug)]
pub struct Timeline {
    links: usize,
    max_columns: usize,
    /// The length of a new column; windows end later than its end by less than a lookahead.
    interval: SimSpan,
    columns: Vec<Column>,
    /// The cells of all links, column after column.
    cells: Vec<Cell>,
    /// The cells of the column that is not over yet: counters as they were when it began, and its deepest queues.
    open: Vec<Cell>,
    /// The network's counters when that column began.
    before: Column,
    /// The next sample of the queues, and the end of the column.
    next_sample: SimTime,
    next_column: SimTime,
    messages: Messages,
    faults: Vec<(SimTime, String)>,
    /// The end of the run.
    ended_at: SimTime,
}

impl Timeline {
    /// Returns an empty timeline whose columns are `interval` long at first.
    pub fn new(interval: SimSpan) -> Self {
        Self {
            links: 0,
            max_columns: MAX_COLUMNS,
            interval: interval.max(SimSpan::from_picos(SAMPLES)),
            columns: Vec::new(),
            cells: Vec::new(),
            open: Vec::new(),
            before: Column::default(),
            next_sample: SimTime::EPOCH,
            next_column: SimTime::EPOCH,
            messages: Messages::default(),
            faults: Vec::new(),
            ended_at: SimTime::EPOCH,
        }
    }

    /// Returns the length of the columns, except for the last; they are as long as the lookahead window at least.
    pub fn interval(&self) -> SimSpan {
        self.interval
    }

    /// Returns the columns, in order of time.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the start of a column.
    pub fn start_of(&self, column: usize) -> SimTime {
        column.checked_sub(1).map_or(SimTime::EPOCH, |before| self.columns[before].end)
    }

    /// Returns a link's cells, in order of time.
    pub fn cells(&self, link: LinkId) -> impl Iterator<Item = &Cell> {
        self.cells.iter().skip(link.index()).step_by(self.links.max(1))
    }

    /// Returns the bytes that left each port in the whole run, by link.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0; self.links];
        for column in self.cells.chunks(self.links.max(1)) {
            totals.iter_mut().zip(column).for_each(|(total, cell)| *total += cell.sent);
        }
        totals
    }

    /// Returns the ports of switches that were busiest, as shares of their rates; the busiest first.
    pub fn busiest(&self, topology: &Topology, count: usize) -> Vec<LinkId> {
        let totals = self.totals();
        let of_switch = |link: &LinkId| !topology.is_host(topology.link(*link).from);
        let mut links: Vec<LinkId> = topology.link_ids().filter(of_switch).collect();
        // The sort is stable: equal loads stay in the links' order.
        let busy_picos = |link: LinkId| {
            let bits = u128::from(totals[link.index()]) * 8_000_000_000_000;
            bits / u128::from(topology.link(link).rate.as_bps())
        };
        links.sort_by_cached_key(|&link| Reverse(busy_picos(link)));
        links.truncate(count);
        links
    }

    /// Returns the messages of the run.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Returns the faults that happened, in order of time.
    pub fn faults(&self) -> &[(SimTime, String)] {
        let happened = self.faults.partition_point(|(at, _)| *at <= self.ended_at);
        &self.faults[..happened]
    }

    /// Returns the end of the run.
    pub fn ended_at(&self) -> SimTime {
        self.ended_at
    }

    fn sample(&mut self, fabric: &Fabric, now: SimTime) {
        for (open, link) in self.open.iter_mut().zip(fabric.topology.link_ids()) {
            open.deepest = open.deepest.max(fabric.queued_bytes(link, now));
        }
        self.next_sample = next(now, SimSpan::from_picos(self.interval.as_picos() / SAMPLES));
    }

    /// Ends a column at `now`.
    fn end_column(&mut self, network: &Network, now: SimTime) {
        if self.columns.len() == self.max_columns {
            self.merge();
        }
        let fabric = &network.fabric;
        for (open, link) in self.open.iter_mut().zip(fabric.topology.link_ids()) {
            let tally = fabric.tally(link);
            // A link that goes down loses what it had accepted: it has then sent less than before.
            let total = Cell {
                sent: fabric.sent_bytes(link, now).max(open.sent),
                deepest: 0,
                marked: tally.marked,
                refused: tally.refused,
            };
            self.cells.push(Cell {
                sent: total.sent - open.sent,
                deepest: open.deepest,
                marked: total.marked - open.marked,
                refused: total.refused - open.refused,
            });
            *open = total;
        }
        let total = totals(network, now);
        self.columns.push(total.since(&self.before));
        self.before = total;
        self.next_column = next(now, self.interval);
    }

    /// Merges each column with its neighbour; new ones are twice as long.
    fn merge(&mut self) {
        for pair in 0..self.columns.len() / 2 {
            self.columns[pair] = self.columns[2 * pair].with(&self.columns[2 * pair + 1]);
            for link in 0..self.links {
                let cell = |column: usize| self.cells[column * self.links + link];
                self.cells[pair * self.links + link] = cell(2 * pair).with(cell(2 * pair + 1));
            }
        }
        self.columns.truncate(self.columns.len() / 2);
        self.cells.truncate(self.columns.len() * self.links);
        self.interval += self.interval;
    }
}

impl Watcher for Timeline {
    fn wants_events(&self) -> bool {
        true
    }

    fn on_start(&mut self, world: &World) {
        let topology = &world.network.fabric.topology;
        self.links = topology.link_ids().count();
        self.max_columns = (MAX_CELLS / self.links.max(1)).clamp(FEW_COLUMNS, MAX_COLUMNS) / 2 * 2;
        self.open = vec![Cell::default(); self.links];
        self.faults = faults::describe(world);
        let now = world.network.now;
        (self.next_sample, self.next_column) = (now, next(now, self.interval));
    }

    fn on_window(&mut self, window: &Window<'_>) {
        window.messages.iter().for_each(|message| self.messages.add(message));
        if window.now >= self.next_sample {
            self.sample(&window.network.fabric, window.now);
        }
        if window.now >= self.next_column {
            self.end_column(window.network, window.now);
        }
    }

    fn on_end(&mut self, network: &Network, ended_at: SimTime) {
        self.ended_at = ended_at;
        if network.now > self.before.end {
            self.sample(&network.fabric, network.now);
            self.end_column(network, network.now);
        }
    }
}

/// Returns the first multiple of `interval` after `now`.
fn next(now: SimTime, interval: SimSpan) -> SimTime {
    let interval = interval.as_picos().max(1);
    SimTime::from_picos((now.as_picos() / interval).saturating_add(1).saturating_mul(interval))
}

/// Returns the network's counters now.
fn totals(network: &Network, now: SimTime) -> Column {
    let mut total = Column {
        end: now,
        in_progress: network.traffic.in_progress() as u64,
        lost: network.fabric.counters.lost,
        ..Column::default()
    };
    for host in &network.hosts {
        let stats = host.stats();
        total.path_switches += stats.path_switches;
        total.retransmissions += stats.retransmissions();
    }
    total
}

impl Column {
    /// Returns the counts of a column, from the counters at its end and at its start. A host's counters restart with it.
    fn since(&self, before: &Self) -> Self {
        Self {
            lost: std::array::from_fn(|loss| self.lost[loss] - before.lost[loss]),
            path_switches: self.path_switches.saturating_sub(before.path_switches),
            retransmissions: self.retransmissions.saturating_sub(before.retransmissions),
            ..*self
        }
    }

    /// Returns this column and the one after it as one.
    fn with(&self, after: &Self) -> Self {
        Self {
            lost: std::array::from_fn(|loss| self.lost[loss] + after.lost[loss]),
            path_switches: self.path_switches + after.path_switches,
            retransmissions: self.retransmissions + after.retransmissions,
            ..*after
        }
    }
}

impl Cell {
    fn with(self, after: Self) -> Self {
        Self {
            sent: self.sent + after.sent,
            deepest: self.deepest.max(after.deepest),
            marked: self.marked + after.marked,
            refused: self.refused + after.refused,
        }
    }
}

#[cfg(test)]
mod tests;
