//! A claim: one measured number against another, or against a number from the paper.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ExperimentError, Row};

/// What must hold between two numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim in words.
    pub text: String,
    /// The number on the left.
    pub left: Operand,
    /// How they compare.
    #[serde(rename = "is")]
    pub comparison: Comparison,
    /// The number on the right.
    pub right: Operand,
    /// The right number is multiplied by this.
    #[serde(default = "once")]
    pub times: f64,
}

fn once() -> f64 {
    1.0
}

/// A number: one that was measured, or a constant.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Operand {
    /// A constant.
    Constant(f64),
    /// A measure of one row. Axes that are not named may have any value; the first row that fits is
    /// taken.
    Measured {
        /// Axis name to value.
        #[serde(default)]
        at: BTreeMap<String, String>,
        /// Which measure.
        measure: String,
    },
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Comparison {
    /// Left is below right.
    #[serde(rename = "<")]
    Below,
    /// Left is above right.
    #[serde(rename = ">")]
    Above,
    /// Left is at most right.
    #[serde(rename = "<=")]
    AtMost,
    /// Left is at least right.
    #[serde(rename = ">=")]
    AtLeast,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The claim in words.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
    /// The number on the left.
    pub left: f64,
    /// How they were compared.
    pub comparison: Comparison,
    /// The number on the right, multiplied.
    pub right: f64,
}

impl Claim {
    pub(super) fn judge(&self, rows: &[Row]) -> Result<Outcome, ExperimentError> {
        let left = self.number(&self.left, rows)?;
        let right = self.number(&self.right, rows)? * self.times;
        let holds = match self.comparison {
            Comparison::Below => left < right,
            Comparison::Above => left > right,
            Comparison::AtMost => left <= right,
            Comparison::AtLeast => left >= right,
        };
        Ok(Outcome { text: self.text.clone(), holds, left, comparison: self.comparison, right })
    }

    fn number(&self, operand: &Operand, rows: &[Row]) -> Result<f64, ExperimentError> {
        let (at, measure) = match operand {
            Operand::Constant(value) => return Ok(*value),
            Operand::Measured { at, measure } => (at, measure),
        };
        let missing = |what: String| ExperimentError::Claim { claim: self.text.clone(), what };
        let fits = |row: &&Row| at.iter().all(|(axis, value)| row.at.get(axis) == Some(value));
        let row = rows.iter().find(fits).ok_or_else(|| {
            let parts: Vec<_> =
                at.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
            missing(parts.join(", "))
        })?;
        row.measured.get(measure).copied().ok_or_else(|| missing(format!("a measure {measure:?}")))
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
