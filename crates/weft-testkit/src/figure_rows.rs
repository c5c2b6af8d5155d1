//! Rows of the papers' figures, from the benches that measure them.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::Value;

/// The file that rows are appended to; `weft experiment run` names one.
pub const ROWS: &str = "WEFT_BENCH_JSON";

/// Appends a row of a figure, such as `astral-fig7b`, to the file that [`ROWS`] names, as a JSON object on a line;
/// does nothing where none is named. Text says where a row belongs, numbers are measures.
///
/// # Panics
/// The file cannot be written, or the row is not an object.
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
