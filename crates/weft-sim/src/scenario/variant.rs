//! Variants: named changes that a comparison makes in a scenario.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toml::Table;

use super::Scenario;
use super::transport::merge;

/// A named change of a scenario: a balancer with the switches and the transport it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Variant {
    /// The variant's name in tables and on the command line.
    pub name: String,
    /// The purpose of the variant, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The sections it changes, key by key.
    #[serde(flatten)]
    #[schemars(schema_with = "sections")]
    pub overrides: Table,
}

/// Returns the schema of a scenario's [`SECTIONS`].
fn sections(generator: &mut SchemaGenerator) -> Schema {
    let scenario = Scenario::json_schema(generator);
    let sections = scenario.get("properties").and_then(Value::as_object).into_iter().flatten();
    let sections: Map<String, Value> = sections
        .filter(|(name, _)| SECTIONS.contains(&name.as_str()))
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .collect();
    json_schema!({ "type": "object", "properties": sections })
}

/// The sections a variant may change. Traffic, endpoints and duration stay the same, or the comparison has no meaning.
pub(super) const SECTIONS: [&str; 11] = [
    "transport",
    "overlay",
    "forwarding",
    "queue",
    "buffer",
    "port",
    "pfc",
    "host",
    "messages",
    "controller",
    "run",
];

impl Variant {
    /// Returns the scenario's table with this variant's values in it, and without variants of its own.
    pub fn apply(&self, scenario: &Table) -> Table {
        let mut changed = scenario.clone();
        changed.remove("variant");
        merge(&mut changed, &self.overrides);
        changed
    }

    /// Returns this variant, then `other` applied over it.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        merge(&mut self.overrides, &other.overrides);
        self
    }

    /// Returns a variant that sets one key of one section.
    pub fn setting(name: &str, section: &str, key: &str, value: &str) -> Self {
        let inner = Table::from_iter([(key.to_owned(), toml::Value::from(value))]);
        let overrides = Table::from_iter([(section.to_owned(), toml::Value::Table(inner))]);
        Self { name: name.to_owned(), about: String::new(), overrides }
    }

    /// Returns a section that it changes but may not.
    pub fn foreign_section(&self) -> Option<&str> {
        let mut sections = self.overrides.keys().map(String::as_str);
        sections.find(|section| !SECTIONS.contains(section))
    }
}
