//! Experiments: a figure of a paper as a file. One base scenario, axes that vary it, measures read
//! from each run's report, and claims that compare them with each other and with the paper.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

use crate::scenario::ScenarioError;

mod claim;
mod reduce;

pub use claim::{Claim, Comparison, Measured, Operand, Outcome};
pub use reduce::Reduce;

/// A figure of a paper as a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What is measured, in one line.
    pub title: String,
    /// Paper, section and figure.
    pub source: String,
    /// What the paper says and shows, in a sentence or two.
    pub paper: String,
    /// Where our result differs from the paper and why, in one sentence.
    pub differs: String,
    /// Each point is run once with each seed; measures are means over the seeds unless they say
    /// otherwise.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// The scenario every run starts from.
    pub scenario: Table,
    /// What varies; the runs are all combinations.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// What is read from each run.
    pub measures: Vec<Measure>,
    /// What must hold.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

/// One thing that varies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name in tables and claims.
    pub name: String,
    /// Where its value goes in the scenario, dotted: `transport.paths`, `workload.0.size`.
    pub key: String,
    /// The values.
    pub values: Vec<toml::Value>,
    /// What each value is called, where its own text does not do.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// One number read from each run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its name in tables and claims.
    pub name: String,
    /// Where it stands in the report, dotted: `queues.mean_bytes`.
    pub value: String,
    /// What it is multiplied by.
    #[serde(default = "unscaled")]
    pub scale: f64,
    /// Its unit after scaling.
    #[serde(default)]
    pub unit: String,
    /// What is taken of the seeds' values.
    #[serde(default)]
    pub of_seeds: Reduce,
    /// Divided by the same measure of the point that has these values instead, axis name to value:
    /// what it keeps of its own with `loss = "0"`.
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

/// What a point measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Axis name to value, as text.
    pub at: BTreeMap<String, String>,
    /// Measure name to its value over the seeds.
    pub measured: BTreeMap<String, f64>,
}

/// What an experiment found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// One row for each point, in the order of the axes.
    pub rows: Vec<Row>,
    /// One outcome for each claim.
    pub claims: Vec<Outcome>,
}

/// Why an experiment's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Not the TOML that was expected.
    #[error("{0}")]
    Syntax(ScenarioError),
    /// An axis's key leads through something that is no table, or past the end of a list.
    #[error("axis {axis:?}: key {key:?} leads nowhere below {part:?}")]
    Key {
        /// The axis.
        axis: String,
        /// Its key.
        key: String,
        /// The part below which there is nothing.
        part: String,
    },
    /// More combinations than anybody would wait for.
    #[error("the axes have {got} combinations, expected at most {MAX_POINTS}")]
    TooMany {
        /// How many, or the most that can be counted.
        got: u64,
    },
    /// A report lacks a measure.
    #[error("measure {measure:?}: the report has no number at {value:?}")]
    Measure {
        /// The measure.
        measure: String,
        /// Where it was looked for.
        value: String,
    },
    /// A measure is a share of a row that does not exist.
    #[error("measure {measure:?}: there is not a run with {over} for each run")]
    Unrelated {
        /// The measure.
        measure: String,
        /// Which row it is a share of.
        over: String,
    },
    /// A claim names no row.
    #[error("claim {claim:?}: there is not {what}")]
    Claim {
        /// The claim's text.
        claim: String,
        /// What was looked for.
        what: String,
    },
}

/// Most points an experiment may have.
pub const MAX_POINTS: u64 = 100_000;

impl Experiment {
    /// Reads an experiment.
    ///
    /// # Errors
    /// The line and key that is wrong.
    pub fn parse(text: &str) -> Result<Self, ExperimentError> {
        toml::from_str(text)
            .map_err(|error| ExperimentError::Syntax(ScenarioError::syntax(&error, text)))
    }

    /// Every combination of the axes' values, the last axis varying fastest.
    ///
    /// # Errors
    /// An axis's key does not lead into the scenario, or there are more than [`MAX_POINTS`].
    pub fn points(&self) -> Result<Vec<Point>, ExperimentError> {
        let counts = self.axes.iter().map(|axis| axis.values.len().max(1) as u64);
        let got = counts.fold(1, u64::saturating_mul);
        if got > MAX_POINTS {
            return Err(ExperimentError::TooMany { got });
        }
        let mut points = vec![Point { at: BTreeMap::new(), scenario: self.scenario.clone() }];
        for axis in &self.axes {
            let mut varied = Vec::with_capacity(points.len() * axis.values.len());
            for point in &points {
                for (index, value) in axis.values.iter().enumerate() {
                    let mut point = point.clone();
                    point.at.insert(axis.name.clone(), axis.label(index));
                    axis.write(&mut point.scenario, value)?;
                    varied.push(point);
                }
            }
            points = varied;
        }
        Ok(points)
    }

    /// Reads the measures of one point from its reports, one for each seed.
    ///
    /// # Errors
    /// A report lacks a measure.
    pub fn measure(&self, point: &Point, reports: &[Value]) -> Result<Row, ExperimentError> {
        let mut measured = BTreeMap::new();
        for measure in &self.measures {
            let values = reports.iter().map(|report| measure.read(report));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let value = measure.of_seeds.of(&values).ok_or_else(|| measure.missing())?;
            measured.insert(measure.name.clone(), value);
        }
        Ok(Row { at: point.at.clone(), measured })
    }

    /// Relates rows to each other where measures ask for it, and holds the claims against them.
    ///
    /// # Errors
    /// A measure or a claim names a row or measure that does not exist.
    pub fn judge(&self, mut rows: Vec<Row>) -> Result<Findings, ExperimentError> {
        for measure in self.measures.iter().filter(|measure| !measure.over.is_empty()) {
            measure.relate(&mut rows)?;
        }
        let claims =
            self.claims.iter().map(|claim| claim.judge(&rows)).collect::<Result<_, _>>()?;
        Ok(Findings { rows, claims })
    }
}

impl Axis {
    fn label(&self, index: usize) -> String {
        let value = || match &self.values[index] {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.labels.get(index).cloned().unwrap_or_else(value)
    }

    /// Writes `value` where the key leads. A table is merged into the one that is there.
    fn write(&self, scenario: &mut Table, value: &toml::Value) -> Result<(), ExperimentError> {
        let mut parts = self.key.split('.');
        let mut part = parts.next().unwrap_or_default();
        let mut slot = scenario.entry(part).or_insert_with(|| Table::new().into());
        for next in parts {
            slot = step_into(slot, next).ok_or_else(|| ExperimentError::Key {
                axis: self.name.clone(),
                key: self.key.clone(),
                part: part.to_owned(),
            })?;
            part = next;
        }
        match (slot, value) {
            (toml::Value::Table(old), toml::Value::Table(new)) => old.extend(new.clone()),
            (slot, value) => *slot = value.clone(),
        }
        Ok(())
    }
}

/// What `part` names in a table, made where it is not there yet, or in a list, counting from zero.
fn step_into<'a>(value: &'a mut toml::Value, part: &str) -> Option<&'a mut toml::Value> {
    match value {
        toml::Value::Table(table) => Some(table.entry(part).or_insert_with(|| Table::new().into())),
        toml::Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    }
}

impl Measure {
    fn read(&self, report: &Value) -> Result<f64, ExperimentError> {
        let step = |value: &Value, part: &str| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?).cloned(),
            other => other.get(part).cloned(),
        };
        let found =
            self.value.split('.').try_fold(report.clone(), |value, part| step(&value, part));
        let number = found.and_then(|value| value.as_f64()).ok_or_else(|| self.missing())?;
        Ok(number * self.scale)
    }

    /// Makes each row's value the share of its reference row's.
    fn relate(&self, rows: &mut [Row]) -> Result<(), ExperimentError> {
        let shares = rows.iter().map(|row| {
            let mut at = row.at.clone();
            at.extend(self.over.clone());
            let reference = rows.iter().find(|row| row.at == at).ok_or_else(|| self.unrelated())?;
            let value = |row: &Row| row.measured.get(&self.name).copied().unwrap_or(f64::NAN);
            Ok(value(row) / value(reference) * self.scale)
        });
        let shares = shares.collect::<Result<Vec<f64>, ExperimentError>>()?;
        for (row, share) in rows.iter_mut().zip(shares) {
            row.measured.insert(self.name.clone(), share);
        }
        Ok(())
    }

    fn unrelated(&self) -> ExperimentError {
        let parts = self.over.iter().map(|(axis, value)| format!("{axis} = {value}"));
        let over = parts.collect::<Vec<_>>().join(", ");
        ExperimentError::Unrelated { measure: self.name.clone(), over }
    }

    fn missing(&self) -> ExperimentError {
        ExperimentError::Measure { measure: self.name.clone(), value: self.value.clone() }
    }
}

#[cfg(test)]
mod tests;
