//! Experiments: a figure of a paper, or a topic of Weft's own performance, as a file. Its rows come from one base
//! scenario that axes vary, or from a bench that prints them; a figure may also be unavailable here. Measures are read
//! from the rows, and claims compare these with each other and with the paper.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

use crate::compare::{Estimate, UnknownBalancer};
use crate::scenario::{Scenario, ScenarioError, Variant};

mod axis;
mod claim;
mod in_tests;
mod reduce;
mod source;
mod summary;
mod verdict;

pub use axis::Axis;
pub use claim::{Claim, Comparison, Measured, NoNumber, Operand, Outcome};
pub use in_tests::InTests;
pub use reduce::Reduce;
pub use source::{Bench, Missing, PaperValue, Source};
pub use summary::number;
pub use verdict::Verdict;

/// A figure of a paper, or a topic of Weft's own performance, as a file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The measured quantity, in one line.
    pub title: String,
    /// The paper, section and figure, or the topic.
    pub source: String,
    /// The paper's statement and the figure's content, in a sentence or two. A topic has none: its claims are Weft's
    /// own targets.
    #[serde(default)]
    pub paper: String,
    /// The difference between our result and the paper's, or the targets, with the reason, in one sentence. A missing
    /// figure has none.
    #[serde(default)]
    pub differs: String,
    /// The seeds: each point is run once with each. Measures are means over the seeds unless they state otherwise.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// The scenario every run starts from, where rows are simulated.
    #[serde(default)]
    #[schemars(with = "Scenario")]
    pub scenario: Table,
    /// The program that measures the rows, where one does.
    #[serde(default)]
    pub bench: Option<Bench>,
    /// The reason why there are no rows, where the figure cannot be measured here.
    #[serde(default)]
    pub missing: Option<Missing>,
    /// The varied settings; simulated runs are all combinations.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// The numbers read from each run.
    #[serde(default)]
    pub measures: Vec<Measure>,
    /// The paper's own numbers, drawn beside ours.
    #[serde(default)]
    pub values: Vec<PaperValue>,
    /// Our result in a sentence, with `{measure; axis = value}` for each number.
    #[serde(default)]
    pub here: String,
    /// The part that every run of the tests repeats, with the claims about it: a part that takes seconds.
    #[serde(default)]
    pub in_tests: InTests,
    /// The relations that must hold.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

/// One number read from each run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// The measure's name in tables and claims.
    pub name: String,
    /// The dotted key in the report: `queues.mean_bytes`.
    pub value: String,
    /// The factor it is multiplied by.
    #[serde(default = "unscaled")]
    pub scale: f64,
    /// The unit after scaling.
    #[serde(default)]
    pub unit: String,
    /// The reduction of the seeds' values, or of their ratios.
    #[serde(default)]
    pub of_seeds: Reduce,
    /// `true` if runs may lack it: a program that measures only a rate has no latency.
    #[serde(default)]
    pub optional: bool,
    /// The values of a reference point, by axis name: each seed's value is divided by the value of the same seed
    /// there. With `loss = "0"` it is the share of the loss-free result that remains.
    #[serde(default)]
    pub over: BTreeMap<String, String>,
}

fn unscaled() -> f64 {
    1.0
}

/// One combination of the axes' values.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Axis name to value, as text.
    pub at: BTreeMap<String, String>,
    /// The scenario to run.
    pub scenario: Table,
}

/// The measured values of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Axis name to value, as text.
    pub at: BTreeMap<String, String>,
    /// Measure name to its value over the seeds.
    pub measured: BTreeMap<String, f64>,
    /// Half of the 95 % confidence interval of each measure that is a mean, by measure name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<String, f64>,
    /// Measure name to each seed's value.
    #[serde(skip)]
    pub seeds: BTreeMap<String, Vec<f64>>,
}

impl Row {
    /// Records the seeds' values of a measure; returns `None` if there are none.
    fn record(&mut self, measure: &Measure, values: Vec<f64>) -> Option<()> {
        let name = &measure.name;
        self.measured.insert(name.clone(), measure.of_seeds.of(&values)?);
        self.record_spread(measure, &values);
        self.seeds.insert(name.clone(), values);
        Some(())
    }

    /// Records the half-width of the confidence interval, if the measure is a mean of several values.
    fn record_spread(&mut self, measure: &Measure, values: &[f64]) {
        let is_mean = measure.of_seeds == Reduce::Mean;
        let estimate = Estimate::of(values).filter(|_| is_mean);
        if let Some(half_width) = estimate.and_then(|estimate| estimate.half_width) {
            self.spread.insert(measure.name.clone(), half_width);
        }
    }
}

/// The results of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// One row for each point, in the order of the axes.
    pub rows: Vec<Row>,
    /// One outcome for each claim.
    pub claims: Vec<Outcome>,
}

/// The reason why an experiment's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The text is not the expected TOML.
    #[error("{0}")]
    Syntax(ScenarioError),
    /// The file names no source of rows, or several; or a part does not fit the source.
    #[error("{0}")]
    Source(String),
    /// A bench's row lacks an axis.
    #[error("axis {axis:?}: a row of the bench has none: {row}")]
    Axis {
        /// The axis.
        axis: String,
        /// The row.
        row: String,
    },
    /// An axis's key leads through something that is no table, or past the end of a list.
    #[error("axis {axis:?}: key {key:?} leads nowhere below {part:?}")]
    Key {
        /// The axis.
        axis: String,
        /// The axis's key.
        key: String,
        /// The part of the key that has nothing below it.
        part: String,
    },
    /// The scenario's variants are not a list of variants.
    #[error("[[scenario.variant]]: {}", .0.message())]
    Variants(toml::de::Error),
    /// An axis names a balancer that does not exist.
    #[error("axis {axis:?}: {error}")]
    Balancer {
        /// The axis.
        axis: String,
        /// The unknown balancer.
        error: UnknownBalancer,
    },
    /// The axes have too many combinations.
    #[error("the axes have {got} combinations, expected at most {MAX_POINTS}")]
    TooMany {
        /// Number of combinations, saturating.
        got: u64,
    },
    /// A report lacks a measure.
    #[error("measure {measure:?}: the report has no number at {value:?}")]
    Measure {
        /// The measure.
        measure: String,
        /// The key looked for in the report.
        value: String,
    },
    /// A measure is a ratio to a row that does not exist.
    #[error("measure {measure:?}: there is not a run with {over} for each run")]
    Unrelated {
        /// The measure.
        measure: String,
        /// The values of the reference row.
        over: String,
    },
    /// A claim names no row.
    #[error("claim {claim:?}: there is not {what}")]
    Claim {
        /// The claim's text.
        claim: String,
        /// The row or measure that does not exist.
        what: NoNumber,
    },
}

/// Maximum number of points of an experiment.
pub const MAX_POINTS: u64 = 100_000;

impl Experiment {
    /// Reads an experiment.
    ///
    /// # Errors
    /// The text is not valid TOML, has an unknown key, or its parts do not fit together. An error of syntax names the
    /// line.
    pub fn parse(text: &str) -> Result<Self, ExperimentError> {
        let experiment: Self = toml::from_str(text)
            .map_err(|error| ExperimentError::Syntax(ScenarioError::syntax(&error, text)))?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Returns every combination of the axes' values, the last axis varying fastest.
    ///
    /// # Errors
    /// An axis's key does not exist in the scenario, or there are more than [`MAX_POINTS`].
    pub fn points(&self) -> Result<Vec<Point>, ExperimentError> {
        let counts = self.axes.iter().map(|axis| axis.values.len().max(1) as u64);
        let got = counts.fold(1, u64::saturating_mul);
        if got > MAX_POINTS {
            return Err(ExperimentError::TooMany { got });
        }
        let variants = self.variants()?;
        let mut points = vec![Point { at: BTreeMap::new(), scenario: self.scenario.clone() }];
        for axis in &self.axes {
            let mut varied = Vec::with_capacity(points.len() * axis.values.len());
            for point in &points {
                for (index, value) in axis.values.iter().enumerate() {
                    let mut at = point.at.clone();
                    at.insert(axis.name.clone(), axis.label(index));
                    let scenario = axis.apply(&point.scenario, value, &variants)?;
                    varied.push(Point { at, scenario });
                }
            }
            points = varied;
        }
        Ok(points)
    }

    /// Returns the balancers that the scenario itself names.
    fn variants(&self) -> Result<Vec<Variant>, ExperimentError> {
        let listed = self.scenario.get("variant").cloned();
        let read = |list: toml::Value| list.try_into().map_err(ExperimentError::Variants);
        listed.map_or_else(|| Ok(vec![]), read)
    }

    /// Reads the measures of one point from its reports, one for each seed.
    ///
    /// # Errors
    /// A report lacks a measure.
    pub fn measure(&self, point: &Point, reports: &[Value]) -> Result<Row, ExperimentError> {
        let mut row = Row { at: point.at.clone(), ..Row::default() };
        for measure in &self.measures {
            let values = reports.iter().map(|report| measure.read(report));
            match values.collect::<Result<Vec<_>, _>>() {
                Err(_) if measure.optional => {}
                values => row.record(measure, values?).ok_or_else(|| measure.missing())?,
            }
        }
        Ok(row)
    }

    /// Divides measures by those of their reference rows, and evaluates the claims.
    ///
    /// # Errors
    /// A measure or a claim names a row or measure that does not exist.
    pub fn evaluate(&self, mut rows: Vec<Row>) -> Result<Findings, ExperimentError> {
        for measure in self.measures.iter().filter(|measure| !measure.over.is_empty()) {
            measure.relate(&mut rows)?;
        }
        self.evaluate_related(rows)
    }

    /// Evaluates the claims on rows whose measures are already divided, as those of [`Findings`] are.
    ///
    /// # Errors
    /// A claim names a row or measure that does not exist.
    pub fn evaluate_related(&self, rows: Vec<Row>) -> Result<Findings, ExperimentError> {
        let claims =
            self.claims.iter().map(|claim| claim.evaluate(&rows)).collect::<Result<_, _>>()?;
        Ok(Findings { rows, claims })
    }
}

/// Returns values of axes as text: `paths = 4, policy = dwrr`.
pub fn place(at: &BTreeMap<String, String>) -> String {
    at.iter().map(|(axis, value)| format!("{axis} = {value}")).collect::<Vec<_>>().join(", ")
}

impl Measure {
    fn read(&self, report: &Value) -> Result<f64, ExperimentError> {
        let found = self.value.split('.').try_fold(report, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            other => other.get(part),
        });
        let number = found.and_then(Value::as_f64).ok_or_else(|| self.missing())?;
        Ok(number * self.scale)
    }

    /// Divides each seed's value by the reference row's with the same seed, which had the same arrivals: the worst
    /// seed is the one with the lowest ratio, not the one with the lowest value.
    fn relate(&self, rows: &mut [Row]) -> Result<(), ExperimentError> {
        let shares = rows.iter().map(|row| self.shares(row, rows));
        let shares = shares.collect::<Result<Vec<Option<Vec<f64>>>, ExperimentError>>()?;
        for (row, shares) in rows.iter_mut().zip(shares) {
            if let Some(shares) = shares {
                row.record(self, shares).ok_or_else(|| self.missing())?;
            }
        }
        Ok(())
    }

    /// Returns each seed's value divided by the reference row's; `None` for a row without the measure.
    fn shares(&self, row: &Row, rows: &[Row]) -> Result<Option<Vec<f64>>, ExperimentError> {
        let Some(values) = row.seeds.get(&self.name) else { return Ok(None) };
        let mut at = row.at.clone();
        at.extend(self.over.clone());
        let reference = rows.iter().find(|row| row.at == at);
        let of = reference.and_then(|row| row.seeds.get(&self.name));
        let pairs = values.iter().zip(of.ok_or_else(|| self.unrelated())?);
        Ok(Some(pairs.map(|(value, of)| value / of * self.scale).collect()))
    }

    fn unrelated(&self) -> ExperimentError {
        ExperimentError::Unrelated { measure: self.name.clone(), over: place(&self.over) }
    }

    fn missing(&self) -> ExperimentError {
        ExperimentError::Measure { measure: self.name.clone(), value: self.value.clone() }
    }
}

#[cfg(test)]
mod tests;
