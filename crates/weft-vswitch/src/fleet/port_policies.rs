//! The security groups of ports that are added by command.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The security groups of a host's ports that are added by command, such as those of pods. They replace the ports' own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortPoliciesObject {
    /// The network of the ports.
    pub vni: u32,
    /// The labels of the ports: they have all of these, and maybe others.
    pub labels: BTreeMap<String, String>,
    /// The names of the security groups. Without any, every connection may begin.
    #[serde(default)]
    pub security_groups: Vec<String>,
}
