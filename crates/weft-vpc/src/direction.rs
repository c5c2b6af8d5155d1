//! The direction of a frame, named as in the security groups of cloud providers.

use core::fmt;
use core::str::FromStr;

use weft_units::UnknownName;

/// The direction of a frame, seen from the tenant whose port it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Direction {
    /// To the tenant.
    Ingress,
    /// From the tenant.
    Egress,
}

impl Direction {
    /// Returns the opposite direction.
    #[must_use]
    pub const fn reverse(self) -> Self {
        match self {
            Self::Ingress => Self::Egress,
            Self::Egress => Self::Ingress,
        }
    }

    /// Returns the direction's name in rules and in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Direction {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "ingress" => Ok(Self::Ingress),
            "egress" => Ok(Self::Egress),
            _ => Err(UnknownName::new("direction", text, &["ingress", "egress"])),
        }
    }
}
