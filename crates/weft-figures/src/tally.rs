//! A record of a run of several figures: a line for each figure when it ends, and a table of all figures at the end.

use weft_report::{Cell, Column, Table};
use weft_sim::experiment::{Outcome, Verdict, number};

use crate::Entry;

/// The outcomes of a run's figures, in the order of the run.
#[derive(Clone, Debug, Default)]
pub struct Tally(Vec<Figure>);

#[derive(Clone, Debug)]
struct Figure {
    name: String,
    end: Ending,
    seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Reproduced(Verdict),
    Skipped,
    Failed,
}

impl Tally {
    /// Records a reproduced figure. Returns a line with its verdict, and a line for each claim whose outcome
    /// contradicts its file.
    pub fn record_reproduced(&mut self, entry: &Entry) -> String {
        let seconds = entry.recorded.as_ref().and_then(|recorded| recorded.made.seconds);
        let name = entry.figure.name.clone();
        let claims = entry.findings.as_ref().map_or(&[][..], |findings| &findings.claims);
        let stated = claims.iter().filter(|claim| claim.as_stated()).count();
        let mut text = format!("{name}: {}", entry.verdict);
        if !claims.is_empty() {
            text += &format!(", {stated} of {} claims as stated", claims.len());
        }
        text += &seconds.map_or_else(String::new, |seconds| format!(", {seconds} s"));
        for Outcome { text: claim, left, comparison, right, .. } in
            claims.iter().filter(|claim| !claim.as_stated())
        {
            let [left, right] = [left, right].map(|value| number(*value));
            text += &format!("\n  ✗ {claim}: {left}, wanted {comparison} {right}");
        }
        self.0.push(Figure { name, end: Ending::Reproduced(entry.verdict), seconds });
        text
    }

    /// Records a figure that the time budget excluded. Returns the line for it.
    pub fn record_skipped(&mut self, name: &str) -> String {
        self.0.push(Figure { name: name.into(), end: Ending::Skipped, seconds: None });
        format!("{name}: left out")
    }

    /// Records a figure that could not be run.
    pub fn record_failed(&mut self, name: &str) {
        self.0.push(Figure { name: name.into(), end: Ending::Failed, seconds: None });
    }

    /// Returns `true` if no figure failed or is out of date.
    pub fn is_success(&self) -> bool {
        let bad = [Ending::Failed, Ending::Reproduced(Verdict::OutOfDate)];
        !self.0.iter().any(|figure| bad.contains(&figure.end))
    }

    /// Returns the number of recorded figures.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if no figure was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns one row per figure with its outcome and its duration in seconds, and their sum.
    pub fn table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("figure", "figure"),
            Column::text("verdict", "verdict"),
            Column::number("seconds", "seconds"),
        ]);
        let seconds = |seconds: f64| Cell::new(format!("{seconds:.1}"), seconds);
        for figure in &self.0 {
            let end = match figure.end {
                Ending::Reproduced(verdict) => verdict.to_string(),
                Ending::Skipped => "left out".into(),
                Ending::Failed => "cannot be run".into(),
            };
            let took = figure.seconds.map_or_else(Cell::missing, seconds);
            table.push(vec![figure.name.clone().into(), end.into(), took]);
        }
        let sum = self.0.iter().filter_map(|figure| figure.seconds).sum();
        table.push(vec!["all".into(), "".into(), seconds(sum)]);
        table
    }
}
