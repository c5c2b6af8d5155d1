//! Versions of the CNI specification: the verbs and the forms of results that each has.

use std::fmt;

/// A version of the specification that the plugin supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.1.0: one address of each family.
    V0_1_0,
    /// 0.2.0: the same, and VERSION.
    V0_2_0,
    /// 0.3.0: lists of plugins, and results with interfaces.
    V0_3_0,
    /// 0.3.1: the same.
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0: lists only, and addresses without a family.
    V1_0_0,
    /// 1.1.0: STATUS, GC, and more about interfaces and routes.
    V1_1_0,
}

impl Version {
    /// All versions, the oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The newest version.
    pub const NEWEST: Self = Self::V1_1_0;

    /// Returns its number.
    pub fn number(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Returns the version of a number, if the plugin supports it.
    pub fn parse(number: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.number())
    }
}
