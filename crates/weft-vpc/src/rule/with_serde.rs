//! The form of a rule in a file: a text, or a table with the same words as keys.

use alloc::string::{String, ToString};
use core::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::parse_protocol;
use super::{Action, Ends, Net, Rule, RuleError};
use crate::Direction;

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextOrTable)
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Rule;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a rule such as \"allow ingress tcp to any port 80\", or a table of its parts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Rule, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rule, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        let rule = table.rule().and_then(|rule| rule.check().map(|()| rule));
        rule.map_err(A::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Rule {
    fn schema_name() -> alloc::borrow::Cow<'static, str> {
        "Rule".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A rule such as `allow ingress tcp to any port 80`, or a table of its parts",
            "anyOf": [{ "type": "string" }, generator.subschema_for::<Table>()],
        })
    }
}

/// The parts of a rule by key.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RuleParts"))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    #[serde(default)]
    name: String,
    priority: Option<u32>,
    action: Action,
    direction: Direction,
    protocol: Option<String>,
    from: Option<String>,
    from_ports: Option<PortsText>,
    to: Option<String>,
    ports: Option<PortsText>,
    icmp_type: Option<u8>,
    icmp_code: Option<u8>,
}

/// The ports in a table: `80` or `"80-90"`.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a port such as 80 or a range such as \"80-90\"")]
enum PortsText {
    One(u16),
    Range(String),
}

impl Table {
    fn rule(self) -> Result<Rule, RuleError> {
        let ends = |net: Option<String>, ports: Option<PortsText>| -> Result<Ends, RuleError> {
            let net = net.map_or(Ok(Net::Any), |net| net.parse())?;
            let ports = ports.map(|ports| match ports {
                PortsText::One(port) => port.to_string().parse(),
                PortsText::Range(text) => text.parse(),
            });
            Ok(Ends { net, ports: ports.transpose()? })
        };
        let icmp = match (self.icmp_type, self.icmp_code) {
            (Some(kind), code) => Some((kind, code)),
            (None, None) => None,
            (None, Some(_)) => return Err(RuleError::CodeWithoutType),
        };
        Ok(Rule {
            name: self.name,
            priority: self.priority.unwrap_or(Rule::DEFAULT_PRIORITY),
            action: self.action,
            direction: self.direction,
            protocol: self.protocol.map_or(Ok(None), |word| parse_protocol(&word))?,
            from: ends(self.from, self.from_ports)?,
            to: ends(self.to, self.ports)?,
            icmp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        rules: Vec<Rule>,
    }

    #[test]
    fn a_table_is_the_same_rule_as_a_text() {
        let file: File = toml::from_str(
            r#"
            rules = [
                "100 allow ingress tcp from @office to any port 80-90 name web",
                { name = "web", priority = 100, action = "allow", direction = "ingress", protocol = "tcp", from = "@office", ports = "80-90" },
                { action = "deny", direction = "egress", protocol = "icmp", icmp-type = 8, icmp-code = 0 },
                { action = "deny", direction = "egress", protocol = "udp", from-ports = 53 },
            ]
            "#,
        )
        .unwrap();
        assert_eq!(file.rules[0], file.rules[1]);
        assert_eq!(file.rules[2].to_string(), "1000 deny egress icmp type 8 code 0");
        assert_eq!(file.rules[3].to_string(), "1000 deny egress udp from any port 53");
        let again: File = toml::from_str(&toml::to_string(&file).unwrap()).unwrap();
        assert_eq!(again.rules, file.rules);
    }

    #[test]
    fn mistakes_in_a_file_are_named() {
        for (rule, problem) in [
            (r#""alow ingress""#, "did you mean \"allow\"?"),
            ("7", "a rule such as"),
            (r#"{ action = "allow" }"#, "missing field `direction`"),
            (r#"{ action = "allow", direction = "ingress", port = 80 }"#, "unknown field `port`"),
            (r#"{ action = "allow", direction = "ingress", ports = 80 }"#, "ports need protocol"),
            (
                r#"{ action = "allow", direction = "ingress", protocol = "tcp", ports = "x" }"#,
                "is not a port",
            ),
            (
                r#"{ action = "allow", direction = "ingress", protocol = "tcp", ports = 80000 }"#,
                "a port such as 80",
            ),
            (
                r#"{ action = "allow", direction = "ingress", protocol = "icmp", icmp-code = 1 }"#,
                "icmp-code needs icmp-type",
            ),
        ] {
            let error =
                toml::from_str::<File>(&format!("rules = [{rule}]")).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
