//! A writer of the part of SVG that the pictures need. Boxes have a fill and lines are grey, so that pictures are
//! readable on light and on dark pages.

use std::fmt::Write as _;

/// Width of a letter of the boxes' text, in pixels.
const LETTER: u32 = 7;
/// Height of a box.
pub(super) const HEIGHT: u32 = 26;

const STYLE: &str = "\
text{font:12px monospace;fill:#1b2733;text-anchor:middle;dominant-baseline:central}\
text.note{fill:#7d8790;text-anchor:start}\
rect{fill:#dce8f2;stroke:#7d95aa}rect.file{fill:#e9eef2}\
path{fill:none;stroke:#7d8790;stroke-opacity:.55}";

/// A picture that is being drawn.
#[derive(Debug)]
pub(super) struct Picture {
    width: u32,
    height: u32,
    title: &'static str,
    lines: String,
    boxes: String,
}

impl Picture {
    pub(super) fn new(width: u32, height: u32, title: &'static str) -> Self {
        Self { width, height, title, lines: String::new(), boxes: String::new() }
    }

    /// Returns the width of a box around `text`, in pixels.
    pub(super) fn width_of(text: &str) -> u32 {
        let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        letters.saturating_mul(LETTER) + 14
    }

    /// Draws a box around a text; `(x, y)` is its upper left corner.
    pub(super) fn labelled_box(&mut self, class: &str, (x, y): (u32, u32), width: u32, text: &str) {
        let (middle, line) = (x + width / 2, y + HEIGHT / 2);
        let rect = format!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="4"/>"#
        );
        writeln!(self.boxes, r#"{rect}<text x="{middle}" y="{line}">{}</text>"#, escape(text))
            .expect("a string takes it");
    }

    /// Writes a text without a box; `(x, y)` is its left end, at half of its height.
    pub(super) fn note(&mut self, (x, y): (u32, u32), text: &str) {
        writeln!(self.boxes, r#"<text class="note" x="{x}" y="{y}">{}</text>"#, escape(text))
            .expect("a string takes it");
    }

    /// Draws a line that all boxes cover, with a head at its end if it is an arrow.
    pub(super) fn line(&mut self, from: (u32, u32), to: (u32, u32), arrow: bool) {
        let head = if arrow { r#" marker-end="url(#head)""# } else { "" };
        let ((x1, y1), (x2, y2)) = (from, to);
        writeln!(self.lines, r#"<path d="M{x1} {y1}L{x2} {y2}"{head}/>"#)
            .expect("a string takes it");
    }

    /// Returns the text of the SVG file.
    pub(super) fn finish(self) -> String {
        let Self { width, height, title, lines, boxes } = self;
        let head = r##"<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#7d8790;stroke:none"/></marker>"##;
        format!(
            "<!-- Written by `cargo xtask docs`. -->\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n<defs>{head}</defs>\n{lines}{boxes}</svg>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_boxes_cover_lines() {
        let mut picture = Picture::new(10, 10, "t");
        picture.labelled_box("file", (0, 0), 20, "<name>");
        picture.line((0, 0), (5, 5), true);
        let text = picture.finish();
        assert!(text.contains("&lt;name&gt;"), "{text}");
        assert!(text.find("marker-end").unwrap() < text.find("<rect").unwrap(), "{text}");
    }
}
