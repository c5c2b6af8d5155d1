//! The word check: names, summaries and phrases of the crates that keep to [`list`].

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

mod list;

use list::{CHECKED, NAMES, OPENINGS, PHRASES};

/// Maximum number of findings that are printed.
const MAX_PRINTED: usize = 400;

/// The files that are not checked, because they contain the banned words.
const OWN: [&str; 2] = ["xtask/src/words.rs", "xtask/src/words/list.rs"];

/// A line that violates the list.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: PathBuf,
    line: usize,
    fault: Fault,
}

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Name { name: &'static str, instead: &'static str },
    Opening(&'static str),
    Phrase(&'static str),
}

/// Checks the crates that `asked` names, or by default those that keep to the list, and counts the findings of the
/// others.
///
/// # Errors
/// Returns the findings of the checked crates, or an error if a file cannot be read.
pub(crate) fn check(root: &Path, asked: &[String]) -> Result<()> {
    let (mut listed, mut unlisted, mut others) = (Vec::new(), 0, 0);
    for crate_root in crates(root)? {
        let name = crate_root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_checked = match asked {
            [] => CHECKED.contains(&name.as_str()),
            _ => asked.contains(&name),
        };
        let findings = findings(root, &crate_root)?;
        if is_checked {
            listed.extend(findings);
        } else if !findings.is_empty() {
            others += 1;
            unlisted += findings.len();
        }
    }
    if !listed.is_empty() {
        let shown = listed.iter().take(MAX_PRINTED).map(|finding| format!("\n  {finding}"));
        let shown: String = shown.collect();
        bail!("{} lines do not keep to crates/xtask/src/words/list.rs:{shown}", listed.len())
    }
    println!(
        "words: the checked crates keep to the list; {unlisted} lines of {others} others do not yet"
    );
    Ok(())
}

fn crates(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("crates");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut crates: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    crates.sort();
    Ok(crates)
}

fn findings(root: &Path, folder: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !OWN.iter().any(|own| path.ends_with(own))
            {
                let text = fs::read_to_string(&path);
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                let file = path.strip_prefix(root).unwrap_or(&path).to_owned();
                let faults = faults(&text).into_iter();
                findings.extend(faults.map(|(line, fault)| Finding {
                    file: file.clone(),
                    line,
                    fault,
                }));
            }
        }
    }
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(findings)
}

/// Returns the faults of a source file with their line numbers, from 1.
fn faults(text: &str) -> Vec<(usize, Fault)> {
    let mut faults = Vec::new();
    let mut in_documentation = false;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim_start();
        let documentation = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(sentence) = documentation
            && !in_documentation
        {
            let sentence = sentence.trim_start();
            let opening = OPENINGS.iter().find(|opening| begins_with_word(sentence, opening));
            faults.extend(opening.map(|opening| (number, Fault::Opening(opening))));
        }
        in_documentation = documentation.is_some();
        let (code, comment) = line.split_once("//").unwrap_or((line, ""));
        let comment = comment.to_lowercase();
        let phrase = PHRASES.iter().find(|phrase| has_name(&comment, phrase));
        faults.extend(phrase.map(|phrase| (number, Fault::Phrase(phrase))));
        let banned = NAMES.iter().filter(|banned| has_name(code, banned.name));
        faults
            .extend(banned.map(|banned| {
                (number, Fault::Name { name: banned.name, instead: banned.instead })
            }));
    }
    faults
}

fn begins_with_word(sentence: &str, word: &str) -> bool {
    let rest = sentence.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
}

/// Returns `true` if the code has the name as an identifier of its own.
fn has_name(code: &str, name: &str) -> bool {
    let (name, is_prefix) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
    let is_part =
        |byte: Option<char>| byte.is_some_and(|byte| byte.is_alphanumeric() || byte == '_');
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        !is_part(before.chars().next_back()) && (is_prefix || !is_part(after.chars().next()))
    })
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: ", self.file.display(), self.line)?;
        match self.fault {
            Fault::Name { name, instead } => write!(out, "the name {name}; use {instead}"),
            Fault::Opening(word) => write!(
                out,
                "a summary that begins with {word:?}; name the thing, or say what it returns"
            ),
            Fault::Phrase(phrase) => write!(out, "the phrase {phrase:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_names_and_phrases_are_found_with_their_lines() {
        let text = "/// What it is.\nfn settle() {}\n/// Returns it.\n/// What follows is no summary.\nfn settled() { x.tell(1) }\n// As ever.\nconst MOST_ROWS: u8 = 1;\n/// Whatever comes.\n";
        let found: Vec<_> = faults(text);
        assert_eq!(
            found,
            [
                (1, Fault::Opening("What")),
                (2, Fault::Name { name: "settle", instead: "reschedule" }),
                (5, Fault::Name { name: "tell", instead: "notify" }),
                (6, Fault::Phrase("as ever")),
                (7, Fault::Name { name: "MOST_*", instead: "MAX_*" }),
            ]
        );
    }
}
