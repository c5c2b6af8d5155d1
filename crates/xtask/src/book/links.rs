//! The check of links: every relative link of a page leads to a file of the repository, and to a heading if it names
//! one; every page of `docs/` is a chapter.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::markdown::{anchors, prose, targets};
use super::{Fault, Page, SUMMARY};

/// The target of a link, split into file and heading.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link<'a> {
    /// The path from the repository's root; `None` if the link leaves the repository, as a URL does.
    pub(super) file: Option<PathBuf>,
    /// The anchor of the heading; empty if the link names none.
    pub(super) anchor: &'a str,
}

/// Returns file and heading of a link of the page at `path`.
pub(super) fn parse<'a>(path: &Path, target: &'a str) -> Link<'a> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    if target.contains("://") || target.starts_with("mailto:") {
        return Link { file: None, anchor };
    }
    let file = if file.is_empty() {
        Some(path.to_owned())
    } else {
        normalise(&path.parent().unwrap_or_else(|| Path::new("")).join(file))
    };
    Link { file, anchor }
}

/// Returns the path without `.` and `..`; `None` if it leaves the root.
fn normalise(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            other => normal.push(other),
        }
    }
    Some(normal)
}

/// Returns the links whose file or heading does not exist, and the pages that are not a chapter exactly once.
pub(super) fn check(root: &Path, pages: &[Page]) -> Vec<Fault> {
    let headings: BTreeMap<&Path, Vec<String>> =
        pages.iter().map(|page| (page.path.as_path(), anchors(&page.text))).collect();
    let mut faults = Vec::new();
    let mut chapters = Vec::new();
    for page in pages {
        for (line, text) in prose(&page.text) {
            for target in targets(text).into_iter().map(|at| &text[at]) {
                let link = parse(&page.path, target);
                if let Some(why) = fault_of(root, &link, &headings, target) {
                    faults.push(Fault { path: page.path.clone(), line, why });
                }
                if page.path == Path::new(SUMMARY) {
                    chapters.extend(link.file);
                }
            }
        }
    }
    let is_page = |page: &&Page| page.path.starts_with("docs") && page.path != Path::new(SUMMARY);
    for page in pages.iter().filter(is_page) {
        let count = chapters.iter().filter(|chapter| **chapter == page.path).count();
        if count != 1 {
            let why = format!("{SUMMARY} has this page {count} times, expected once");
            faults.push(Fault { path: page.path.clone(), line: 1, why });
        }
    }
    faults
}

fn fault_of(
    root: &Path,
    link: &Link<'_>,
    headings: &BTreeMap<&Path, Vec<String>>,
    target: &str,
) -> Option<String> {
    let file = match &link.file {
        Some(file) => file,
        None if target.contains(':') => return None,
        None => return Some(format!("({target}) leaves the repository")),
    };
    if !headings.contains_key(file.as_path()) && !root.join(file).exists() {
        return Some(format!("({target}): there is no {}", file.display()));
    }
    let anchors = headings.get(file.as_path())?;
    let known = link.anchor.is_empty() || anchors.iter().any(|anchor| anchor == link.anchor);
    let missing = || format!("({target}): {} has no heading #{}", file.display(), link.anchor);
    (!known).then(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page { path: path.into(), text: text.into() }
    }

    fn faults(text: &str) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let summary = page(SUMMARY, "[a](a.md)\n");
        let pages = [summary, page("docs/a.md", text)];
        let faults =
            check(root, &pages).into_iter().filter(|fault| fault.path != Path::new(SUMMARY));
        faults.map(|fault| fault.why).collect()
    }

    #[test]
    fn links_to_files_and_headings_that_exist_pass() {
        assert!(
            faults("# Here\n[x](../src/main.rs) [y](#here) [z](https://example.org/#a)\n")
                .is_empty()
        );
    }

    #[test]
    fn a_link_without_a_target_is_named() {
        let expected = ["(../src/man.rs): there is no src/man.rs"];
        assert_eq!(faults("[x](../src/man.rs)\n"), expected);
        assert_eq!(faults("[x](../../x.md)\n"), ["(../../x.md) leaves the repository"]);
        assert_eq!(faults("# A\n[x](#b)\n"), ["(#b): docs/a.md has no heading #b"]);
    }

    #[test]
    fn a_page_that_is_not_a_chapter_is_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let faults = check(root, &[page("docs/b.md", "")]);
        assert_eq!(faults[0].why, "docs/SUMMARY.md has this page 0 times, expected once");
    }
}
