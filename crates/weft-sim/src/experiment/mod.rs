//! Experiments: a figure of a paper as a file. One base scenario, axes that vary it, measures read
//! from each run's report, and claims that compare them with each other and with the paper.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

mod claim;

pub use claim::{Claim, Comparison, Operand, Outcome};

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
    /// Each point is run once with each seed; measures are means over the seeds.
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
    /// Where its value goes in the scenario, dotted: `transport.paths`.
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
    /// Measure name to mean over the seeds.
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
    Syntax(#[from] toml::de::Error),
    /// An axis's key leads through something that is no table.
    #[error("axis {axis:?}: key {key:?} leads through {part:?}, which is not a table")]
    Key {
        /// The axis.
        axis: String,
        /// Its key.
        key: String,
        /// The part that is no table.
        part: String,
    },
    /// A report lacks a measure.
    #[error("measure {measure:?}: the report has no number at {value:?}")]
    Measure {
        /// The measure.
        measure: String,
        /// Where it was looked for.
        value: String,
    },
    /// A claim names no row.
    #[error("claim {claim:?}: no run has {what}")]
    Claim {
        /// The claim's text.
        claim: String,
        /// What was looked for.
        what: String,
    },
}

impl Experiment {
    /// Reads an experiment.
    ///
    /// # Errors
    /// The line and key that is wrong.
    pub fn parse(text: &str) -> Result<Self, ExperimentError> {
        Ok(toml::from_str(text)?)
    }

    /// Every combination of the axes' values, the last axis varying fastest.
    ///
    /// # Errors
    /// An axis's key does not lead into the scenario.
    pub fn points(&self) -> Result<Vec<Point>, ExperimentError> {
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
            let mut sum = 0.0;
            for report in reports {
                sum += measure.read(report)?;
            }
            let seeds = u32::try_from(reports.len().max(1)).unwrap_or(u32::MAX);
            measured.insert(measure.name.clone(), sum / f64::from(seeds));
        }
        Ok(Row { at: point.at.clone(), measured })
    }

    /// Holds the claims against the rows.
    ///
    /// # Errors
    /// A claim names a row or measure that does not exist.
    pub fn judge(&self, rows: Vec<Row>) -> Result<Findings, ExperimentError> {
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
        let mut parts: Vec<&str> = self.key.split('.').collect();
        let last = parts.pop().unwrap_or_default();
        let mut table = scenario;
        for part in parts {
            let entry = table.entry(part).or_insert_with(|| Table::new().into());
            let not_a_table = || ExperimentError::Key {
                axis: self.name.clone(),
                key: self.key.clone(),
                part: part.to_owned(),
            };
            table = entry.as_table_mut().ok_or_else(not_a_table)?;
        }
        match (table.get_mut(last).and_then(toml::Value::as_table_mut), value) {
            (Some(old), toml::Value::Table(new)) => old.extend(new.clone()),
            _ => {
                table.insert(last.to_owned(), value.clone());
            }
        }
        Ok(())
    }
}

impl Measure {
    fn read(&self, report: &Value) -> Result<f64, ExperimentError> {
        let missing =
            || ExperimentError::Measure { measure: self.name.clone(), value: self.value.clone() };
        let step = |value: &Value, part: &str| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?).cloned(),
            other => other.get(part).cloned(),
        };
        let found =
            self.value.split('.').try_fold(report.clone(), |value, part| step(&value, part));
        Ok(found.and_then(|value| value.as_f64()).ok_or_else(missing)? * self.scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        title = "t"
        source = "s"
        paper = "p"
        differs = "d"
        seeds = [1, 2]
        scenario.transport.paths = 1
        axes = [
            { name = "policy", key = "transport.policy", values = ["single", "oblivious"] },
            { name = "paths", key = "transport.paths", values = [4, 128] },
        ]
        measures = [{ name = "queue", value = "queues.0.mean", scale = 0.5, unit = "KB" }]
        [[claims]]
        text = "more paths, shorter queues"
        left = { at = { policy = "oblivious", paths = "128" }, measure = "queue" }
        is = "<"
        right = { at = { policy = "oblivious", paths = "4" }, measure = "queue" }
    "#;

    fn report(mean: f64) -> Value {
        serde_json::json!({ "queues": [{ "mean": mean }] })
    }

    #[test]
    fn the_points_are_all_combinations() {
        let points = Experiment::parse(TEXT).unwrap().points().unwrap();
        let at: Vec<_> =
            points.iter().map(|p| (p.at["policy"].as_str(), p.at["paths"].as_str())).collect();
        let expected =
            [("single", "4"), ("single", "128"), ("oblivious", "4"), ("oblivious", "128")];
        assert_eq!(at, expected);
        assert_eq!(points[3].scenario["transport"]["paths"].as_integer(), Some(128));
    }

    #[test]
    fn measures_are_means_over_the_seeds_and_claims_compare_them() {
        let experiment = Experiment::parse(TEXT).unwrap();
        let points = experiment.points().unwrap();
        let rows = points
            .iter()
            .zip([(9.0, 9.0), (9.0, 9.0), (4.0, 8.0), (1.0, 3.0)])
            .map(|(point, (a, b))| experiment.measure(point, &[report(a), report(b)]).unwrap())
            .collect();
        let findings = experiment.judge(rows).unwrap();
        assert_eq!(findings.rows[2].measured["queue"], 3.0);
        assert!(findings.claims[0].holds);
        assert_eq!((findings.claims[0].left, findings.claims[0].right), (1.0, 3.0));
    }

    #[test]
    fn what_is_missing_is_named() {
        let experiment = Experiment::parse(TEXT).unwrap();
        let point = &experiment.points().unwrap()[0];
        let error = experiment.measure(point, &[serde_json::json!({})]).unwrap_err();
        let text = r#"measure "queue": the report has no number at "queues.0.mean""#;
        assert_eq!(error.to_string(), text);
        let error = experiment.judge(Vec::new()).unwrap_err().to_string();
        assert!(error.contains("no run has paths = 128, policy = oblivious"), "{error}");
        let error = Experiment::parse("title = 3").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
