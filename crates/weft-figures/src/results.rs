//! The recorded results of the figures, as one file of the repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weft_sim::experiment::{Findings, Row, Source, Verdict};

use crate::{Figure, files};

/// The path of the file from the repository's root.
pub const RESULTS: &str = "docs/data/results.json";

/// The recorded results of all experiments, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Results(BTreeMap<String, Recorded>);

/// A recorded result of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The origin of the result.
    pub made: Provenance,
    /// The result as text, for a figure that was published before its rows were recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub published: String,
    /// The rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
}

/// The origin of a result: date, command and machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command.
    pub command: String,
    /// The date, UTC: `2026-11-24`.
    pub on: String,
    /// The commit, with `+` if files differed from it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// Number and model of the processors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The duration in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Results {
    /// Reads the file below the repository's root. Returns no results if the file cannot be read.
    ///
    /// # Errors
    /// Returns an error if the file does not have the format of [`Results::write`].
    pub fn read(root: &Path) -> Result<Self> {
        let file = root.join(RESULTS);
        let Ok(text) = fs::read_to_string(&file) else { return Ok(Self::default()) };
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// Writes the file below the repository's root.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, root: &Path) -> Result<()> {
        let file = root.join(RESULTS);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::create_dir_all(file.parent().unwrap_or(root))
            .and_then(|()| fs::write(&file, text))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Replaces the result of an experiment.
    pub fn record(&mut self, name: &str, recorded: Recorded) {
        self.0.insert(name.to_owned(), recorded);
    }

    /// Returns the result of an experiment; `None` if none is recorded.
    pub fn get(&self, name: &str) -> Option<&Recorded> {
        self.0.get(name)
    }

    /// Returns the names of the experiments that have a result.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Returns every figure of the repository at `root` with its recorded result.
///
/// # Errors
/// Returns an error if a file or a recorded result is invalid.
pub fn entries(root: &Path) -> Result<Vec<Entry>> {
    let results = Results::read(root)?;
    let figures = files(&root.join("experiments")).into_iter().map(|file| {
        let figure = Figure::read(&file)?;
        let recorded = results.get(&figure.name).cloned();
        Entry::new(figure, recorded)
    });
    figures.collect()
}

/// A figure with its result and verdict.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The figure.
    pub figure: Figure,
    /// The recorded result.
    pub recorded: Option<Recorded>,
    /// The rows evaluated against the claims, if there are rows.
    pub findings: Option<Findings>,
    /// Weft's result as text.
    pub here: String,
    /// The comparison of Weft's result with the paper's.
    pub verdict: Verdict,
}

impl Entry {
    /// Evaluates a recorded result against the figure's claims.
    ///
    /// # Errors
    /// Returns an error if a claim, or a number in the file's `here`, has no row.
    pub fn new(figure: Figure, recorded: Option<Recorded>) -> Result<Self> {
        let experiment = &figure.experiment;
        let rows = recorded.as_ref().map(|recorded| recorded.rows.clone());
        let rows = rows.filter(|rows| !rows.is_empty());
        let evaluate = || rows.map(|rows| experiment.evaluate_related(rows)).transpose();
        let findings = evaluate().with_context(|| figure.name.clone())?;
        let verdict = match (&findings, &recorded) {
            // Its claims held at the time of publication.
            (None, Some(_)) => experiment.stated_verdict(),
            _ => experiment.verdict(findings.as_ref()),
        };
        let here = in_words(&figure, recorded.as_ref(), findings.as_ref())?;
        Ok(Self { figure, recorded, findings, here, verdict })
    }

    /// Returns the environment of the measurements.
    pub(crate) fn environment(&self) -> &str {
        match self.figure.experiment.source() {
            Source::Simulated => "simulated",
            Source::Bench(bench) => &bench.on,
            Source::Missing(_) => "–",
        }
    }
}

/// Returns Weft's result as text: the file's sentence, the published text, or the outcomes of the claims.
fn in_words(
    figure: &Figure,
    recorded: Option<&Recorded>,
    findings: Option<&Findings>,
) -> Result<String> {
    let experiment = &figure.experiment;
    if let Source::Missing(missing) = experiment.source() {
        return Ok(format!("in its place: {}", missing.stands_in.trim()));
    }
    let Some(findings) = findings else {
        return Ok(recorded.map(|recorded| recorded.published.clone()).unwrap_or_default());
    };
    if !experiment.here.is_empty() {
        return experiment.summary(&findings.rows).with_context(|| figure.name.clone());
    }
    let claims = findings.claims.iter().map(|claim| {
        let not = if claim.holds { "" } else { "not: " };
        let [left, right] = [claim.left, claim.right].map(weft_sim::experiment::number);
        format!("{not}{} ({left}, wanted {} {right})", claim.text, claim.comparison)
    });
    Ok(claims.collect::<Vec<_>>().join("; "))
}
