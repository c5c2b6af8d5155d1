//! Scenario and experiment files: finding them, reading them, changing single values.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use toml::Table;
use weft_sim::experiment::Experiment;
use weft_sim::{RunError, Scenario};
use weft_units::unknown_name;

use crate::overrides;

/// Where they are looked for, seen from the repository's root.
pub(crate) const FOLDERS: [&str; 2] = ["scenarios", "experiments"];

/// Reads a scenario with the values of `sets` replaced. Of an experiment, the scenario that its runs
/// start from.
///
/// # Errors
/// The file, line and key that is wrong.
pub(crate) fn read_scenario(file: &Path, sets: &[String]) -> Result<Scenario> {
    read_table(file, sets).map(|(scenario, ..)| scenario)
}

/// Likewise, with the table it was made from and the folder that its file names are relative to.
///
/// # Errors
/// The file, line and key that is wrong.
pub(crate) fn read_table(file: &Path, sets: &[String]) -> Result<(Scenario, Table, PathBuf)> {
    let text = read(file)?;
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let table: Option<Table> = toml::from_str(&text).ok();
    let of_experiment = table.as_ref().and_then(|table| table.get("scenario")?.as_table().cloned());
    let is_scenario = of_experiment.is_none();
    let Some(mut table) = of_experiment.or(table) else {
        // What is not TOML is no scenario either, and its error names the line.
        return Ok((Scenario::read(file)?, Table::new(), folder.into()));
    };
    if sets.is_empty() && is_scenario {
        // From the text itself, errors name the line.
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
/// What is wrong in the file.
pub(crate) fn read_experiment(file: &Path) -> Result<Experiment> {
    Experiment::parse(&read(file)?).with_context(|| file.display().to_string())
}

/// Every TOML file of a folder, in order of name. None when there is no such folder.
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

/// The experiments' folder: here, or in a folder above.
pub(crate) fn experiments_folder() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join("experiments")).find(|folder| folder.is_dir())
}

/// The file called `name`, the experiment of that name, or the parts of a figure: `fig10` is
/// `fig10a` and `fig10b`.
///
/// # Errors
/// Without such an experiment, the nearest name and those there are.
pub(crate) fn find_experiment(name: &str) -> Result<Vec<PathBuf>> {
    let direct = PathBuf::from(name);
    if direct.is_file() {
        return Ok(vec![direct]);
    }
    if direct.extension().is_some() || direct.components().count() > 1 {
        bail!("no file {name}");
    }
    let Some(folder) = experiments_folder() else {
        bail!(
            "no experiment {name:?}: no folder named experiments here or above; run this in Weft's \
             repository, or give the file's path"
        );
    };
    let files = toml_files(&folder);
    let stem = |file: &PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    let asked = |file: &PathBuf| {
        let stem = stem(file);
        matches!(
            stem.as_deref().and_then(|stem| stem.strip_prefix(name)),
            Some("" | "a" | "b" | "c")
        )
    };
    let found: Vec<PathBuf> = files.iter().filter(|&file| asked(file)).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names: Vec<String> = files.iter().filter_map(stem).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    bail!(unknown_name("experiment", name, &known))
}

/// What is wrong with a run of a scenario, with the file and, for what only its network shows to be
/// wrong, the line of the section it stands in.
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
