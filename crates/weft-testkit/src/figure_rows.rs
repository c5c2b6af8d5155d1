//! Output of rows of the papers' figures by the benches that measure them.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::Value;

/// The environment variable with the file to which rows are appended; `weft experiment run` sets it.
pub const ROWS: &str = "WEFT_BENCH_JSON";

/// Appends a row of a figure, such as `astral-fig7b`, as a line of JSON to the file that [`ROWS`] names; does nothing
/// if the variable is not set. Text fields identify the row, numbers are measurements.
///
/// # Panics
/// Panics if the file cannot be written or the row is not an object.
pub fn figure_row(figure: &str, row: &Value) {
    let Some(file) = std::env::var_os(ROWS) else { return };
    let line = line(figure, row);
    let mut file =
        OpenOptions::new().create(true).append(true).open(file).expect("the file of rows");
    file.write_all(line.as_bytes()).expect("the file of rows");
}

fn line(figure: &str, row: &Value) -> String {
    let mut row = row.as_object().expect("a row is an object").clone();
    row.insert("figure".into(), figure.into());
    Value::Object(row).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_a_line_that_names_its_figure() {
        let line = line("astral-fig7b", &json!({ "way": "planned", "mean": 1.5 }));
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        let row: Value = serde_json::from_str(&line).expect("an object");
        assert_eq!(row, json!({ "figure": "astral-fig7b", "mean": 1.5, "way": "planned" }));
    }
}
