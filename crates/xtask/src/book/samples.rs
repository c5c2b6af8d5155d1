//! The check that blocks of TOML parse. Command lines are checked beside the parser of `weft` (`weft-cli/src/pages`).

use super::markdown::blocks;
use super::{Fault, Page};

/// Returns a fault for each block of TOML that does not parse.
pub(super) fn check(pages: &[Page]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for page in pages {
        for block in blocks(&page.text).into_iter().filter(|block| block.language == "toml") {
            let text = block.lines.join("\n");
            if let Err(error) = text.parse::<toml::Table>() {
                let before = error.span().map_or("", |span| &text[..span.start]);
                let line = block.line + before.matches('\n').count();
                let why = format!("no TOML: {}", error.message());
                faults.push(Fault { path: page.path.clone(), line, why });
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_toml_is_named_with_its_line() {
        let text = "```toml\n[a]\nb = 1\n```\n\n```toml\nc = 1\nd = e\n```\n";
        let page = Page { path: "docs/a.md".into(), text: text.into() };
        let faults = check(&[page]);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].line, 8, "{}", faults[0].why);
    }
}
