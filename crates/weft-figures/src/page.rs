//! All figures as one HTML page, and one figure as text for a terminal.

use weft_report::{Body, Report, Section, Table};
use weft_sim::experiment::{Experiment, Outcome, Source, Verdict};

use crate::plot::plot;
use crate::tables::{claims, label, rows};
use crate::{Entry, Provenance};

/// Returns a figure as text; `render` formats a table.
pub fn text(entry: &Entry, render: impl Fn(&Table) -> String) -> String {
    let Experiment { title, source, paper, differs, .. } = &entry.figure.experiment;
    let mut text = format!("{title} ({source})\n\n");
    if !paper.is_empty() {
        text += &format!("The paper: {paper}\n\n");
    }
    if let Some(findings) = &entry.findings {
        text += &format!("{}\n", render(&rows(&entry.figure.experiment, findings)));
        if !findings.claims.is_empty() {
            text += &format!("{}\n", render(&claims(findings)));
        }
    }
    text += &format!("Verdict: {}\n", entry.verdict);
    match entry.figure.experiment.source() {
        Source::Missing(missing) => {
            text + &format!("It needs {}; in its place: {}\n", missing.needs, missing.stands_in)
        }
        _ => text + &format!("{}: {differs}\n", differs_from(&entry.figure.experiment)),
    }
}

/// Returns the heading of the file's `differs`: a difference from the paper, or from the targets of a topic.
pub(crate) fn differs_from(experiment: &Experiment) -> &'static str {
    if experiment.paper.is_empty() { "Where we lose" } else { "Where we differ" }
}

/// Returns the claims of the figures that have rows.
fn claims_of(entries: &[Entry]) -> impl Iterator<Item = &Outcome> {
    entries.iter().filter_map(|entry| entry.findings.as_ref()).flat_map(|found| &found.claims)
}

/// Returns the page of `entries`; `command` is the command that made it.
pub fn page(entries: &[Entry], command: &str) -> Report {
    let holding = claims_of(entries).filter(|claim| claim.holds).count();
    let known = claims_of(entries).filter(|claim| claim.as_stated() && claim.differs).count();
    let count =
        |verdict| entries.iter().filter(|entry| entry.verdict == verdict).count().to_string();
    Report {
        title: match entries {
            [entry] => entry.figure.experiment.title.clone(),
            _ => "The papers' figures".into(),
        },
        subtitle: command.into(),
        facts: vec![
            ("reproduced".into(), count(Verdict::Reproduced)),
            ("differ".into(), count(Verdict::Differs)),
            ("cannot be had here".into(), count(Verdict::NotReproducible)),
            ("claims that hold".into(), format!("{holding} of {}", claims_of(entries).count())),
            ("of the others, explained".into(), known.to_string()),
            ("version".into(), env!("CARGO_PKG_VERSION").into()),
        ],
        sections: entries.iter().flat_map(sections).collect(),
    }
}

fn sections(entry: &Entry) -> Vec<Section> {
    let experiment = &entry.figure.experiment;
    let section =
        |heading: &str, text: String, body| Section { heading: heading.into(), text, body };
    let heading = format!("{}: {}", experiment.source, experiment.title);
    let Some(findings) = &entry.findings else {
        let text = format!("{} Here: {}", about(entry), entry.here);
        return vec![section(&heading, text, Body::Text)];
    };
    let table = Body::Table(rows(experiment, findings));
    let mut sections = vec![section(&heading, about(entry), table)];
    for measure in &experiment.measures {
        let body = plot(experiment, measure, findings);
        sections.push(section(&label(measure), String::new(), body));
    }
    if !findings.claims.is_empty() {
        sections.push(section("Claims", String::new(), Body::Table(claims(findings))));
    }
    sections
}

/// Returns the verdict with its reason, the paper's result, and the origin of Weft's numbers.
fn about(entry: &Entry) -> String {
    let experiment = &entry.figure.experiment;
    let verdict = match experiment.source() {
        Source::Missing(missing) => {
            format!("Cannot be had here: it needs {}.", missing.needs.trim())
        }
        _ => format!(
            "Verdict: {}. {}: {}",
            entry.verdict,
            differs_from(experiment),
            experiment.differs.trim()
        ),
    };
    let on = match experiment.source() {
        Source::Simulated => "Simulated".into(),
        Source::Bench(bench) => format!("Measured on {}", bench.on),
        Source::Missing(_) => String::new(),
    };
    let made = entry.recorded.as_ref().map(|recorded| &recorded.made);
    let made = made.map_or_else(String::new, |made| format!("{on}: {}.", made_by(made)));
    match experiment.paper.trim() {
        "" => format!("{verdict} {made}"),
        paper => format!("{verdict} The paper: {paper} {made}"),
    }
}

/// Returns date, machine and command.
pub(crate) fn made_by(made: &Provenance) -> String {
    let machine =
        if made.machine.is_empty() { String::new() } else { format!(", {}", made.machine) };
    format!("{}{machine}, by `{}`", made.on, made.command)
}
