//! The input of mdBook: the pages of `docs/`, and those in the repository's root that are chapters. Links to other
//! files of the repository become links to its page on the web.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::links::{self, Link};
use super::markdown::{prose, targets};
use super::{CHAPTERS, Page};

/// Empties `folder` and writes the book's sources there.
///
/// # Errors
/// Returns an error with the file that cannot be read or written.
pub(super) fn write(root: &Path, pages: &[Page], repository: &str, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    copy(&root.join("docs"), folder)?;
    for page in pages {
        let Some(place) = place(&page.path) else { continue };
        let text = rewrite(root, page, repository);
        let file = folder.join(place);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Returns the path in the book of a file of the repository; `None` if the book does not have the file.
fn place(path: &Path) -> Option<PathBuf> {
    match path.strip_prefix("docs") {
        Ok(inside) => Some(inside.to_owned()),
        Err(_) => {
            CHAPTERS.iter().any(|chapter| path == Path::new(chapter)).then(|| path.to_owned())
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let path = entry?.path();
        let to = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns a page's text with the links of the book.
fn rewrite(root: &Path, page: &Page, repository: &str) -> String {
    let mut lines: Vec<String> = page.text.lines().map(str::to_owned).collect();
    for (number, text) in prose(&page.text) {
        for at in targets(text).into_iter().rev() {
            let new = target(root, &page.path, &text[at.clone()], repository);
            lines[number - 1].replace_range(at, &new);
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the target in the book of a link of `page`.
fn target(root: &Path, page: &Path, target: &str, repository: &str) -> String {
    let Link { file: Some(file), anchor } = links::parse(page, target) else {
        return target.into();
    };
    // A title in the table of contents may have an empty target, because it has no page.
    if target.is_empty() || target.starts_with('#') {
        return target.into();
    }
    let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
    let from = place(page).unwrap_or_default();
    match place(&file).filter(|_| !root.join(&file).is_dir()) {
        Some(place) => {
            let up = "../".repeat(from.components().count().saturating_sub(1));
            format!("{up}{}{anchor}", place.display())
        }
        None => {
            let kind = if root.join(&file).is_dir() { "tree" } else { "blob" };
            format!("{repository}/{kind}/main/{}{anchor}", file.display())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_chapters_or_to_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = "[a](../../ARCHITECTURE.md#three-ideas) [b](../policies.md) [c](../../Makefile) [d](#e) [f](../design)\n";
        let page = Page { path: "docs/start/x.md".into(), text: text.into() };
        let want = "[a](../ARCHITECTURE.md#three-ideas) [b](../policies.md) [c](https://h/blob/main/Makefile) \
                    [d](#e) [f](https://h/tree/main/docs/design)\n";
        assert_eq!(rewrite(&root, &page, "https://h"), want);
    }
}
