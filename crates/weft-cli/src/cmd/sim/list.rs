//! Lists scenario files with their titles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use weft_figures::{library, stem};
use weft_report::{Column, Table};

use crate::files::{read_experiment, read_scenario, toml_files};
use weft_report::terminal::Output;

pub(super) fn list(folders: &[PathBuf], output: Output) -> Result<()> {
    let mut table = Table::new(vec![
        Column::text("file", "file"),
        Column::text("name", "name"),
        Column::text("shows", "about"),
    ]);
    for file in listed(folders) {
        // A figure that a bench measures, or that cannot be reproduced here, has no scenario.
        if read_experiment(&file).is_ok_and(|experiment| experiment.scenario.is_empty()) {
            continue;
        }
        let shown = file.display().to_string();
        let row = match read_scenario(&file, &[]) {
            Ok(scenario) => {
                let about = if scenario.about.is_empty() { title(&file) } else { scenario.about };
                vec![shown.into(), scenario.name.into(), about.into()]
            }
            Err(error) => vec![shown.into(), "".into(), format!("not usable: {error:#}").into()],
        };
        table.push(row);
    }
    if table.is_empty() && !output.is_json() {
        let names: Vec<String> =
            folders.iter().map(|folder| folder.display().to_string()).collect();
        return output.value(&(), || format!("no scenario files in {}", names.join(", ")));
    }
    output.table(&table)
}

/// Returns the scenario files of `folders`. Without folders, returns those of the usual ones, then those that are part
/// of the program and that no local file of the same name replaces.
fn listed(folders: &[PathBuf]) -> Vec<PathBuf> {
    if !folders.is_empty() {
        return folders.iter().flat_map(|folder| toml_files(folder)).collect();
    }
    let of = |folder: fn(&str) -> PathBuf| {
        library::FOLDERS.into_iter().flat_map(move |name| toml_files(&folder(name)))
    };
    let mut files: Vec<PathBuf> = of(|name| name.into()).collect();
    let local: BTreeSet<String> = files.iter().map(|file| stem(file)).collect();
    files.extend(of(library::built_in_folder).filter(|file| !local.contains(&stem(file))));
    files
}

/// Returns the title of an experiment; empty for a plain scenario.
fn title(file: &Path) -> String {
    read_experiment(file).map(|experiment| experiment.title).unwrap_or_default()
}
