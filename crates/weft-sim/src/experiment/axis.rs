//! The axes of an experiment: the varied settings, and the keys their values are written to.

use schemars::JsonSchema;
use serde::Deserialize;
use toml::{Table, Value};

use super::ExperimentError;
use crate::compare::resolve;
use crate::scenario::Variant;

/// The key of an axis whose values are names of balancers, each a set of keys.
const VARIANT: &str = "variant";

/// A setting that varies.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The axis's name in tables and claims.
    pub name: String,
    /// The dotted key in the scenario: `transport.paths`, `workload.0.size`. Values of `variant` are balancers by
    /// name, as [`resolve`] finds them, the scenario's own variants first. An axis of a bench has no key: the bench's
    /// rows hold the values.
    #[serde(default)]
    pub key: String,
    /// The values.
    #[serde(default)]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub values: Vec<Value>,
    /// The label of each value, where its own text is not enough.
    #[serde(default)]
    pub labels: Vec<String>,
}

impl Axis {
    /// Returns the label of the value at this index.
    pub(super) fn label(&self, index: usize) -> String {
        let value = || match &self.values[index] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.labels.get(index).cloned().unwrap_or_else(value)
    }

    /// Returns the labels of its values, in their order.
    pub(super) fn labels(&self) -> Vec<String> {
        (0..self.values.len()).map(|index| self.label(index)).collect()
    }

    /// Returns the axis with only the values that have these labels.
    pub(super) fn only(&self, labels: &[String]) -> Self {
        let all = self.labels().into_iter().zip(&self.values);
        let kept = all.filter(|(label, _)| labels.contains(label));
        let (labels, values) = kept.map(|(label, value)| (label, value.clone())).unzip();
        Self { labels, values, ..self.clone() }
    }

    /// Returns the scenario with `value` in it.
    pub(super) fn apply(
        &self,
        scenario: &Table,
        value: &Value,
        variants: &[Variant],
    ) -> Result<Table, ExperimentError> {
        if self.key == VARIANT {
            let name = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let variant = resolve(&name, variants);
            let axis = self.name.clone();
            let variant = variant.map_err(|error| ExperimentError::Balancer { axis, error })?;
            return Ok(variant.apply(scenario));
        }
        let mut changed = scenario.clone();
        self.write(&mut changed, value)?;
        Ok(changed)
    }

    /// Writes `value` at the key. A table is merged into an existing one.
    fn write(&self, scenario: &mut Table, value: &Value) -> Result<(), ExperimentError> {
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
            (Value::Table(old), Value::Table(new)) => old.extend(new.clone()),
            (slot, value) => *slot = value.clone(),
        }
        Ok(())
    }
}

/// Returns the entry `part` of a table, created if absent, or of a list, counting from zero.
fn step_into<'a>(value: &'a mut Value, part: &str) -> Option<&'a mut Value> {
    match value {
        Value::Table(table) => Some(table.entry(part).or_insert_with(|| Table::new().into())),
        Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    }
}
