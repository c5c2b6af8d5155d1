//! Pages of the book that are generated from this crate: reference pages, from the parser, the settings and the metrics.
//! The tests here also check the command lines of all pages against the parser. `BLESS=1 cargo test -p weft-cli --bin
//! weft pages` writes the generated pages.

use std::fs;
use std::path::{Path, PathBuf};

mod command_lines;
mod commands;
mod configuration;
mod events;
mod fields;
#[path = "../../xtask/src/book/markdown.rs"]
mod markdown;
mod metrics;
mod samples;

/// Returns a file or folder by its path from the repository's root.
fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the text of a file of the repository.
///
/// # Panics
/// Panics if the file cannot be read.
fn read(path: &str) -> String {
    let text = fs::read_to_string(in_repository(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a generated page with the file; with `BLESS` set, writes the file first.
///
/// # Panics
/// Panics if they differ.
fn assert_page(path: &str, page: &str) {
    let file = in_repository(path);
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(file.parent().expect("a page lies in a folder")).unwrap();
        fs::write(&file, page).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let differs = found.lines().zip(page.lines()).position(|(found, page)| found != page);
    let fix = "run `BLESS=1 cargo test -p weft-cli --bin weft pages`";
    if let Some(line) = differs {
        let (found, page) = (found.lines().nth(line), page.lines().nth(line));
        panic!("{path}:{} is {found:?}, and the code says {page:?}: {fix}", line + 1);
    }
    assert_eq!(found.len(), page.len(), "{path} has another length than the code's page: {fix}");
}

/// Returns a text as the cell of a table.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut cell = String::new();
    let mut code = false;
    for letter in words.join(" ").chars() {
        code ^= letter == '`';
        match letter {
            '|' => cell.push_str("\\|"),
            '<' | '*' | '_' if !code => cell.extend(['\\', letter]),
            _ => cell.push(letter),
        }
    }
    cell
}

/// Returns a table of Markdown.
fn table<const COLUMNS: usize>(header: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let mut table = format!("| {} |\n|{}\n", header.join(" | "), " --- |".repeat(COLUMNS));
    for row in rows {
        table += &format!("| {} |\n", row.join(" | "));
    }
    table + "\n"
}

#[test]
fn a_cell_breaks_no_table() {
    assert_eq!(cell("a | b\nc <d> `e_f <g>` h_i"), "a \\| b c \\<d> `e_f <g>` h\\_i");
}
