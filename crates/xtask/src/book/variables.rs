//! The check of variables: `docs/reference/variables.md` has a row for every `WEFT_*` variable of the sources, and no
//! other row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Fault, Page};

/// The page with one row for each variable.
const PAGE: &str = "docs/reference/variables.md";
/// The places where variables are read: programs, scripts and units.
const SOURCES: [&str; 4] = ["crates", "scripts", "dist", "fuzz"];
/// The endings of the names of files that may read variables.
const ENDINGS: [&str; 6] = ["rs", "c", "py", "pyi", "sh", "service"];
/// This file, whose tests name variables that nothing reads.
const OWN: &str = "crates/xtask/src/book/variables.rs";
/// The page of keys, generated from their tables: the sources do not spell out the variable of each.
const KEYS: &str = "docs/reference/configuration.md";

/// Returns a fault for each variable without a row, and for each row of a variable that nothing reads.
///
/// # Errors
/// Returns an error if a source cannot be read.
pub(super) fn check(root: &Path, pages: &[Page]) -> Result<Vec<Fault>> {
    let text = |path: &str| pages.iter().find(|page| page.path == Path::new(path));
    let rows: BTreeSet<&str> = text(PAGE).into_iter().flat_map(|page| rows(&page.text)).collect();
    let mut read = BTreeMap::new();
    for folder in SOURCES {
        collect(root, &root.join(folder), &mut read)?;
    }
    for name in text(KEYS).into_iter().flat_map(|page| names(&page.text)) {
        read.entry(name.to_owned()).or_insert_with(|| (PathBuf::from(KEYS), 1));
    }
    let missing = read.iter().filter(|(name, _)| !rows.contains(name.as_str()));
    let missing = missing.map(|(name, (path, line))| Fault {
        path: path.clone(),
        line: *line,
        why: format!("{name} has no row in {PAGE}"),
    });
    let unread = rows.iter().filter(|name| !read.contains_key(**name));
    let unread = unread.map(|name| Fault {
        path: PAGE.into(),
        line: 1,
        why: format!("nothing reads {name}"),
    });
    Ok(missing.chain(unread).collect())
}

/// Returns the variables in the first column of a table.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| names(line.strip_prefix("| `WEFT_").map(|_| line)?).next())
}

/// Returns the variables that a text names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("WEFT_").filter_map(|(at, _)| {
        let within = text[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let of_name = |letter: char| letter.is_ascii_uppercase() || letter == '_';
        let rest = &text[at..];
        let name = &rest[..rest.find(|letter: char| !of_name(letter)).unwrap_or(rest.len())];
        (!within && !name.ends_with('_')).then_some(name)
    })
}

fn collect(
    root: &Path,
    folder: &Path,
    read: &mut BTreeMap<String, (PathBuf, usize)>,
) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(root, &path, read)?;
            }
            continue;
        }
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let own = path.strip_prefix(root).unwrap_or(&path).to_owned();
        if !ENDINGS.contains(&&*ending) || own == Path::new(OWN) {
            continue;
        }
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        for (line, number) in text.lines().zip(1..) {
            for name in names(line) {
                read.entry(name.to_owned()).or_insert_with(|| (own.clone(), number));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_words() {
        let text = "\"WEFT_MTU\", MY_WEFT_X, `WEFT_{}`, WEFT_HELD_BYTES.";
        assert_eq!(names(text).collect::<Vec<_>>(), ["WEFT_MTU", "WEFT_HELD_BYTES"]);
    }

    #[test]
    fn a_row_names_its_variable_first() {
        let page = "| `WEFT_A` | like `WEFT_B` |\nWEFT_C\n";
        assert_eq!(rows(page).collect::<Vec<_>>(), ["WEFT_A"]);
    }
}
