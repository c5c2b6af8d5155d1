//! The pages that mdBook wrote: what they refer to is beside them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Returns how many pages there are.
///
/// # Errors
/// The references of pages to files that are not there.
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
            // It is shown at any address that there is not, and has absolute references.
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
