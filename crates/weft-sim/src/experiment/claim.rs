//! A claim: a comparison of a measured number with another, or with a number from the paper.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExperimentError, Reduce, Row, place};

/// A relation that must hold between two numbers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim in words.
    pub text: String,
    /// The paper's statement: a number with its unit, or its words.
    #[serde(default)]
    pub paper: String,
    /// `true` if the claim is the paper's and does not hold here; the experiment's `differs` gives the reason. If the
    /// claim holds after all, the file is out of date.
    #[serde(default)]
    pub differs: bool,
    /// The number on the left.
    pub left: Operand,
    /// The relation between them.
    #[serde(rename = "is")]
    pub comparison: Comparison,
    /// The number on the right.
    pub right: Operand,
    /// The factor of the right number.
    #[serde(default = "unscaled")]
    pub times: f64,
}

fn unscaled() -> f64 {
    1.0
}

/// A number: a measured one, or a constant.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Operand {
    /// A constant.
    Constant(f64),
    /// A measure of the matching rows.
    Measured(Measured),
}

/// A measure of some rows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The value or values of each axis that matching rows have, by axis name. Axes that are not named match any
    /// value.
    #[serde(default)]
    at: BTreeMap<String, Values>,
    /// The name of the measure, or of several.
    measure: Values,
    /// The values of a reference row, by axis name: each number is divided by the same measure there. With `balancer =
    /// "flowbender"` it is a row's ratio to FlowBender's.
    #[serde(default)]
    over: BTreeMap<String, String>,
    /// The reduction of several numbers to one; without it, there must be exactly one number.
    #[serde(default)]
    of: Option<Reduce>,
}

/// One value of an axis, or one measure, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

impl Values {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        }
    }
}

/// The relation between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Comparison {
    /// The left number is below the right.
    #[serde(rename = "<")]
    Below,
    /// The left number is above the right.
    #[serde(rename = ">")]
    Above,
    /// The left number is at most the right.
    #[serde(rename = "<=")]
    AtMost,
    /// The left number is at least the right.
    #[serde(rename = ">=")]
    AtLeast,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The claim in words.
    pub text: String,
    /// The paper's statement.
    pub paper: String,
    /// `true` if the claim holds.
    pub holds: bool,
    /// `true` if the claim is known not to hold.
    pub differs: bool,
    /// The number on the left.
    pub left: f64,
    /// The relation between them.
    pub comparison: Comparison,
    /// The number on the right, multiplied.
    pub right: f64,
}

impl Outcome {
    /// Returns `true` if the result is as the experiment's file states: the claim holds, or is known not to.
    pub fn as_stated(&self) -> bool {
        self.holds != self.differs
    }
}

impl Claim {
    /// Returns the claim's outcome on these rows.
    pub(super) fn evaluate(&self, rows: &[Row]) -> Result<Outcome, ExperimentError> {
        let left = self.number(&self.left, rows)?;
        let right = self.number(&self.right, rows)? * self.times;
        let holds = match self.comparison {
            Comparison::Below => left < right,
            Comparison::Above => left > right,
            Comparison::AtMost => left <= right,
            Comparison::AtLeast => left >= right,
        };
        Ok(Outcome {
            text: self.text.clone(),
            paper: self.paper.clone(),
            holds,
            differs: self.differs,
            left,
            comparison: self.comparison,
            right,
        })
    }

    /// Returns `true` if every run that the claim names is at one of the values in `kept`, by axis name.
    pub(super) fn is_within(&self, kept: &BTreeMap<String, Vec<String>>) -> bool {
        [&self.left, &self.right].into_iter().all(|operand| match operand {
            Operand::Constant(_) => true,
            Operand::Measured(measured) => kept.iter().all(|(axis, labels)| {
                let named = measured.at.get(axis).map_or(&[][..], Values::as_slice);
                named.iter().chain(measured.over.get(axis)).all(|value| labels.contains(value))
            }),
        })
    }

    fn number(&self, operand: &Operand, rows: &[Row]) -> Result<f64, ExperimentError> {
        match operand {
            Operand::Constant(value) => Ok(*value),
            Operand::Measured(measured) => measured
                .number(rows)
                .map_err(|what| ExperimentError::Claim { claim: self.text.clone(), what }),
        }
    }
}

/// The row or measure that a claim names and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNumber {
    /// No run has these values.
    #[error("a run with {at}")]
    Run {
        /// The values by axis.
        at: String,
    },
    /// The rows lack the measure.
    #[error("a measure {measure:?}")]
    Measure {
        /// The measure.
        measure: String,
    },
    /// There is not exactly one number with these values, and no reduction to one.
    #[error("one number with these values but {count}; `of` says what to take of several")]
    Several {
        /// Number of numbers.
        count: usize,
    },
}

impl Measured {
    /// Returns the number, or an error that names the rows or measure not found.
    fn number(&self, rows: &[Row]) -> Result<f64, NoNumber> {
        for (axis, values) in &self.at {
            let known = |value: &&String| rows.iter().any(|row| row.at.get(axis) == Some(value));
            if let Some(value) = values.as_slice().iter().find(|value| !known(value)) {
                return Err(NoNumber::Run { at: format!("{axis} = {value}") });
            }
        }
        let fits = |row: &&Row| {
            let mut axes = self.at.iter();
            axes.all(|(axis, values)| {
                row.at.get(axis).is_some_and(|at| values.as_slice().contains(at))
            })
        };
        let mut found = vec![];
        for row in rows.iter().filter(fits) {
            for measure in self.measure.as_slice() {
                found.push(self.value(row, measure, rows)?);
            }
        }
        match found.as_slice() {
            [only] => Ok(*only),
            several => self
                .of
                .and_then(|reduce| reduce.of(several))
                .ok_or(NoNumber::Several { count: several.len() }),
        }
    }
}

impl Measured {
    /// Returns a measure of a row, divided by that of its reference row.
    fn value(&self, row: &Row, measure: &str, rows: &[Row]) -> Result<f64, NoNumber> {
        let of = |row: &Row| {
            let value = row.measured.get(measure).copied();
            value.ok_or_else(|| NoNumber::Measure { measure: measure.to_owned() })
        };
        if self.over.is_empty() {
            return of(row);
        }
        let mut at = row.at.clone();
        at.extend(self.over.clone());
        let reference = rows.iter().find(|row| row.at == at);
        Ok(of(row)? / of(reference.ok_or_else(|| NoNumber::Run { at: place(&at) })?)?)
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Below => "<",
            Self::Above => ">",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        })
    }
}
