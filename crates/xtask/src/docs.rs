//! Reference pages that are written by the code they describe. Each is one row of [`DOCUMENTS`].

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

mod dissector;
mod table;
mod wire;

struct Document {
    /// From the repository's root.
    path: &'static str,
    /// The whole page, from the code.
    render: fn() -> String,
}

/// Every generated page.
const DOCUMENTS: &[Document] = &[
    Document { path: "docs/reference/wire.md", render: wire::render },
    Document { path: "dissector/weft.lua", render: dissector::render },
];

/// Writes every page that differs from what the code says.
///
/// # Errors
/// A page that cannot be written, by name.
pub(crate) fn write(root: &Path) -> Result<()> {
    for document in stale(root, DOCUMENTS)? {
        let file = root.join(document.path);
        let folder = file.parent().expect("a page lies in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, (document.render)()))
            .with_context(|| format!("cannot write {}", document.path))?;
        println!("wrote {}", document.path);
    }
    Ok(())
}

/// Fails when a page differs from what the code says.
///
/// # Errors
/// The pages that differ, and the command that mends them.
pub(crate) fn check(root: &Path) -> Result<()> {
    let stale = stale(root, DOCUMENTS)?;
    if stale.is_empty() {
        println!("docs: {} generated, all as the code says", DOCUMENTS.len());
        return Ok(());
    }
    let list: Vec<_> = stale.iter().map(|document| format!("\n  {}", document.path)).collect();
    bail!("generated pages differ from the code; run `cargo xtask docs`:{}", list.concat())
}

/// The pages that are missing or differ.
fn stale<'a>(root: &Path, documents: &'a [Document]) -> Result<Vec<&'a Document>> {
    let mut stale = Vec::new();
    for document in documents {
        match fs::read_to_string(root.join(document.path)) {
            Ok(text) if text == (document.render)() => {}
            Ok(_) => stale.push(document),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => stale.push(document),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", document.path));
            }
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own that goes away with the test.
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
}
