//! Markdown tables with aligned columns, readable as source text.

/// Returns a table in which every column is as wide as its widest cell.
pub(crate) fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |cells: [&str; COLUMNS]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("| {cell:width$} "));
        padded.collect::<String>() + "|\n"
    };
    let rule: String = widths.iter().map(|width| format!("|{:-<1$}", "", width + 2)).collect();
    let body = rows.iter().map(|row| line(std::array::from_fn(|column| row[column].as_str())));
    line(header) + &rule + "|\n" + &body.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["0-7".into(), "a".into()], ["8".into(), "long".into()]];
        let want = "\
| Bits | F    |
|------|------|
| 0-7  | a    |
| 8    | long |
";
        assert_eq!(table(["Bits", "F"], &rows), want);
    }
}
