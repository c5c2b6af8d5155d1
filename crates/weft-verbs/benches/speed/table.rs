//! Contenders that take turns, and the table of their results.

use weft_testkit::{figure_row, json};

/// The direction in which a figure is better.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Better {
    Less,
    More,
}

type Measure<'a> = Box<dyn FnMut() -> Option<f64> + 'a>;

/// A table whose first row is compared with each other one.
pub(crate) struct Table<'a> {
    title: String,
    unit: &'static str,
    better: Better,
    /// The measure's name in the rows of `docs/performance/rdma.md`; `None` for a table that is not recorded.
    recorded: Option<&'static str>,
    rows: Vec<(String, Measure<'a>)>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(title: &str, unit: &'static str, better: Better) -> Self {
        Self { title: title.into(), unit, better, recorded: None, rows: Vec::new() }
    }

    /// Records the figures of each round under this measure.
    pub(crate) fn recorded(mut self, measure: &'static str) -> Self {
        self.recorded = Some(measure);
        self
    }

    /// Adds a contender; a run that returns `None` failed.
    pub(crate) fn row(&mut self, name: &str, measure: impl FnMut() -> Option<f64> + 'a) {
        self.rows.push((name.into(), Box::new(measure)));
    }

    /// Measures all contenders in turns, and prints the table.
    pub(crate) fn measure(mut self, rounds: usize) {
        let mut figures = vec![Vec::new(); self.rows.len()];
        for _ in 0..rounds {
            for ((_, measure), figures) in self.rows.iter_mut().zip(&mut figures) {
                figures.push(measure());
            }
        }
        self.record(&figures);
        println!("\n{} ({}, {:?} is better, {rounds} rounds)", self.title, self.unit, self.better);
        println!("{:<34} {:>10} {:>22} {:>14}", "", "median", "least to most", "first / this");
        for ((name, _), own) in self.rows.iter().zip(&figures) {
            let ratios = figures[0].iter().zip(own).filter_map(|(a, b)| Some((*a)? / (*b)?));
            let ratio = median(ratios.collect());
            let measured: Vec<f64> = own.iter().copied().flatten().collect();
            let least = measured.iter().copied().fold(f64::INFINITY, f64::min);
            let most = measured.iter().copied().fold(0.0, f64::max);
            match (median(measured), ratio) {
                (Some(median), ratio) => println!(
                    "{name:<34} {median:>10.3} {:>22} {:>14}",
                    format!("{least:.3} to {most:.3}"),
                    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
                ),
                (None, _) => println!("{name:<34} {:>10}", "failed"),
            }
        }
    }
}

impl Table<'_> {
    /// Records a row for each round of each contender.
    fn record(&self, figures: &[Vec<Option<f64>>]) {
        let Some(measure) = self.recorded else { return };
        for ((program, _), own) in self.rows.iter().zip(figures) {
            for figure in own.iter().flatten() {
                figure_row("perf-rdma", &json!({ "program": program, measure: figure }));
            }
        }
    }
}

/// Returns the median: the middle value, or the mean of the two in the middle.
pub(crate) fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let middle = of.len().checked_sub(1)? / 2;
    Some((of[middle] + of[of.len() / 2]) / 2.0)
}
