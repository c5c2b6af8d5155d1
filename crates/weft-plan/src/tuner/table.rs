//! The table as text: CSV with a heading, without quotation marks.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;

use super::{MAX_CHANNELS, TUNED, TunerRow};
use crate::collective::Collective;

/// The names of the columns.
const HEADING: &str = "collective,servers,ranks,from_bytes,to_bytes,algorithm,protocol,channels";

/// An error in a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TunerTableError {
    /// The first line is not the heading.
    #[error("line 1: {got:?} is not the heading {HEADING:?}; `weft plan ring --tuner` writes it")]
    Heading {
        /// The first line.
        got: String,
    },
    /// A line has another number of fields than the heading.
    #[error("line {line}: {got} fields, expected {}", HEADING.split(',').count())]
    Fields {
        /// The line number, from 1.
        line: usize,
        /// Number of fields.
        got: usize,
    },
    /// A field is invalid.
    #[error("line {line}: {column} is {got:?}, expected {expected}")]
    Field {
        /// The line number, from 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// The field's text.
        got: String,
        /// A description of valid fields.
        expected: String,
    },
}

/// Returns rows as text. An end of sizes without limit, and what NCCL chooses, are empty fields.
pub fn tuner_csv(rows: &[TunerRow]) -> String {
    fn or_empty<T: Display>(value: Option<T>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    rows.iter().fold(format!("{HEADING}\n"), |text, row| {
        let TunerRow { collective, servers, ranks, bytes, algorithm, protocol, channels } = row;
        let end = or_empty(Some(bytes.end).filter(|&end| end < u64::MAX));
        let [algorithm, protocol] =
            [algorithm.map(|row| row.name()), protocol.map(|row| row.name())].map(or_empty);
        let channels = or_empty(*channels);
        format!(
            "{text}{},{servers},{ranks},{},{end},{algorithm},{protocol},{channels}\n",
            collective.name(),
            bytes.start,
        )
    })
}

/// Parses a table that [`tuner_csv`] wrote. Empty lines, and lines that begin with `#`, are comments.
///
/// # Errors
/// Returns the first fault, with its line.
pub fn read_tuner_csv(text: &str) -> Result<Vec<TunerRow>, TunerTableError> {
    let mut lines = (1..).zip(text.lines().map(str::trim_end));
    match lines.next() {
        Some((_, HEADING)) => {}
        first => {
            let got = first.map_or("", |(_, line)| line).to_owned();
            return Err(TunerTableError::Heading { got });
        }
    }
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(row).collect()
}

fn row((line, text): (usize, &str)) -> Result<TunerRow, TunerTableError> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [collective, servers, ranks, from, to, algorithm, protocol, channels] = fields[..] else {
        return Err(TunerTableError::Fields { line, got: fields.len() });
    };
    let fault = |column, got: &str, expected: String| TunerTableError::Field {
        line,
        column,
        got: got.to_owned(),
        expected,
    };
    let number = |column, got: &str, range: core::ops::RangeInclusive<u64>| {
        let parsed = got.parse().ok().filter(|number| range.contains(number));
        parsed.ok_or_else(|| fault(column, got, format!("{} to {}", range.start(), range.end())))
    };
    let size = |column, got: &str| {
        let parsed = number(column, got, 1..=u32::MAX.into())?;
        Ok(u32::try_from(parsed).expect("its range was checked"))
    };
    let known = TUNED.map(Collective::name);
    let named = TUNED.into_iter().find(|row| row.name() == collective);
    let start = number("from_bytes", from, 0..=u64::MAX - 1)?;
    let end = match to {
        "" => u64::MAX,
        _ => number("to_bytes", to, start + 1..=u64::MAX)?,
    };
    let channels = match channels {
        "" => None,
        _ => u8::try_from(number("channels", channels, 1..=MAX_CHANNELS.into())?).ok(),
    };
    Ok(TunerRow {
        collective: named.ok_or_else(|| fault("collective", collective, known.join(", ")))?,
        servers: size("servers", servers)?,
        ranks: size("ranks", ranks)?,
        bytes: start..end,
        algorithm: optional(algorithm, |error| fault("algorithm", algorithm, error))?,
        protocol: optional(protocol, |error| fault("protocol", protocol, error))?,
        channels,
    })
}

/// Parses a name of a registry, or nothing.
fn optional<T: core::str::FromStr<Err: Display>, E>(
    text: &str,
    fault: impl FnOnce(String) -> E,
) -> Result<Option<T>, E> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: T::Err| fault(format!("a known name: {error}")))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::tuner::{TunedAlgorithm, TunedProtocol};

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let row = |bytes, algorithm, protocol, channels| TunerRow {
            collective: Collective::AllReduce,
            servers: 2,
            ranks: 16,
            bytes,
            algorithm,
            protocol,
            channels,
        };
        let rows = vec![
            row(0..4_096, Some(TunedAlgorithm::Tree), None, None),
            row(4_096..u64::MAX, Some(TunedAlgorithm::Ring), Some(TunedProtocol::Ll128), Some(8)),
            TunerRow { collective: Collective::AllGather, ..row(0..1, None, None, Some(64)) },
        ];
        let text = tuner_csv(&rows);
        assert!(text.ends_with("all_gather,2,16,0,1,,,64\n"), "{text}");
        assert_eq!(read_tuner_csv(&text), Ok(rows.clone()));
        assert_eq!(read_tuner_csv(&text.replace('\n', "\r\n\n# more\n")), Ok(rows));
    }

    #[test]
    fn a_fault_is_named_with_its_line() {
        for (rows, message) in [
            ("all_reduce,2,16,0,,tree,", "line 2: 7 fields, expected 8"),
            (
                "allreduce,2,16,0,,tree,,",
                "line 2: collective is \"allreduce\", expected all_reduce,",
            ),
            ("\nall_reduce,0,16,0,,tree,,", "line 3: servers is \"0\", expected 1 to 4294967295"),
            (
                "all_reduce,2,16,18446744073709551615,,tree,,",
                "line 2: from_bytes is \"18446744073709551615\", expected 0 to",
            ),
            ("all_reduce,2,16,8,8,tree,,", "line 2: to_bytes is \"8\", expected 9 to"),
            ("all_reduce,2,16,0,,nvls,,", "line 2: algorithm is \"nvls\", expected a known name"),
            ("all_reduce,2,16,0,,,ll64,", "line 2: protocol is \"ll64\", expected a known name"),
            ("all_reduce,2,16,0,,,,65", "line 2: channels is \"65\", expected 1 to 64"),
        ] {
            let error = read_tuner_csv(&format!("{HEADING}\n{rows}\n")).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        for text in ["", "source,destination\n"] {
            let error = read_tuner_csv(text).unwrap_err().to_string();
            assert!(error.starts_with("line 1: ") && error.contains("--tuner"), "{error}");
        }
    }
}
