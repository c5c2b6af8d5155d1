//! The probability of a loss.

/// A probability in millionths, such as that of a loss. Its text is a percentage: `0.05%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u32);

impl Probability {
    /// No loss.
    pub const NONE: Self = Self(0);

    /// Returns a probability of `millionths` millionths; `None` above one million.
    pub const fn of_million(millionths: u32) -> Option<Self> {
        if millionths <= 1_000_000 { Some(Self(millionths)) } else { None }
    }

    /// Returns the probability in millionths, at most one million.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}
