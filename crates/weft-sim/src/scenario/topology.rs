//! The network of a scenario: a shape from the registry, or a file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use toml::Table;
use weft_topo::Topology;
use weft_topo::build::{TopologyConfig, TopologyKind};

use super::ScenarioError;

/// The source of the network.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TopologySource {
    /// A shape with its parameters.
    Shape(TopologyConfig),
    /// A topology file of the ns-3 RDMA simulators.
    File(FromFile),
}

/// A topology file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FromFile {
    kind: FileKind,
    /// The file, relative to the scenario's folder.
    pub file: PathBuf,
}

/// The value of `kind` that selects a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum FileKind {
    #[serde(rename = "file")]
    File,
}

impl TopologySource {
    /// Returns the source that reads this file, relative to the scenario's folder.
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self::File(FromFile { kind: FileKind::File, file: file.into() })
    }

    /// Builds the network.
    ///
    /// # Errors
    /// The network's parameters or its file are invalid.
    pub fn build(&self, folder: &Path) -> Result<Topology, ScenarioError> {
        match self {
            Self::Shape(config) => config
                .build()
                .map_err(|error| ScenarioError::new(format_args!("[topology]: {error}"))),
            Self::File(from) => {
                let file = folder.join(&from.file);
                let text = std::fs::read_to_string(&file)
                    .map_err(|error| ScenarioError::unreadable(&file, &error))?;
                weft_topo::read_ns3(&text).map_err(|error| ScenarioError::new(error).in_file(&file))
            }
        }
    }
}

impl<'de> Deserialize<'de> for TopologySource {
    /// Implemented by hand: an untagged enum reports every mistake as "no variant matched".
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let table = Table::deserialize(from)?;
        let kind = match table.get("kind").and_then(toml::Value::as_str) {
            Some(kind) => kind.to_owned(),
            None => return Err(D::Error::missing_field("kind")),
        };
        let value = toml::Value::Table(table);
        // Errors of a value end in a remark on its position, which does not exist here.
        let message = |error: toml::de::Error| D::Error::custom(error.message());
        if kind == "file" {
            return FromFile::deserialize(value).map(Self::File).map_err(message);
        }
        if kind.parse::<TopologyKind>().is_err() {
            let mut known: Vec<_> = TopologyKind::ALL.iter().map(|kind| kind.name()).collect();
            known.push("file");
            return Err(D::Error::custom(weft_units::unknown_name("topology", &kind, &known)));
        }
        TopologyConfig::deserialize(value).map(Self::Shape).map_err(message)
    }
}
