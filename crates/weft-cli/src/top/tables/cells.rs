//! Cells of the page's tables.

use weft_report::Cell;

use crate::stat::duration;

/// Returns a rate per second.
pub(super) fn rate(rate: Option<f64>) -> Cell {
    rate.map_or_else(Cell::missing, |rate| Cell::new(short(rate), rate))
}

/// Returns a time in nanoseconds.
pub(super) fn time(nanos: Option<u64>) -> Cell {
    nanos.map_or_else(Cell::missing, |nanos| Cell::new(duration(nanos), nanos))
}

/// Returns a share of a whole, in per cent; nothing of a whole of zero.
pub(super) fn share(part: u64, whole: u64) -> Cell {
    if whole == 0 {
        return Cell::missing();
    }
    let percent = u128::from(part) * 100 / u128::from(whole);
    let percent = u64::try_from(percent).unwrap_or(u64::MAX);
    Cell::new(format!("{percent} %"), percent)
}

/// Returns the state of an object that is up or down.
pub(super) fn state(is_up: bool) -> Cell {
    if is_up { "up".into() } else { "down".into() }
}

/// Formats a number with at most three digits before its unit.
pub(super) fn short(number: f64) -> String {
    let units = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    // Rounding must not make four digits of three: 999,950 is 1.0M.
    let unit = units.into_iter().find(|(_, one)| number >= *one * 0.9995);
    let (unit, one) = unit.unwrap_or(("", 1.0));
    let scaled = number / one;
    let is_whole = unit.is_empty() && scaled.fract() == 0.0;
    if is_whole || scaled >= 99.95 {
        format!("{scaled:.0}{unit}")
    } else {
        format!("{scaled:.1}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (number, want) in [
            (0.0, "0"),
            (0.4, "0.4"),
            (12.0, "12"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (12_345.0, "12.3k"),
            (999_950.0, "1.0M"),
            (4.2e9, "4.2G"),
        ] {
            assert_eq!(short(number), want, "{number}");
        }
    }
}
