//! The types of a record's fields besides numbers: texts, latencies and addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use weft_units::Histogram;

use crate::field::{Field, LayoutError};

/// A text of at most eight bytes per word, truncated at a character boundary and padded with zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text<const WORDS: usize>(String);

impl<const WORDS: usize> Text<WORDS> {
    /// Returns the text, truncated to the space.
    pub fn new(text: &str) -> Self {
        Self(text[..text.floor_char_boundary(8 * WORDS)].to_owned())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const WORDS: usize> fmt::Display for Text<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<const WORDS: usize> Field for Text<WORDS> {
    const WORDS: usize = WORDS;

    fn put(&self, words: &mut Vec<u64>) {
        for at in 0..WORDS {
            let bytes = self.0.as_bytes().iter().skip(8 * at).take(8);
            let shifted = bytes.enumerate().map(|(index, byte)| u64::from(*byte) << (8 * index));
            words.push(shifted.sum());
        }
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = str::from_utf8(&bytes[..end]).map_err(|_| LayoutError::Utf8)?;
        // Control characters are removed because a terminal executes them and the file may be untrusted.
        Ok(Self(text.chars().filter(|letter| !letter.is_control()).collect()))
    }
}

/// The distribution of call durations: the counts of a [`Histogram`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latencies(Vec<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(vec![0; Self::WORDS])
    }
}

impl From<&Histogram> for Latencies {
    fn from(histogram: &Histogram) -> Self {
        Self(histogram.counts().map(u64::from).to_vec())
    }
}

impl Latencies {
    /// Returns the count of each bucket, shortest durations first.
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// Returns the total count.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the quantile `per_mille`/1000 in nanoseconds; `None` if the counts are all zero.
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        Histogram::quantile(&self.0, per_mille).map(weft_units::Duration::as_nanos)
    }

    /// Returns the counts since `earlier`. If a count is smaller than before, the channel was restarted: returns all
    /// counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = || self.0.iter().zip(&earlier.0);
        if pairs().any(|(now, then)| now < then) {
            return self.clone();
        }
        Self(pairs().map(|(now, then)| now - then).collect())
    }

    /// Adds the counts of another distribution.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
}

impl Field for Latencies {
    const WORDS: usize = Histogram::BUCKETS;

    fn put(&self, words: &mut Vec<u64>) {
        words.extend(self.0.iter().copied().chain(std::iter::repeat(0)).take(Self::WORDS));
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        // A histogram's counts have 32 bits; larger ones could overflow sums.
        Ok(Self(words.iter().map(|&count| count.min(u32::MAX.into())).collect()))
    }
}

/// An address; unspecified (`::`) if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(pub IpAddr);

impl Default for Address {
    fn default() -> Self {
        Self(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == IpAddr::V6(Ipv6Addr::UNSPECIFIED) { f.pad("-") } else { self.0.fmt(f) }
    }
}

impl Field for Address {
    const WORDS: usize = <IpAddr as Field>::WORDS;

    fn put(&self, words: &mut Vec<u64>) {
        self.0.put(words);
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        IpAddr::take(words).map(Self)
    }
}
