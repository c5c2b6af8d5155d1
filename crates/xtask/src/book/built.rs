//! The check of the pages that mdBook wrote: every file to which they refer exists.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Checks the references of all pages and returns the number of pages.
///
/// # Errors
/// Returns the references to files that do not exist, or an error if a page cannot be read.
pub(super) fn check(book: &Path) -> Result<usize> {
    let mut pages = Vec::new();
    collect(book, &mut pages)?;
    let mut broken = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page);
        let text = text.with_context(|| format!("cannot read {}", page.display()))?;
        let folder = page.parent().expect("a page lies in a folder");
        let missing = references(&text).filter(|reference| !folder.join(reference).exists());
        broken.extend(missing.map(|it| format!("\n  {}: {it}", page.display())));
    }
    if broken.is_empty() {
        return Ok(pages.len());
    }
    bail!("references of the book lead nowhere:{}", broken.concat())
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "html")
            // A web server shows this page at every unknown address, so its references are absolute.
            && path.file_name().is_some_and(|name| name != "404.html")
        {
            pages.push(path);
        }
    }
    Ok(())
}

/// Returns the files that a page refers to, relative to its folder.
fn references(page: &str) -> impl Iterator<Item = &str> {
    let attributes = ["href=\"", "src=\""];
    let all = attributes.into_iter().flat_map(move |attribute| {
        page.match_indices(attribute).filter_map(move |(at, _)| {
            page[at + attribute.len()..].split_once('"').map(|(reference, _)| reference)
        })
    });
    all.map(|reference| reference.split(['#', '?']).next().unwrap_or_default())
        .filter(|file| !file.is_empty() && !file.contains(':') && !file.starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_files_are_found() {
        let page = r##"<a href="a.html#b"> <a href="#c"> <img src="d.svg"> <a href="https://e"> <a href="mailto:f">"##;
        assert_eq!(references(page).collect::<Vec<_>>(), ["a.html", "d.svg"]);
    }
}
