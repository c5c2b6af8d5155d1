//! The parts of the docs that are generated from the results. They are between two marks in pages that are otherwise
//! written by hand.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use weft_sim::experiment::{Source, Verdict};

use crate::tables::cell;
use crate::{Entry, PAPERS, Paper, TOPICS, performance};

const BEGIN: &str = "<!-- figures: begin; `weft experiment pages` writes what follows -->\n";
const END: &str = "<!-- figures: end -->";

/// Returns every page that has a generated part, as its path from the repository's root and its text with that part
/// generated from `entries`.
///
/// # Errors
/// Returns an error if a page does not exist or lacks the marks.
pub fn pages(root: &Path, entries: &[Entry]) -> Result<Vec<(String, String)>> {
    let mut pages = vec![
        ("docs/experiments.md".to_owned(), overview(entries)),
        ("docs/results.md".to_owned(), measured(entries)),
    ];
    for paper in &PAPERS {
        let own = entries.iter().filter(|entry| is_of(entry, paper));
        pages.push((format!("docs/papers/{}.md", paper.name), figures(own)));
    }
    pages.push(("docs/performance/README.md".to_owned(), performance::overview(entries)));
    for topic in &TOPICS {
        let page = format!("docs/performance/{}.md", topic.name);
        pages.push((page, performance::tables(performance::of(entries, topic))));
    }
    let written = pages.into_iter().map(|(path, part)| {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let text = replace(&text, &part).with_context(|| format!("{path}: no line {BEGIN:?}"))?;
        Ok((path, text))
    });
    written.collect()
}

/// Returns the text with the part between the marks replaced; `None` if it lacks the marks.
fn replace(text: &str, part: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{part}{END}{after}"))
}

fn is_of(entry: &Entry, paper: &Paper) -> bool {
    entry.figure.paper().is_some_and(|of| of.name == paper.name)
}

/// Returns a table of the papers with the number of figures per verdict.
fn counts(entries: &[Entry]) -> String {
    let mut text = String::from(
        "| paper | figures and tables | reproduced | differ | cannot be had here |\n| --- | --- | --- | --- | --- |\n",
    );
    for paper in &PAPERS {
        let own: Vec<&Entry> = entries.iter().filter(|entry| is_of(entry, paper)).collect();
        let count = |verdict| own.iter().filter(|entry| entry.verdict == verdict).count();
        text += &format!(
            "| [{}](papers/{}.md) | {} | {} | {} | {} |\n",
            paper.title,
            paper.name,
            own.len(),
            count(Verdict::Reproduced),
            count(Verdict::Differs),
            count(Verdict::NotReproducible),
        );
    }
    text
}

/// Returns a table of all papers' figures with their verdicts and dates.
fn overview(entries: &[Entry]) -> String {
    let mut text = counts(entries);
    text += "\n| experiment | measures | on | verdict | made |\n| --- | --- | --- | --- | --- |\n";
    for entry in entries.iter().filter(|entry| entry.figure.paper().is_some()) {
        let experiment = &entry.figure.experiment;
        let made = entry.recorded.as_ref().map(|recorded| &recorded.made);
        let took = made.and_then(|made| made.seconds);
        let took = took.map_or_else(String::new, |seconds| format!(", {seconds:.0} s"));
        text += &format!(
            "| [`{name}`](../experiments/{name}.toml) | {} | {} | {} | {}{took} |\n",
            cell(&experiment.title),
            cell(entry.environment()),
            entry.verdict,
            made.map_or("", |made| &made.on),
            name = entry.figure.name,
        );
    }
    text
}

/// Returns a table of the papers' figures that benches measure, with the commands.
fn measured(entries: &[Entry]) -> String {
    let mut text = String::from("| what | command | on |\n| --- | --- | --- |\n");
    let papers = entries.iter().filter(|entry| entry.figure.paper().is_some());
    let benches = papers.filter_map(|entry| match entry.figure.experiment.source() {
        Source::Bench(_) => Some((entry, &entry.recorded.as_ref()?.made)),
        _ => None,
    });
    for (entry, made) in benches {
        let machine = if made.machine.is_empty() { "" } else { "; " };
        text += &format!(
            "| {} ({}): {} | `{}` | {}{machine}{}, {} |\n",
            cell(&entry.figure.experiment.title),
            cell(&entry.figure.experiment.source),
            cell(&entry.here),
            made.command,
            cell(entry.environment()),
            made.machine,
            made.on,
        );
    }
    text
}

/// Returns a table that compares a paper's figures with Weft's.
fn figures<'a>(entries: impl Iterator<Item = &'a Entry>) -> String {
    let mut text =
        String::from("| figure | the paper | here | verdict |\n| --- | --- | --- | --- |\n");
    for entry in entries {
        let experiment = &entry.figure.experiment;
        let made = entry.recorded.as_ref().map(|recorded| &recorded.made);
        let made =
            made.map_or_else(String::new, |made| format!(" ({}, `{}`)", made.on, made.command));
        text += &format!(
            "| [{}](../../experiments/{}.toml): {}; {} | {} | {}{made} | {} |\n",
            cell(&experiment.source),
            entry.figure.name,
            cell(&experiment.title),
            cell(entry.environment()),
            cell(&experiment.paper),
            cell(&entry.here),
            cell(&reason(entry)),
        );
    }
    text
}

/// Returns the verdict and its reason.
fn reason(entry: &Entry) -> String {
    let experiment = &entry.figure.experiment;
    match experiment.source() {
        Source::Missing(missing) => format!("**{}**: it needs {}", entry.verdict, missing.needs),
        _ => format!("**{}**: {}", entry.verdict, experiment.differs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}old\n{END}\nafter\n");
        assert_eq!(replace(&page, "new\n").unwrap(), format!("before\n{BEGIN}new\n{END}\nafter\n"));
        assert_eq!(replace("before\nafter\n", "new"), None);
    }
}
