//! The generated reference pages. Each is a row of [`documents`] and is written from the code that it describes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};

mod dissector;
mod lines;
mod pictures;
mod stat;
mod table;
mod wire;
mod xrdma;

/// A generated page.
struct Document {
    /// The path from the repository's root.
    path: String,
    /// The text of the whole page.
    text: String,
}

/// The folder of the manual pages, all of which are generated.
const MANUAL: &str = "crates/weft-xrdma-c/man";

/// Returns every generated page.
///
/// # Errors
/// Returns an error if a picture's sources cannot be read, or name a file that does not exist.
fn documents() -> Result<Vec<Document>> {
    let single = [
        ("docs/reference/wire.md", wire::render()),
        ("docs/reference/stat.md", stat::render()),
        ("docs/lines.md", lines::render()),
        ("dissector/weft.lua", dissector::render()),
        ("crates/weft-xrdma-c/include/xrdma.h", xrdma::header()),
    ];
    let single = single.map(|(path, text)| Document { path: path.into(), text });
    let manual = xrdma::pages().into_iter();
    let manual = manual.map(|(name, text)| Document { path: format!("{MANUAL}/{name}"), text });
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pictures =
        pictures::render(&sources)?.map(|(path, text)| Document { path: path.into(), text });
    Ok(single.into_iter().chain(manual).chain(pictures).collect())
}

/// Writes every page that differs from the code, and removes pages that are no longer generated.
///
/// # Errors
/// Returns an error if a page cannot be read or written, with its name.
pub(crate) fn write(root: &Path) -> Result<()> {
    let documents = documents()?;
    for path in stale(root, &documents)? {
        let file = root.join(&path);
        match documents.iter().find(|document| document.path == path) {
            Some(document) => {
                let folder = file.parent().expect("a page lies in a folder");
                fs::create_dir_all(folder)
                    .and_then(|()| fs::write(&file, &document.text))
                    .with_context(|| format!("cannot write {path}"))?;
                println!("wrote {path}");
            }
            None => {
                fs::remove_file(&file).with_context(|| format!("cannot remove {path}"))?;
                println!("removed {path}");
            }
        }
    }
    Ok(())
}

/// Prints the number of lines of code of the examples.
pub(crate) fn lines() {
    print!("{}", lines::render());
}

/// Checks that every page agrees with the code.
///
/// # Errors
/// Returns the pages that differ, and the command that rewrites them.
pub(crate) fn check(root: &Path) -> Result<()> {
    let documents = documents()?;
    let stale = stale(root, &documents)?;
    if stale.is_empty() {
        println!("docs: {} generated pages agree with the code", documents.len());
        return Ok(());
    }
    let list: Vec<_> = stale.iter().map(|path| format!("\n  {path}")).collect();
    bail!("generated pages differ from the code; run `cargo xtask docs`:{}", list.concat())
}

/// Returns the pages that are missing, differ from the code, or are no longer generated.
fn stale(root: &Path, documents: &[Document]) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for Document { path, text } in documents {
        match fs::read_to_string(root.join(path)) {
            Ok(current) if current == *text => {}
            Ok(_) => stale.push(path.clone()),
            Err(error) if error.kind() == ErrorKind::NotFound => stale.push(path.clone()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        }
    }
    let Ok(manual) = fs::read_dir(root.join(MANUAL)) else { return Ok(stale) };
    for page in manual {
        let name = page.with_context(|| format!("cannot read {MANUAL}"))?.file_name();
        let path = format!("{MANUAL}/{}", name.to_string_lossy());
        if !documents.iter().any(|document| document.path == path) {
            stale.push(path);
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that the test removes.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_missing_page_and_an_edited_page_are_named_with_the_command() {
        let scratch = Scratch::new("weft-docs");
        let missing = check(&scratch.0).unwrap_err().to_string();
        assert!(missing.contains("docs/reference/wire.md"), "{missing}");
        assert!(missing.contains("cargo xtask docs"), "{missing}");

        write(&scratch.0).unwrap();
        check(&scratch.0).unwrap();

        let page = scratch.0.join("docs/reference/wire.md");
        let text = fs::read_to_string(&page).unwrap();
        fs::write(&page, text.replacen("Path ID", "Path Id", 1)).unwrap();
        let edited = check(&scratch.0).unwrap_err().to_string();
        assert!(edited.contains("docs/reference/wire.md"), "{edited}");
    }

    #[test]
    fn a_page_that_is_no_longer_generated_is_named_and_removed() {
        let scratch = Scratch::new("weft-docs-removed");
        write(&scratch.0).unwrap();
        let page = scratch.0.join(MANUAL).join("xrdma_gone.3");
        fs::write(&page, "").unwrap();
        let error = check(&scratch.0).unwrap_err().to_string();
        assert!(error.contains("xrdma_gone.3"), "{error}");
        write(&scratch.0).unwrap();
        assert!(!page.exists());
        check(&scratch.0).unwrap();
    }
}
