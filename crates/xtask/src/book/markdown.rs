//! A parser of the part of Markdown that the checks of pages need: fenced blocks, headings and links.

/// A fenced block of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The number of its first line of text, counted from 1.
    pub(crate) line: usize,
    /// The word after the opening fence; empty if there is none.
    pub(crate) language: &'a str,
    /// Its lines, without the indentation of the fence.
    pub(crate) lines: Vec<&'a str>,
}

/// A line of a page, by its position relative to fenced blocks.
enum Line<'a> {
    /// The fence that begins a block: its language and its indentation.
    Begin(&'a str, usize),
    /// A line of the block that began last.
    Inside(&'a str),
    /// A line outside of blocks.
    Outside(&'a str),
}

/// Returns the fenced blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut indentation = 0;
    for (number, line) in lines(page) {
        match line {
            Line::Begin(language, indented) => {
                indentation = indented;
                blocks.push(Block { line: number + 1, language, lines: Vec::new() });
            }
            Line::Inside(text) => {
                let spaces = text.len() - text.trim_start_matches(' ').len();
                let block = blocks.last_mut().expect("a fence came before");
                block.lines.push(&text[spaces.min(indentation)..]);
            }
            Line::Outside(_) => {}
        }
    }
    blocks
}

/// Returns the lines of a page outside of fenced blocks, with their numbers.
pub(crate) fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    lines(page).filter_map(|(number, line)| match line {
        Line::Outside(text) => Some((number, text)),
        Line::Begin(..) | Line::Inside(_) => None,
    })
}

/// Returns the numbered lines of a page, without the fences that end blocks.
fn lines(page: &str) -> impl Iterator<Item = (usize, Line<'_>)> {
    let mut inside = false;
    page.lines().zip(1..).filter_map(move |(text, number)| {
        let bare = text.trim_start();
        let line = match (bare.strip_prefix("```"), inside) {
            (Some(_), true) => {
                inside = false;
                return None;
            }
            (Some(language), false) => {
                inside = true;
                Line::Begin(language.trim(), text.len() - bare.len())
            }
            (None, true) => Line::Inside(text),
            (None, false) => Line::Outside(text),
        };
        Some((number, line))
    })
}

/// Returns the targets of the links of a line, as byte ranges of it. Code between backticks has none.
pub(crate) fn targets(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut targets = Vec::new();
    let mut code = false;
    let mut at = 0;
    while let Some(letter) = line[at..].chars().next() {
        if letter == '`' {
            code = !code;
        }
        if !code && line[at..].starts_with("](") {
            let from = at + 2;
            let Some(length) = line[from..].find(')') else { break };
            targets.push(from..from + length);
        }
        at += letter.len_utf8();
    }
    targets
}

/// Returns the anchors of a page's headings, as GitHub and mdBook name them.
pub(crate) fn anchors(page: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(page) {
        let Some(heading) = line.trim_start_matches('#').strip_prefix(' ') else { continue };
        if !line.starts_with('#') {
            continue;
        }
        let anchor = anchor(heading);
        let is_same = |other: &&String| {
            let numbered = other.strip_prefix(&format!("{anchor}-"));
            **other == anchor || numbered.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        match anchors.iter().filter(is_same).count() {
            0 => anchors.push(anchor),
            count => anchors.push(format!("{anchor}-{count}")),
        }
    }
    anchors
}

/// Returns the anchor of a heading: its text without marks, in lower case, with hyphens instead of spaces.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading.trim();
    // The anchor has the text of a link without its target.
    while let Some((before, (title, after))) =
        rest.split_once('[').and_then(|(before, link)| Some((before, link.split_once("](")?)))
    {
        text += before;
        text += title;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text += rest;
    let lower = text.to_lowercase();
    let letters = lower.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A `b`: c\n\n1. see\n\n   ```sh\n   weft list\n     deeper\n   ```\n## Two words\n## Two words\n";

    #[test]
    fn blocks_lose_the_indentation_of_their_fence() {
        let want = Block { line: 6, language: "sh", lines: vec!["weft list", "  deeper"] };
        assert_eq!(blocks(PAGE), [want]);
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        assert_eq!(anchors(PAGE), ["a-b-c", "two-words", "two-words-1"]);
        assert_eq!(anchors("## [What](x.md) I/O costs\n"), ["what-io-costs"]);
    }

    #[test]
    fn code_has_no_links() {
        let line = "see [a](b.md) and `[c](d)` and ![e](f.svg#g)";
        let targets: Vec<&str> = targets(line).into_iter().map(|at| &line[at]).collect();
        assert_eq!(targets, ["b.md", "f.svg#g"]);
    }
}
