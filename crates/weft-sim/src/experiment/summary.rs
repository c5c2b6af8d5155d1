//! The result in a sentence whose numbers come from the rows.

use std::collections::BTreeMap;

use weft_report::Unit;

use super::{Experiment, ExperimentError, Row};

impl Experiment {
    /// Returns the file's `here` with each `{measure; axis = value, …}` replaced by the number of the one matching
    /// row. An axis or a value with a comma stands in quotes.
    ///
    /// # Errors
    /// A pair of braces names no row, or several.
    pub fn summary(&self, rows: &[Row]) -> Result<String, ExperimentError> {
        let mut text = String::new();
        let mut rest = self.here.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
            text += before;
            text += &number(look_up(name, rows).ok_or_else(|| unknown(name))?);
            rest = after;
        }
        Ok(text + rest)
    }
}

fn unknown(name: &str) -> ExperimentError {
    ExperimentError::Source(format!("here: not one row has {{{name}}}"))
}

fn look_up(name: &str, rows: &[Row]) -> Option<f64> {
    let (measure, at) = name.split_once(';').unwrap_or((name, ""));
    let mut is_quoted = false;
    let ends_pair = |letter: char| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    };
    let word = |text: &'_ str| text.trim().trim_matches('"').to_owned();
    let pairs = at.split(ends_pair).filter(|pair| !pair.trim().is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').map(|(axis, at)| (word(axis), word(at))));
    let at: BTreeMap<String, String> = pairs.collect::<Option<_>>()?;
    let fits = |row: &&Row| {
        at.iter().all(|(axis, want)| row.at.get(axis).is_some_and(|value| value == want))
    };
    let mut found = rows.iter().filter(fits);
    let row = found.next().filter(|_| found.next().is_none())?;
    row.measured.get(measure.trim()).copied()
}

/// Formats a number with three digits; a share near one keeps the digits of its difference from one.
pub fn number(value: f64) -> String {
    if (0.9..1.0).contains(&value) {
        return format!("{value:.4}").trim_end_matches('0').to_owned();
    }
    Unit::Ratio.format(value)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_share_near_one_is_not_rounded_to_it() {
        assert_eq!([0.92, 0.9967, 0.5, 12.34].map(number), ["0.92", "0.9967", "0.5", "12.3"]);
    }
}
