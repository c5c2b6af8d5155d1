//! Scenario and experiment files: finds them, reads them, and replaces single values.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::Table;
use weft_sim::experiment::Experiment;
use weft_sim::{RunError, Scenario};

use crate::overrides;

/// The folders in which scenario and experiment files are looked up, relative to the repository's root.
pub(crate) const FOLDERS: [&str; 2] = ["scenarios", "experiments"];

/// Reads a scenario with the values of `sets` replaced; from an experiment, reads the scenario that its runs
/// start from.
///
/// # Errors
/// Returns an error that names the file, the line and the key.
pub(crate) fn read_scenario(file: &Path, sets: &[String]) -> Result<Scenario> {
    read_table(file, sets).map(|(scenario, ..)| scenario)
}

/// Reads a scenario as [`read_scenario`] does; also returns the table that it was made from and the folder to which its
/// file names are relative.
///
/// # Errors
/// Returns an error that names the file, the line and the key.
pub(crate) fn read_table(file: &Path, sets: &[String]) -> Result<(Scenario, Table, PathBuf)> {
    let text = read(file)?;
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let table: Option<Table> = toml::from_str(&text).ok();
    let of_experiment = table.as_ref().and_then(|table| table.get("scenario")?.as_table().cloned());
    let is_scenario = of_experiment.is_none();
    let Some(mut table) = of_experiment.or(table) else {
        // A text that is not TOML is no scenario either, and the error of TOML names the line.
        return Ok((Scenario::read(file)?, Table::new(), folder.into()));
    };
    if sets.is_empty() && is_scenario {
        // Errors name the line if the text itself is parsed.
        return Ok((Scenario::read(file)?, table, folder.into()));
    }
    overrides::set(&mut table, sets)?;
    let name = file.display();
    let scenario = Scenario::from_table(table.clone(), folder).with_context(|| match sets {
        [] => name.to_string(),
        sets => format!("{name} with --set {}", sets.join(" --set ")),
    })?;
    Ok((scenario, table, folder.into()))
}

/// Reads an experiment.
///
/// # Errors
/// Returns an error that names the file and the fault in it.
pub(crate) fn read_experiment(file: &Path) -> Result<Experiment> {
    Experiment::parse(&read(file)?).with_context(|| file.display().to_string())
}

/// Returns every TOML file of a folder, in order of name; none if there is no such folder.
pub(crate) fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

/// Adds the file to the error of a scenario's run. For an error of a workload or a fault, which the file's parser does
/// not find, also adds the line of its section.
pub(crate) fn in_scenario(file: &Path, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    let section = error.chain().find_map(|cause| match cause.downcast_ref()? {
        RunError::Workload { number, .. } => Some(("workload]]", *number)),
        RunError::Fault { number, .. } => Some(("fault]]", *number)),
        _ => None,
    });
    let line = section.and_then(|(ending, number)| {
        let text = fs::read_to_string(file).ok()?;
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut headers =
            lines.filter(|(_, line)| line.starts_with("[[") && line.ends_with(ending));
        headers.nth(number - 1).map(|(line, _): (usize, _)| line)
    });
    let place = line.map_or_else(String::new, |line| format!(":{line}"));
    error.context(format!("{}{place}", file.display()))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
