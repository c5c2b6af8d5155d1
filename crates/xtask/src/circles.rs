//! The check of circles between files: two files of a crate that need each other, directly or through others. A module
//! and the modules inside it are one unit in Rust (a child sees its parent's private items), so these arrows do not
//! count.
//!
//! [`PAGE`] lists the circles that stay, with the reason. A circle without a row fails, and so does a row without a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

mod graph;
mod parse;
mod resolve;

use parse::Crate;

const PAGE: &str = "docs/design/circles.md";

/// The files of a circle, with their paths from the repository's root.
type Circle = BTreeSet<String>;

/// Compares the circles of all crates with the page.
///
/// # Errors
/// A file cannot be read, or returns the circles without a row and the rows without a circle.
pub(crate) fn check(root: &Path) -> Result<()> {
    let found = circles(root)?;
    let page = root.join(PAGE);
    let page = std::fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
    let listed: BTreeSet<Circle> = page.lines().filter_map(row).collect();

    let mut faults = Vec::new();
    for (circle, arrows) in &found {
        if !listed.contains(circle) {
            faults.push(format!(
                "a circle that {PAGE} does not list:\n    {}",
                arrows.join("\n    ")
            ));
        }
    }
    for circle in listed.iter().filter(|&circle| !found.contains_key(circle)) {
        let files: Vec<_> = circle.iter().map(String::as_str).collect();
        faults.push(format!("{PAGE} lists a circle that there is not: {}", files.join(", ")));
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    let files: usize = found.keys().map(BTreeSet::len).sum();
    println!("circles: {} between {files} files, each with its reason in {PAGE}", found.len());
    Ok(())
}

/// Returns the files that a row of the page names, `None` for other lines.
fn row(line: &str) -> Option<Circle> {
    let files = line.strip_prefix("| `crates/")?.split_once('|')?.0;
    let files = format!("`crates/{files}");
    Some(files.split('`').filter(|file| file.ends_with(".rs")).map(str::to_owned).collect())
}

/// Returns the circles of all crates, with their arrows in words.
fn circles(root: &Path) -> Result<BTreeMap<Circle, Vec<String>>> {
    let mut found = BTreeMap::new();
    let crates = root.join("crates");
    let entries = std::fs::read_dir(&crates).context("cannot list crates/")?;
    for entry in entries {
        let source = entry?.path().join("src");
        if !source.join("lib.rs").exists() && !source.join("main.rs").exists() {
            continue;
        }
        let of = Crate::read(&source)?;
        let arrows = resolve::arrows(&of);
        for circle in graph::circles(of.files.len(), &arrows) {
            let name = |file: usize| {
                let path = of.files[file].path.strip_prefix(root).unwrap_or(&of.files[file].path);
                path.display().to_string()
            };
            let inside = arrows
                .iter()
                .filter(|(arrow, _)| circle.contains(&arrow.0) && circle.contains(&arrow.1));
            let words = inside
                .map(|(&(from, to), item)| format!("{} uses {item} of {}", name(from), name(to)));
            found.insert(circle.iter().map(|&file| name(file)).collect(), words.collect());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
