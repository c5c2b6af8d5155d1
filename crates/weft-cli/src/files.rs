//! Scenario and experiment files: finds them, reads them, and replaces single values.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use toml::Table;
use weft_figures::library;
pub(crate) use weft_figures::library::toml_files;
use weft_sim::experiment::Experiment;
use weft_sim::{RunError, Scenario};

use weft_units::unknown_name;

use crate::overrides;

/// Returns the file that a user names: a path, or the bare name of a scenario or an experiment. Says on standard error
/// which file a bare name is.
pub(crate) fn locate(name: &Path) -> PathBuf {
    let file = library::locate(name);
    if file != name {
        eprintln!("weft: {} is {}", name.display(), file.display());
    }
    file
}

/// Says on standard error that a file is part of the program.
pub(crate) fn say_if_built_in(file: &Path) {
    if library::is_built_in(file) {
        eprintln!("weft: taking {}", file.display());
    }
}

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
        return Ok((parse(file, &text)?, Table::new(), folder.into()));
    };
    if sets.is_empty() && is_scenario {
        // Errors name the line if the text itself is parsed.
        return Ok((parse(file, &text)?, table, folder.into()));
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
        let text = library::read_to_string(file).ok()?;
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut headers =
            lines.filter(|(_, line)| line.starts_with("[[") && line.ends_with(ending));
        headers.nth(number - 1).map(|(line, _): (usize, _)| line)
    });
    let place = line.map_or_else(String::new, |line| format!(":{line}"));
    error.context(format!("{}{place}", file.display()))
}

/// Parses the text of a scenario's file.
fn parse(file: &Path, text: &str) -> Result<Scenario> {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    Scenario::parse(text, folder).map_err(|error| error.in_file(file).into())
}

fn read(file: &Path) -> Result<String> {
    library::read_to_string(file).map_err(|error| {
        let is_name = file.components().count() == 1 && file.extension().is_none();
        let name = file.display().to_string();
        if is_name && error.kind() == std::io::ErrorKind::NotFound {
            return anyhow!(unknown_name("scenario", &name, &library::names()));
        }
        anyhow::Error::new(error).context(format!("cannot read {name}"))
    })
}
