//! Parsing and printing of units as people write them (`100us`, `400Gbps`, `64KiB`), and spelling suggestions.

use alloc::format;
use alloc::string::String;
#[cfg(any(test, feature = "serde"))]
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::{BitRate, ByteCount, Duration, Probability};

/// The error for a text that is not a quantity. It names the text and the expected form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUnitError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} is not {}", self.text, self.expected)
    }
}

impl core::error::Error for ParseUnitError {}

const DURATIONS: &[(&str, u64)] =
    &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const RATES: &[(&str, u64)] =
    &[("bps", 1), ("Kbps", 1_000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000)];
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Parses `<number>[.<digits>]<unit>` in integer arithmetic and returns the value in the smallest unit, rounded down.
/// Returns `None` on a syntax error or overflow.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let scale = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Each step divides a whole number plus the lower digits' share by ten: rounding that share down first changes no
    // quotient.
    let mut part = 0;
    for digit in fraction.bytes().rev() {
        part = (u64::from(digit.checked_sub(b'0')?) * scale + part) / 10;
    }
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part)
}

/// Writes `value` in the largest unit that divides it.
fn display(value: u64, units: &[(&str, u64)], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (name, scale) = units
        .iter()
        .filter(|(_, scale)| value != 0 && value.is_multiple_of(*scale))
        .max_by_key(|(_, scale)| *scale)
        .unwrap_or(&units[0]);
    write!(out, "{}{name}", value / scale)
}

impl FromStr for Duration {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let expected = "a time such as 250us, 4ms or 1.5s";
        let nanos = quantity(text, DURATIONS);
        nanos.map(Self::from_nanos).ok_or_else(|| ParseUnitError { text: text.into(), expected })
    }
}

impl FromStr for BitRate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let expected = "a rate above zero such as 100Gbps or 25Mbps";
        let bits = quantity(text, RATES);
        bits.and_then(Self::bps).ok_or_else(|| ParseUnitError { text: text.into(), expected })
    }
}

impl FromStr for ByteCount {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let expected = "a size such as 4096, 64KiB or 2MB";
        let plain = text.trim().parse().ok();
        let bytes = plain.or_else(|| quantity(text, SIZES));
        bytes.map(Self).ok_or_else(|| ParseUnitError { text: text.into(), expected })
    }
}

/// Parses a percentage with at most four decimals into millionths. Returns `None` on a syntax error or overflow.
fn percentage(text: &str) -> Option<u32> {
    let percent = text.trim().strip_suffix('%')?;
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 4 {
        return None;
    }
    let fraction: u32 = format!("{fraction:0<4}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(fraction)
}

impl FromStr for Probability {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let expected =
            "a percentage from 0% to 100% with at most four decimals, such as 1% or 0.05%";
        let loss = percentage(text).and_then(Self::of_million);
        loss.ok_or_else(|| ParseUnitError { text: text.into(), expected })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.as_nanos(), DURATIONS, out)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.as_bps(), RATES, out)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.0, SIZES, out)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.millionths() / 10_000, self.millionths() % 10_000);
        let digits = format!("{whole}.{fraction:04}");
        write!(out, "{}%", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Returns the known name nearest to `typed` if `typed` may be a typo of it: their edit distance in bytes is at most
/// one, or at most a third of the length of `typed`. Of several nearest names it returns the first in alphabetical
/// order.
pub fn suggest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = known.into_iter().map(|name| (edit_distance(typed, name), name)).min()?;
    let close = (typed.len() / 3).max(1);
    (nearest.0 <= close).then_some(nearest.1)
}

/// Returns the error message for a name that is not in a registry: the suggestion, if there is one, then all known
/// names.
pub fn unknown_name(kind: &str, typed: &str, known: &[&str]) -> String {
    let hint = suggest(typed, known.iter().copied())
        .map_or_else(String::new, |name| format!(", did you mean {name:?}?"));
    // Names that come from a file may hold line breaks, and the message is one line.
    let known: Vec<String> = known.iter().map(|name| format!("{}", name.escape_debug())).collect();
    format!("no {kind} {typed:?}{hint} (known: {})", known.join(", "))
}

/// Returns the Levenshtein distance of two texts, in bytes.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substitute = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(feature = "serde")]
mod with_serde {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{BitRate, ByteCount, Duration, Probability, String, ToString};

    macro_rules! as_text {
        ($($unit:ty),+) => {$(
            impl Serialize for $unit {
                fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    to.serialize_str(&self.to_string())
                }
            }
            impl<'de> Deserialize<'de> for $unit {
                fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    String::deserialize(from)?.parse().map_err(D::Error::custom)
                }
            }
        )+};
    }
    as_text!(Duration, BitRate, ByteCount, Probability);
}

#[cfg(feature = "schema")]
mod with_schema {
    use super::{BitRate, ByteCount, Duration, Probability};

    crate::text_schema! {
        Duration: "Duration", "A time such as 250us, 4ms or 1.5s", r"^ *[0-9]+(\.[0-9]*)? *[numNUM]?[sS] *$";
        BitRate: "BitRate", "A rate above zero such as 100Gbps or 25Mbps", r"^ *[0-9]+(\.[0-9]*)? *[kmgKMG]?[bB][pP][sS] *$";
        ByteCount: "ByteCount", "A size such as 4096, 64KiB or 2MB", r"^ *[0-9]+(\.[0-9]*)? *([kmgKMG][iI]?)?[bB] *$|^ *[0-9]+ *$";
        Probability: "Probability", "A percentage with at most four decimals such as 1% or 0.05%", r"^ *[0-9]{1,3}(\.[0-9]{1,4})?% *$";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_as_people_write_them() {
        assert_eq!("250us".parse(), Ok(Duration::from_micros(250)));
        assert_eq!("1.5 ms".parse(), Ok(Duration::from_micros(1500)));
        assert_eq!("400Gbps".parse(), Ok(BitRate::gbps(400).unwrap()));
        assert_eq!("64KiB".parse(), Ok(ByteCount::kib(64)));
        assert_eq!("4096".parse(), Ok(ByteCount(4096)));
    }

    #[test]
    fn decimals_of_every_unit_are_exact_and_rounded_down() {
        let sizes = [
            ("1.5KiB", 1536),
            ("0.25KiB", 256),
            ("0.0009765625KiB", 1),
            ("0.0009765624KiB", 0),
            ("2.5MiB", 2_621_440),
            ("0.1GiB", 107_374_182),
            ("0.123456789012345678901234567890GiB", 132_560_717),
            ("1.9999B", 1),
            ("1.234567KB", 1234),
        ];
        for (text, bytes) in sizes {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
        assert_eq!("1.0000000019s".parse(), Ok(Duration::from_nanos(1_000_000_001)));
    }

    #[test]
    fn quantities_parse_back_from_their_text() {
        for nanos in [0, 1, 999, 1_000, 250_000, 4_000_000, 61_000_000_000] {
            let span = Duration::from_nanos(nanos);
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        for bytes in [0, 1, 1000, 1024, 4096, 2_000_000] {
            assert_eq!(ByteCount(bytes).to_string().parse(), Ok(ByteCount(bytes)));
        }
    }

    #[test]
    fn percentages_parse_as_people_write_them_and_parse_back() {
        for (text, millionths) in
            [("1%", 10_000), ("0.05%", 500), ("100%", 1_000_000), ("0.0001%", 1), ("0%", 0)]
        {
            let loss: Probability = text.parse().unwrap();
            assert_eq!(loss.millionths(), millionths, "{text}");
            assert_eq!(loss.to_string(), text);
        }
    }

    #[test]
    fn invalid_percentages_are_refused() {
        for text in ["1", "101%", "-1%", "%", ".5%", "1.%", "0.00001%", "1e1%", "99999999999%"] {
            assert!(text.parse::<Probability>().is_err(), "{text:?} passed");
        }
    }

    #[test]
    fn an_error_names_the_text_and_the_expected_form() {
        let error = "fast".parse::<BitRate>().unwrap_err().to_string();
        assert_eq!(error, "\"fast\" is not a rate above zero such as 100Gbps or 25Mbps");
        assert!("0Gbps".parse::<BitRate>().is_err());
        assert!("99999999999999999999s".parse::<Duration>().is_err());
    }

    #[test]
    fn the_error_for_an_unknown_name_has_the_nearest_and_all_names() {
        let message = unknown_name("path policy", "oblivous", &["single", "oblivious"]);
        let want =
            r#"no path policy "oblivous", did you mean "oblivious"? (known: single, oblivious)"#;
        assert_eq!(message, want);
        let message = unknown_name("switch", "spine-1", &["\nspine-1"]);
        assert!(!message.contains('\n') && message.contains("\\nspine-1"), "{message}");
    }

    #[test]
    fn a_typo_gets_the_nearest_name_and_an_unrelated_word_gets_none() {
        assert_eq!(suggest("oblivous", ["single", "oblivious"]), Some("oblivious"));
        assert_eq!(suggest("quux", ["single", "oblivious"]), None);
    }
}
