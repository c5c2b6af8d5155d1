//! The date, the commit and the machine that are recorded with a figure.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns today's date, UTC: `2026-11-24`.
#[expect(clippy::disallowed_methods, reason = "results record their date")]
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// Returns the date of the day with number `day`, counted from 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn date(day: u64) -> String {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}

/// Returns the commit of the repository that contains `folder`, with `+` if files differ from it; empty outside a
/// repository.
pub(crate) fn commit(folder: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return String::new() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no", "--", "crates", "experiments"]);
    if changed.is_some_and(|changed| changed.is_empty()) { commit } else { commit + "+" }
}

/// Returns the number and model of this machine's processors: `2 × Intel Xeon`.
pub(crate) fn processors() -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| Some(line.split_once(':')?.1.trim()));
    format!("{count} × {}", model.unwrap_or("processor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let dates = [0, 59, 11_016, 19_782, 20_781].map(date);
        assert_eq!(dates, ["1970-01-01", "1970-03-01", "2000-02-29", "2024-02-29", "2026-11-24"]);
    }
}
