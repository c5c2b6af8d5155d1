//! Scenario files and what they show.

use std::path::PathBuf;

use anyhow::Result;
use weft_report::{Column, Table};

use crate::files::{read_scenario, toml_files};
use crate::output::Output;

pub(super) fn list(folders: &[PathBuf], output: Output) -> Result<()> {
    let mut table = Table::new(vec![
        Column::text("file", "file"),
        Column::text("name", "name"),
        Column::text("shows", "about"),
    ]);
    for file in folders.iter().flat_map(|folder| toml_files(folder)) {
        let shown = file.display().to_string();
        let row = match read_scenario(&file, &[]) {
            Ok(scenario) => vec![shown.into(), scenario.name.into(), scenario.about.into()],
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
