//! `weft doctor`: reports what this machine can do, what is missing, and the command that installs it.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use weft_report::{Cell, Column, Table};

use weft_report::terminal::{Output, render};

mod checks;

/// Report what this machine can do, what is missing, and how to get it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft doctor
  sudo weft doctor        as root more can be tried
  weft doctor --json | jq -r '.[] | select(.state == \"missing\") | .fix'

The exit code is 0 whatever is missing: no part of Weft needs all of it.")]
pub(crate) struct Args {}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Works,
    Limited,
    Missing,
}

/// A capability that a machine may have.
#[derive(Debug, Serialize)]
struct Finding {
    name: String,
    state: State,
    /// The observed state.
    detail: String,
    /// The use of the capability.
    used_for: &'static str,
    /// The command that provides it; empty when it works.
    fix: String,
    /// The Debian package that provides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<&'static str>,
}

pub(crate) fn run(_arguments: Args, output: Output) -> Result<ExitCode> {
    let findings = checks::all();
    output.value(&findings, || text(&findings))?;
    Ok(ExitCode::SUCCESS)
}

fn text(findings: &[Finding]) -> String {
    let mut table = Table::new(vec![
        Column::text("", "state"),
        Column::text("what", "name"),
        Column::text("seen", "detail"),
        Column::text("used for", "used_for"),
        Column::text("how to get it", "fix"),
    ]);
    for finding in findings {
        let mark = match finding.state {
            State::Works => "✓",
            State::Limited => "~",
            State::Missing => "✗",
        };
        let cells = [finding.name.as_str(), &finding.detail, finding.used_for, &finding.fix];
        let mut row = vec![Cell::from(mark)];
        row.extend(cells.map(Cell::from));
        table.push(row);
    }
    let packages: BTreeSet<&str> = findings.iter().filter_map(|finding| finding.package).collect();
    let mut text = render(&table);
    if !packages.is_empty() {
        let packages: Vec<&str> = packages.into_iter().collect();
        let names = packages.join(" ");
        text += &format!("\nEverything missing at once: sudo apt-get install {names}\n");
    }
    text
}
