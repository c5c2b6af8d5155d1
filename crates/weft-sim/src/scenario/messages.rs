//! The section `[messages]`: X-RDMA's parameters, under the names they have everywhere else.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_msg::{Config, Parameter};

/// The parameters of every host's context ([`Config`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessagesConfig(pub Config);

/// A parameter's value in a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for MessagesConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut config = Config::default();
        for (name, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            let text = match value {
                Value::Number(number) => number.to_string(),
                Value::Text(text) => text,
            };
            config.set(&name, &text).map_err(D::Error::custom)?;
        }
        Ok(Self(config))
    }
}

impl JsonSchema for MessagesConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MessagesConfig".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let property = |parameter: &Parameter| {
            let Parameter { name, about, min, max, value, .. } = parameter;
            let about = format!("{about} {min} to {max}.");
            let schema = json_schema!({
                "type": ["integer", "string"],
                "description": about,
                "default": value,
            });
            ((*name).to_owned(), schema.to_value())
        };
        let properties: serde_json::Map<_, _> =
            Config::default().parameters().iter().map(property).collect();
        json_schema!({
            "type": "object",
            "description": "The parameters of every host's context.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

impl Serialize for MessagesConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parameters = self.0.parameters();
        serializer
            .collect_map(parameters.iter().map(|parameter| (parameter.name, &parameter.value)))
    }
}
