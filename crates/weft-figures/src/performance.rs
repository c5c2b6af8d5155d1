//! The generated part of the pages of `docs/performance`: tables of recorded rows with their targets, and an overview.

use weft_sim::experiment::{Experiment, Findings, Outcome, Source, number};

use crate::page::differs_from;
use crate::tables::{cell, rows, sign};
use crate::{Entry, Provenance, TOPICS, Topic};

/// Returns the experiments of a topic.
pub(crate) fn of<'a>(entries: &'a [Entry], topic: &Topic) -> Vec<&'a Entry> {
    let is_own =
        |entry: &&Entry| entry.figure.topic().is_some_and(|topics| topics.name == topic.name);
    entries.iter().filter(is_own).collect()
}

/// Returns a table of the topics: the measured subject, the number of targets met, and the date of the record.
pub(crate) fn overview(entries: &[Entry]) -> String {
    let mut text = String::from(
        "| topic | measured | targets met | recorded | experiment |\n| --- | --- | --- | --- | --- |\n",
    );
    for topic in &TOPICS {
        for entry in of(entries, topic) {
            let claims = entry.findings.as_ref().map(|findings| &findings.claims);
            let met = claims.map_or_else(String::new, |claims| {
                let met = claims.iter().filter(|claim| claim.holds).count();
                format!("{met} of {}", claims.len())
            });
            let made = entry.recorded.as_ref().map_or("not yet", |recorded| &recorded.made.on);
            text += &format!(
                "| [{}]({}.md) | {} | {met} | {made} | [`{name}`](../../experiments/{name}.toml) |\n",
                topic.title,
                topic.name,
                cell(&entry.figure.experiment.title),
                name = entry.figure.name,
            );
        }
    }
    text
}

/// Returns the tables of a topic.
pub(crate) fn tables(own: Vec<&Entry>) -> String {
    own.into_iter().map(table).collect::<Vec<_>>().join("\n")
}

/// Returns an experiment's section: its rows, its targets, and the reasons for targets that it misses.
fn table(entry: &Entry) -> String {
    let experiment = &entry.figure.experiment;
    let name = &entry.figure.name;
    let mut text = format!(
        "### {}\n\n[`{name}`](../../experiments/{name}.toml): {}; {}.\n",
        cell(&experiment.title),
        cell(entry.environment()),
        command(experiment)
    );
    match (&entry.recorded, &entry.findings) {
        (Some(recorded), Some(findings)) => {
            text += &format!("Recorded {}.\n\n", origin(&recorded.made));
            text += &rows(experiment, findings).to_markdown();
            text += &targets(findings);
        }
        _ => {
            text += &format!(
                "Not recorded yet: `weft experiment run {name} --record` writes the table here.\n"
            );
        }
    }
    text + &format!("\n{}: {}\n", differs_from(experiment), cell(&experiment.differs))
}

/// Returns the command of the measurement, with a note if it needs root.
fn command(experiment: &Experiment) -> String {
    match experiment.source() {
        Source::Bench(bench) if bench.root => format!("`{}`, as root", bench.command.trim()),
        Source::Bench(bench) => format!("`{}`", bench.command.trim()),
        Source::Simulated | Source::Missing(_) => "one scenario".into(),
    }
}

/// Returns date, machine and commit of a result; the command instead of the commit if no commit was recorded.
fn origin(made: &Provenance) -> String {
    let mut text = match made.machine.as_str() {
        "" => format!("{}, machine not recorded,", made.on),
        machine => format!("{} on {machine}", made.on),
    };
    if made.commit.is_empty() {
        text += &format!(" by `{}`, before rows had a commit", made.command);
    } else {
        text += &format!(", commit {}", made.commit);
    }
    text
}

fn targets(findings: &Findings) -> String {
    let lines: String = findings.claims.iter().map(target).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// Returns the line of one target.
fn target(claim: &Outcome) -> String {
    let [mut left, right] = [claim.left, claim.right].map(number);
    // A number that misses its target by less than the rounding would look equal to the target.
    if !claim.holds && left == right {
        left = format!("{:.4}", claim.left);
    }
    format!("* {} {}: {left} (target {} {right})\n", sign(claim), claim.text, claim.comparison)
}

#[cfg(test)]
mod tests {
    use weft_sim::experiment::Comparison;

    use super::*;

    #[test]
    fn a_target_missed_by_less_than_the_rounding_is_shown_with_more_digits() {
        let claim = |left, holds| Outcome {
            text: "At least 0.7".into(),
            paper: String::new(),
            holds,
            differs: false,
            left,
            comparison: Comparison::AtLeast,
            right: 0.7,
        };
        assert_eq!(target(&claim(0.69991, false)), "* ✗ At least 0.7: 0.6999 (target >= 0.7)\n");
        assert_eq!(target(&claim(0.7, true)), "* ✓ At least 0.7: 0.7 (target >= 0.7)\n");
    }
}
