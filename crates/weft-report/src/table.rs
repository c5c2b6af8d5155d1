//! A table that is written as aligned text, Markdown, JSON, CSV or HTML.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};
use maud::{Markup, html};
use serde_json::{Map, Value};

/// The alignment of a column's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Left, for names.
    #[default]
    Left,
    /// Right, for numbers.
    Right,
}

/// A column: its heading for people and its key for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading, as short as possible.
    pub heading: String,
    /// The key in JSON and CSV, with the unit as its last word: `p99_us`.
    pub key: String,
    /// The alignment of the text.
    pub align: Align,
}

impl Column {
    /// Returns a column of names.
    pub fn text(heading: impl Into<String>, key: impl Into<String>) -> Self {
        Self { heading: heading.into(), key: key.into(), align: Align::Left }
    }

    /// Returns a column of numbers.
    pub fn number(heading: impl Into<String>, key: impl Into<String>) -> Self {
        Self { align: Align::Right, ..Self::text(heading, key) }
    }
}

/// A value in two forms: rounded with its unit for people, exact for programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The text for people.
    pub text: String,
    /// The value for programs.
    pub value: Value,
}

impl Cell {
    /// Returns a cell that shows `text` and has the value `value`.
    pub fn new(text: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { text: text.into(), value: value.into() }
    }

    /// Returns a cell without a value: a dash for people, null for programs.
    pub fn missing() -> Self {
        Self::new("–", Value::Null)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text.clone(), text)
    }
}

macro_rules! cell_from_number {
    ($($number:ty),+) => {$(
        impl From<$number> for Cell {
            fn from(number: $number) -> Self {
                Self::new(number.to_string(), number)
            }
        }
    )+};
}
cell_from_number!(u16, u32, u64, usize, i64);

/// A table of rows under headings. Each row has one cell per column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Returns a table without rows.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: vec![] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics unless the row has one cell for each column.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a row has one cell for each column");
        self.rows.push(row);
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the rows, each with one cell for each column.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Returns `true` if the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns aligned text. If `width` is given, cells wrap so that no line has more characters. Headings are bold if
    /// `styled`; the caller decides that from the output and the variable `NO_COLOR`.
    pub fn to_text(&self, width: Option<u16>, styled: bool) -> String {
        let mut table = comfy_table::Table::new();
        let rule = LineStyle::none().fill('─').junction('─');
        table.load_style(TableStyle::new().header_separator(rule));
        if let Some(width) = width {
            table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        }
        table.set_header(self.columns.iter().map(|column| &column.heading));
        table.add_rows(self.rows.iter().map(|row| row.iter().map(|cell| &cell.text)));
        let last = self.columns.len().saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index == last { 0 } else { 1 }));
            if self.columns[index].align == Align::Right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let text = table.to_string();
        let rule = |line: &str| !line.is_empty() && line.chars().all(|c| c == '─');
        let mut in_heading = true;
        let lines = text.lines().map(|line| {
            let line = line.trim_end();
            in_heading &= !rule(line);
            if styled && in_heading {
                format!("\x1b[1m{line}\x1b[0m\n")
            } else {
                format!("{line}\n")
            }
        });
        lines.collect()
    }

    /// Returns a Markdown table; numbers are aligned to the right.
    pub fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let plain = |text: &String| text.replace('|', "\\|");
        let rules = self.columns.iter().map(|column| match column.align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        });
        let headings = self.columns.iter().map(|column| plain(&column.heading));
        let rows = self.rows.iter().map(|row| line(row.iter().map(|it| plain(&it.text)).collect()));
        line(headings.collect()) + &line(rules.collect()) + &rows.collect::<String>()
    }

    /// Returns an array with one object per row; its keys are the columns' keys in order.
    pub fn to_json(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let keys = self.columns.iter().map(|column| column.key.clone());
            Value::Object(
                keys.zip(row.iter().map(|cell| cell.value.clone())).collect::<Map<_, _>>(),
            )
        };
        Value::Array(self.rows.iter().map(object).collect())
    }

    /// Returns comma-separated values (RFC 4180) under the columns' keys.
    ///
    /// # Panics
    /// Never, because writing to memory cannot fail.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(vec![]);
        let in_memory = "writing to memory cannot fail";
        writer.write_record(self.columns.iter().map(|column| &column.key)).expect(in_memory);
        for row in &self.rows {
            let plain = |cell: &Cell| match &cell.value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            writer.write_record(row.iter().map(plain)).expect(in_memory);
        }
        let bytes = writer.into_inner().expect(in_memory);
        String::from_utf8(bytes).expect("every field was a string")
    }

    pub(crate) fn to_markup(&self) -> Markup {
        let class = |index: usize| (self.columns[index].align == Align::Right).then_some("number");
        html! {
            div.scroll {
                table {
                    thead {
                        tr {
                            @for (index, column) in self.columns.iter().enumerate() {
                                th class=[class(index)] { (column.heading) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (index, cell) in row.iter().enumerate() {
                                    td class=[class(index)] { (cell.text) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.to_text(None, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new(vec![Column::text("policy", "policy"), Column::number("p99", "p99_us")]);
        table.push(vec!["single".into(), Cell::new("1.2 ms", 1203.4)]);
        table.push(vec!["oblivious, 128".into(), Cell::missing()]);
        table
    }

    #[test]
    fn text_is_aligned_and_has_no_trailing_blanks() {
        let want = "policy             p99\n\
                    ──────────────────────\n\
                    single          1.2 ms\n\
                    oblivious, 128       –\n";
        assert_eq!(table().to_string(), want);
    }

    #[test]
    fn only_the_heading_is_bold() {
        let text = table().to_text(None, true);
        assert!(text.starts_with("\x1b[1mpolicy             p99\x1b[0m\n"), "{text:?}");
        assert_eq!(text.matches("\x1b[1m").count(), 1);
    }

    #[test]
    fn a_narrow_terminal_wraps_cells_instead_of_cutting_them() {
        let mut table =
            Table::new(vec![Column::text("name", "name"), Column::text("about", "about")]);
        table.push(vec!["single".into(), "every packet of a flow takes the same path".into()]);
        let text = table.to_text(Some(30), false);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.contains(&"same") && words.contains(&"path"), "{text}");
    }

    #[test]
    fn programs_get_exact_values_in_column_order() {
        let want =
            r#"[{"policy":"single","p99_us":1203.4},{"policy":"oblivious, 128","p99_us":null}]"#;
        assert_eq!(table().to_json().to_string(), want);
    }

    #[test]
    fn markdown_aligns_numbers_and_escapes_bars() {
        let mut table = table();
        table.push(vec!["a|b".into(), 3_u64.into()]);
        let want = "| policy | p99 |\n| --- | ---: |\n| single | 1.2 ms |\n\
                    | oblivious, 128 | – |\n| a\\|b | 3 |\n";
        assert_eq!(table.to_markdown(), want);
    }

    #[test]
    fn csv_quotes_fields_with_commas() {
        assert_eq!(table().to_csv(), "policy,p99_us\nsingle,1203.4\n\"oblivious, 128\",\n");
    }

    #[test]
    #[should_panic(expected = "one cell for each column")]
    fn a_row_with_a_cell_missing_is_a_bug() {
        table().push(vec!["single".into()]);
    }
}
