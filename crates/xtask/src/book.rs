//! The book: `docs/`, with `docs/SUMMARY.md` as its table of contents, checked without mdBook and built with it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) mod markdown;

mod built;
mod links;
mod samples;
mod stage;
mod test_commands;
mod variables;

/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Pages in the repository's root that are chapters of the book.
const CHAPTERS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
/// The page outside the book that is checked too.
const README: &str = "README.md";

/// A page, with its path from the repository's root.
#[derive(Debug)]
struct Page {
    path: PathBuf,
    text: String,
}

/// A fault on a line of a page.
#[derive(Debug)]
struct Fault {
    path: PathBuf,
    line: usize,
    why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.why)
    }
}

/// The options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build nothing; fail when a link, an anchor, a block of TOML, a variable or the name of a test is wrong.
    #[arg(long)]
    check: bool,
}

/// Checks the pages, and builds the book in `target/book`.
///
/// # Errors
/// Returns every fault of the pages, or the failure of mdBook.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let pages = pages(root)?;
    check(root, &pages)?;
    if args.check { Ok(()) } else { build(root, &pages) }
}

fn check(root: &Path, pages: &[Page]) -> Result<()> {
    let mut faults = links::check(root, pages);
    faults.extend(samples::check(pages));
    faults.extend(variables::check(root, pages)?);
    faults.extend(test_commands::check(root, pages)?);
    if faults.is_empty() {
        println!(
            "book: {} pages, every link, anchor, variable, test and block of TOML as it must be",
            pages.len()
        );
        return Ok(());
    }
    let list: Vec<_> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
    bail!("{} faults of the pages:{}", faults.len(), list.concat())
}

fn pages(root: &Path) -> Result<Vec<Page>> {
    let mut paths: Vec<PathBuf> = CHAPTERS.into_iter().chain([README]).map(PathBuf::from).collect();
    collect(root, Path::new("docs"), &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root.join(&path));
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Page { path, text })
    };
    paths.into_iter().map(read).collect()
}

fn collect(root: &Path, folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(root.join(folder));
    for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
        let path = folder.join(entry?.file_name());
        if root.join(&path).is_dir() {
            collect(root, &path, paths)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            paths.push(path);
        }
    }
    Ok(())
}

fn build(root: &Path, pages: &[Page]) -> Result<()> {
    let metadata = crate::layers::metadata(root)?;
    let repository = metadata.workspace_packages().iter().find_map(|it| it.repository.clone());
    let repository = repository.context("no package names the repository")?;
    let target = metadata.target_directory.as_std_path();
    let (sources, book) = (target.join("book-sources"), target.join("book"));
    stage::write(root, pages, &repository, &sources)?;
    let status =
        Command::new("mdbook").arg("build").arg(&sources).arg("--dest-dir").arg(&book).status();
    let status = status.context("mdbook does not run; `scripts/setup.sh book` installs it")?;
    ensure!(status.success(), "mdbook: {status}");
    let count = built::check(&book)?;
    println!(
        "book: {count} pages, every link of them leads to one; open {}/index.html",
        book.display()
    );
    Ok(())
}
