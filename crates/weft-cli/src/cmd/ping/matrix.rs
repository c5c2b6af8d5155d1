//! The matrix: reachability and round-trip times of all pairs.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use weft_perf::{LatencyMicros, latency_histogram};

use super::hosts::Hosts;
use crate::messages::Outcome;
use crate::monitor::{PingPair, PingReport, UnreachableHost};

/// The factors beyond which a cell's median, and its 99th percentile, is marked as an outlier: over the median of all
/// cells' medians, and of their 99th percentiles.
const OUTLIER: [f64; 2] = [3.0, 10.0];

const CORNER: &str = "from \\ to";

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[33m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The results of the pings from one host to another.
struct Cell {
    took: Histogram<u64>,
    lost: u64,
    error: Option<String>,
}

pub(super) struct Matrix {
    hosts: Hosts,
    /// The cells from one host to each of all hosts, itself included.
    cells: Vec<Vec<Cell>>,
    /// Hosts that did not ping, and the reason.
    silent: Vec<Option<String>>,
}

impl Cell {
    fn new() -> Self {
        Self { took: latency_histogram(), lost: 0, error: None }
    }

    fn quantile(&self, quantile: f64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let micros = |nanos: u64| nanos as f64 / 1e3;
        (!self.took.is_empty()).then(|| micros(self.took.value_at_quantile(quantile)))
    }

    fn loss(&self) -> f64 {
        let all = self.took.len() + self.lost;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        if all == 0 { 0.0 } else { self.lost as f64 / all as f64 }
    }
}

/// The mark of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Nothing,
    Slow,
    Lossy,
}

impl Matrix {
    pub(super) fn new(hosts: Hosts) -> Self {
        let count = hosts.0.len();
        let row = || (0..count).map(|_| Cell::new()).collect();
        Self { hosts, cells: (0..count).map(|_| row()).collect(), silent: vec![None; count] }
    }

    /// Adds a host's round.
    pub(super) fn take(&mut self, from: usize, outcomes: Result<Vec<Outcome>, String>) {
        self.silent[from] = outcomes.as_ref().err().cloned();
        let Ok(outcomes) = outcomes else { return };
        let others = self.cells[from].iter_mut().enumerate().filter(|(to, _)| *to != from);
        for ((_, cell), outcome) in others.zip(outcomes) {
            for took in outcome.round_trips_ns {
                cell.took.saturating_record(took);
            }
            cell.lost += u64::from(outcome.lost);
            cell.error = outcome.error;
        }
    }

    /// Returns `true` if every host pinged, and at least one ping of each pair was answered.
    pub(super) fn all_reached(&self) -> bool {
        self.silent.iter().all(Option::is_none)
            && self.pairs().all(|(_, _, cell)| cell.error.is_none() && !cell.took.is_empty())
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize, &Cell)> {
        let rows = self.cells.iter().enumerate();
        rows.flat_map(|(from, row)| row.iter().enumerate().map(move |(to, cell)| (from, to, cell)))
            .filter(|(from, to, _)| from != to)
    }

    /// Returns the median over all cells of a quantile, microseconds.
    fn typical(&self, quantile: f64) -> f64 {
        let mut all: Vec<f64> =
            self.pairs().filter_map(|(_, _, cell)| cell.quantile(quantile)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::INFINITY)
    }

    fn mark(cell: &Cell, typical: [f64; 2]) -> Mark {
        let [p50, p99] = [0.5, 0.99].map(|quantile| cell.quantile(quantile));
        let beyond = |figure: Option<f64>, index: usize| {
            figure.is_some_and(|figure| figure > OUTLIER[index] * typical[index])
        };
        if cell.lost > 0 || cell.error.is_some() {
            Mark::Lossy
        } else if beyond(p50, 0) || beyond(p99, 1) {
            Mark::Slow
        } else {
            Mark::Nothing
        }
    }

    pub(super) fn report(&self) -> PingReport {
        let typical = [0.5, 0.99].map(|quantile| self.typical(quantile));
        let host = |index: usize| &self.hosts.0[index];
        let pair = |(from, to, cell): (usize, usize, &Cell)| PingPair {
            from: host(from).name.clone(),
            from_tor: host(from).tor.clone(),
            to: host(to).name.clone(),
            to_tor: host(to).tor.clone(),
            answered: cell.took.len(),
            lost: cell.lost,
            loss: cell.loss(),
            round_trip_us: (!cell.took.is_empty()).then(|| LatencyMicros::of(&cell.took)),
            error: cell.error.clone(),
            outlier: Self::mark(cell, typical) != Mark::Nothing,
        };
        let why = |(index, why): (usize, &Option<String>)| {
            let (host, why) = (host(index).name.clone(), why.clone()?);
            Some(UnreachableHost { host, why })
        };
        PingReport {
            pairs: self.pairs().map(pair).collect(),
            unreachable: self.silent.iter().enumerate().filter_map(why).collect(),
        }
    }

    /// Returns the matrix as text: escape sequences colour the outliers, and are left out where there is no
    /// terminal.
    pub(super) fn text(&self) -> String {
        let hosts = &self.hosts.0;
        let typical = [0.5, 0.99].map(|quantile| self.typical(quantile));
        let cells: Vec<Vec<(String, Mark)>> = (0..hosts.len())
            .map(|from| (0..hosts.len()).map(|to| self.cell(from, to, typical)).collect())
            .collect();
        let names = hosts.iter().map(|host| host.name.chars().count());
        let texts = cells.iter().flatten().map(|(text, _)| text.chars().count());
        let (first, width) =
            (names.clone().max().unwrap_or(0), names.chain(texts).max().unwrap_or(0));
        let first = first.max(CORNER.len());
        let mut text = format!("{BOLD}{CORNER:first$}");
        for host in hosts {
            let _ = write!(text, "  {:>width$}", host.name);
        }
        let _ = writeln!(text, "{PLAIN}");
        for (from, row) in cells.iter().enumerate() {
            let tor = &hosts[from].tor;
            let begins = from == 0 || hosts[from - 1].tor != *tor;
            if begins && !tor.is_empty() {
                let _ = writeln!(text, "{BOLD}{tor}{PLAIN}");
            }
            let _ = write!(text, "{:first$}", hosts[from].name);
            for (cell, mark) in row {
                let colour = match mark {
                    Mark::Nothing => "",
                    Mark::Slow => YELLOW,
                    Mark::Lossy => RED,
                };
                let _ = write!(text, "  {colour}{cell:>width$}{PLAIN}");
            }
            text.push('\n');
        }
        for (host, why) in hosts.iter().zip(&self.silent) {
            if let Some(why) = why {
                let _ = writeln!(text, "{RED}{} did not ping: {why}{PLAIN}", host.name);
            }
        }
        for (from, to, cell) in self.pairs() {
            if let Some(error) = &cell.error {
                let (from, to) = (&hosts[from].name, &hosts[to].name);
                let _ = writeln!(text, "{RED}{from} to {to}: {error}{PLAIN}");
            }
        }
        text
    }

    /// Returns `p50/p99`, microseconds, and the loss if there is any.
    fn cell(&self, from: usize, to: usize, typical: [f64; 2]) -> (String, Mark) {
        if from == to {
            return ("·".into(), Mark::Nothing);
        }
        let cell = &self.cells[from][to];
        let mark = Self::mark(cell, typical);
        let mut text = match (cell.quantile(0.5), cell.quantile(0.99)) {
            (Some(p50), Some(p99)) => format!("{}/{} us", micros(p50), micros(p99)),
            _ if mark == Mark::Nothing => "-".into(),
            _ => "lost".into(),
        };
        if cell.lost > 0 && !cell.took.is_empty() {
            let _ = write!(text, " {:.0}% lost", (100.0 * cell.loss()).max(1.0));
        }
        if mark != Mark::Nothing {
            text.push('!');
        }
        (text, mark)
    }
}

/// Formats microseconds: with one decimal below 100, without decimals above.
fn micros(figure: f64) -> String {
    if figure < 100.0 { format!("{figure:.1}") } else { format!("{figure:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let names = ["10.0.0.1", "10.0.0.2", "10.0.1.1"].map(String::from);
        let mut hosts = Hosts::of(&names).unwrap();
        for (host, tor) in hosts.0.iter_mut().zip(["leaf0", "leaf0", "leaf1"]) {
            host.tor = tor.into();
        }
        let mut matrix = Matrix::new(hosts);
        let took =
            |micros: u64| Outcome { round_trips_ns: vec![micros * 1000; 10], ..Outcome::default() };
        matrix.take(0, Ok(vec![took(20), took(22)]));
        matrix.take(1, Ok(vec![took(21), Outcome { lost: 2, ..took(23) }]));
        matrix.take(2, Ok(vec![took(95), took(20)]));
        matrix
    }

    #[test]
    fn outliers_are_marked() {
        let text = anstream::adapter::strip_str(&matrix().text()).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert_eq!((lines[1], lines[4]), ("leaf0", "leaf1"));
        assert!(lines[2].contains("20.0/20.0 us") && !lines[2].contains('!'), "{text}");
        assert!(lines[3].contains("17% lost!"), "{text}");
        assert!(lines[5].contains("95.0/95.0 us!"), "{text}");
        assert!(matrix().all_reached());
    }

    #[test]
    fn unreached_hosts_are_named() {
        let mut matrix = matrix();
        matrix.take(2, Err("nobody listens there".into()));
        let gone = Outcome { lost: 5, error: Some("no answer".into()), ..Outcome::default() };
        matrix.take(0, Ok(vec![Outcome::default(), gone]));
        let text = matrix.text();
        assert!(text.contains("10.0.1.1 did not ping: nobody listens there"), "{text}");
        assert!(text.contains("10.0.0.1 to 10.0.1.1: no answer"), "{text}");
        assert!(!matrix.all_reached());
        let report = serde_json::to_value(matrix.report()).unwrap();
        assert_eq!(report["unreachable"][0]["host"], "10.0.1.1");
        assert_eq!(report["pairs"].as_array().unwrap().len(), 6);
        let read: PingReport = serde_json::from_value(report).unwrap();
        assert!(read.pairs.iter().any(|pair| pair.error.as_deref() == Some("no answer")));
    }
}
