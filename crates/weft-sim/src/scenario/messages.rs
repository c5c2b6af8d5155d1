//! The section `[messages]`: X-RDMA's parameters, under the names they have everywhere else.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_msg::Config;

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

impl Serialize for MessagesConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parameters = self.0.parameters();
        serializer
            .collect_map(parameters.iter().map(|parameter| (parameter.name, &parameter.value)))
    }
}
