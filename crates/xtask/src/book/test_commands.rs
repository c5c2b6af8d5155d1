//! The check of commands that run tests and benches: each names a package, a target and a filter that exist. Cargo
//! reports success for a filter that matches no test, so a page that names a renamed test would show nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{Fault, Page};

/// The beginning of a command that is shortened to its filter, after one for the same package.
const SHORT: &str = "… ";

/// A command of a page.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call<'a> {
    package: &'a str,
    /// The folder of the package with the target, and the target's name.
    target: Option<(&'static str, &'a str)>,
    filter: Option<&'a str>,
}

/// Returns a fault for each command that names a package, a target or a test that does not exist.
///
/// # Errors
/// Returns an error if a source cannot be read.
pub(super) fn check(root: &Path, pages: &[Page]) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for page in pages.iter().filter(|page| page.path != Path::new("CHANGELOG.md")) {
        for (line, text) in (1..).zip(page.text.lines()) {
            for call in calls(text) {
                if let Some(why) = fault(root, &call)? {
                    faults.push(Fault { path: page.path.clone(), line, why });
                }
            }
        }
    }
    Ok(faults)
}

/// Returns the commands of a line, those that are shortened to their filter too.
fn calls(line: &str) -> Vec<Call<'_>> {
    let mut calls: Vec<Call<'_>> = Vec::new();
    for piece in line.split(['`', '#', ';']) {
        if let Some((_, words)) = piece.split_once("cargo test ") {
            calls.extend(parse(words));
        } else if let Some((_, words)) = piece.split_once("cargo bench ") {
            calls.extend(parse(words).map(|call| Call { filter: None, ..call }));
        } else if let (Some(words), Some(last)) = (piece.strip_prefix(SHORT), calls.last()) {
            let package = last.package;
            calls.push(Call { package, filter: words.split_whitespace().next(), target: None });
        }
    }
    calls
}

/// Parses the words after `cargo test`; `None` without a package, or with a word in capitals for any package.
fn parse(words: &str) -> Option<Call<'_>> {
    let mut call = Call::default();
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--" => break,
            "-p" | "--package" => call.package = words.next()?,
            "--test" => call.target = Some(("tests", words.next()?)),
            "--bench" => call.target = Some(("benches", words.next()?)),
            "--bin" | "--example" | "--features" => drop(words.next()),
            option if option.starts_with('-') => {}
            filter => call.filter = call.filter.or(Some(filter)),
        }
    }
    call.package.starts_with(|letter: char| letter.is_ascii_lowercase()).then_some(call)
}

/// Returns why a command runs nothing, if so.
fn fault(root: &Path, call: &Call<'_>) -> Result<Option<String>> {
    let Call { package, target, filter } = *call;
    let folder = root.join("crates").join(package);
    if !folder.is_dir() {
        return Ok(Some(format!("no package {package}")));
    }
    if let Some((kind, name)) = target {
        let place = folder.join(kind).join(name);
        if !place.with_extension("rs").is_file() && !place.join("main.rs").is_file() {
            return Ok(Some(format!("{package} has no {kind}/{name}")));
        }
    }
    let Some(filter) = filter else { return Ok(None) };
    let mut names = BTreeSet::new();
    collect(&folder, &mut names)?;
    let is_known = |part: &str| names.iter().any(|name| name.contains(part));
    let unknown = filter.split("::").find(|part| !is_known(part));
    Ok(unknown.map(|part| format!("no test of {package} is named {part}")))
}

/// Collects the names of functions and modules in a folder's sources.
fn collect(folder: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, names)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            names.extend(text.lines().filter_map(declared).map(str::to_owned));
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

/// Returns the function or module that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| !matches!(*word, "fn" | "mod"));
    let name = words.nth(1)?;
    let end = name.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    Some(&name[..end.unwrap_or(name.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_code_and_in_prose_are_found_with_their_short_forms() {
        let line = "| a | `cargo test -p weft-seal --test one two::three -- --nocapture`, `… four` | `cargo bench -p weft-perf --bench udp -- 5`";
        let call = |package, target, filter| Call { package, target, filter };
        let want = [
            call("weft-seal", Some(("tests", "one")), Some("two::three")),
            call("weft-seal", None, Some("four")),
            call("weft-perf", Some(("benches", "udp")), None),
        ];
        assert_eq!(calls(line), want);
        assert_eq!(calls("`cargo test --workspace`, `cargo test -p CRATE`"), []);
    }

    #[test]
    fn a_name_that_no_source_has_is_a_fault() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/xtask");
        let why = |line| fault(root, &calls(line)[0]).expect("the sources are readable");
        assert_eq!(why("cargo test -p xtask a_name_that_no_source"), None);
        assert_eq!(why("cargo test -p xtask book::test_commands::"), None);
        let missing = ["never", "heard", "of"].join("_");
        let line = format!("cargo test -p xtask {missing}");
        assert_eq!(why(&line), Some(format!("no test of xtask is named {missing}")));
        assert_eq!(why("cargo test -p xtask --test x"), Some("xtask has no tests/x".into()));
        assert_eq!(why("cargo test -p weft-x"), Some("no package weft-x".into()));
    }
}
