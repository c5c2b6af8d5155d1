//! `xrdma.h` and its manual pages, generated from the comments of `weft-xrdma-c`.

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};
use roff::{Inline, Roff, bold, roman};

/// The source files of the interface, in the header's order.
const SOURCES: [&str; 7] = [
    "types",
    "exports/context",
    "exports/channel",
    "exports/message",
    "exports/memory",
    "exports/event",
    "exports/error",
];

/// The introductory comment of the header.
const INTRODUCTION: &str = "\
/*
 * Messages over RDMA in three nouns: a context owns channels, a channel carries messages. Link with -lxrdma.
 *
 * A context belongs to the thread that created it, and only that thread may use it and its objects: nothing here
 * locks. Other threads use their own contexts.
 *
 * Functions that return a number return a negative errno(3) value when they fail, and xrdma_last_error returns the
 * reason as text. A context, channel or message that is null, gone or another thread's is such a failure. All other
 * arguments must be valid: texts end in NUL and are UTF-8, buffers have the given length, and pointers for results
 * are null or valid.
 *
 * This file is generated from the sources of weft-xrdma-c: `cargo xtask docs`.
 */";

/// Returns the header.
pub(super) fn header() -> String {
    let config = Config {
        language: Language::C,
        style: Style::Both,
        cpp_compat: true,
        include_guard: Some("XRDMA_H".into()),
        header: Some(INTRODUCTION.into()),
        documentation_style: DocumentationStyle::Doxy,
        line_length: 100,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        usize_is_size_t: true,
        ..Config::default()
    };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weft-xrdma-c/src");
    let sources = SOURCES.iter().map(|name| package.join(name).with_extension("rs"));
    let builder = sources.fold(Builder::new().with_config(config), Builder::with_src);
    let bindings = builder.generate().expect("the sources are Rust, or nothing here would compile");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).expect("cbindgen writes UTF-8");
    header.replace(" * # Errors\n", " * Errors:\n")
}

/// A function of the header.
#[derive(Debug, PartialEq, Eq)]
struct Function<'a> {
    name: &'a str,
    declaration: &'a str,
    /// The comment, split into paragraphs and list items.
    paragraphs: Vec<String>,
}

/// Returns the names and texts of the manual pages.
pub(super) fn pages() -> Vec<(String, String)> {
    let header = header();
    let functions = functions(&header);
    let names: Vec<&str> = functions.iter().map(|function| function.name).collect();
    functions
        .iter()
        .map(|function| (format!("{}.3", function.name), page(function, &names)))
        .collect()
}

/// Returns the functions of a header in cbindgen's format: a comment, then a declaration that ends in a semicolon.
fn functions(header: &str) -> Vec<Function<'_>> {
    header
        .split("/**\n")
        .skip(1)
        .filter_map(|piece| {
            let (comment, rest) = piece.split_once(" */\n")?;
            let (declaration, _) = rest.split_once(';')?;
            let (before, _) = declaration.split_once('(')?;
            let name = before.rsplit([' ', '*']).next()?;
            let function = !declaration.contains('{') && !declaration.starts_with('#');
            function.then(|| Function { name, declaration, paragraphs: paragraphs(comment) })
        })
        .collect()
}

/// Returns a comment's paragraphs and list items, each on one line.
fn paragraphs(comment: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in comment.lines() {
        let line = line.strip_prefix(" *").unwrap_or(line).trim();
        if line.is_empty() || line.starts_with("* ") {
            paragraphs.push(String::new());
        }
        let last = paragraphs.last_mut().expect("there is one");
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(line);
        if line == ERRORS {
            paragraphs.push(String::new());
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

const ERRORS: &str = "Errors:";
const FAILED: &str = "A negative errno(3) value means that the call failed; xrdma_last_error(3) returns the reason as text.";

fn page(function: &Function<'_>, names: &[&str]) -> String {
    let Function { name, declaration, paragraphs } = function;
    let mut parts = paragraphs.split(|paragraph| paragraph == ERRORS);
    let (about, errors) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (returns, about): (Vec<_>, Vec<_>) =
        about.iter().partition(|paragraph| paragraph.starts_with("Returns "));
    let first = about.first().map_or("", |paragraph| paragraph.as_str());
    let end = [". ", ": "].iter().filter_map(|end| first.find(end)).min();
    let summary = first[..end.unwrap_or(first.len())].trim_end_matches('.');
    let (initial, rest) = summary.split_at(summary.chars().next().map_or(0, char::len_utf8));

    let mut page = Roff::new();
    let version = format!("weft {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", [name.to_uppercase().as_str(), "3", "", &version, "Messages over RDMA"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {}{rest}", initial.to_lowercase()).replace('`', ""))]);
    page.control("SH", ["LIBRARY"]);
    page.text([roman("Messages over RDMA (libxrdma, -lxrdma)")]);
    page.control("SH", ["SYNOPSIS"]);
    page.control("nf", []);
    page.text([bold("#include <xrdma.h>")]);
    page.control("PP", []);
    for line in format!("{declaration};").lines() {
        page.text([bold(line)]);
    }
    page.control("fi", []);
    page.control("SH", ["DESCRIPTION"]);
    set_paragraphs(&mut page, about.iter().map(|text| text.as_str()));
    let number = declaration.starts_with("int");
    if number {
        page.control("SH", ["RETURN VALUE"]);
        let described = returns.iter().map(|text| text.as_str());
        let zero = returns.is_empty().then_some("Returns 0.");
        set_paragraphs(&mut page, described.chain(zero).chain([FAILED]));
    }
    if !errors.is_empty() {
        page.control("SH", [if number { "ERRORS" } else { "RETURN VALUE" }]);
        for error in errors {
            set_error(&mut page, error);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    let others = names.iter().filter(|other| *other != name);
    let others: Vec<_> = others.map(|other| format!("{other}(3)")).collect();
    page.text(inlines(&others.join(", ")));
    page.to_roff()
}

fn set_paragraphs<'a>(page: &mut Roff, paragraphs: impl Iterator<Item = &'a str>) {
    for (index, paragraph) in paragraphs.enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text(inlines(paragraph));
    }
}

/// Writes an error: an item, `* EINVAL: why`, or a sentence.
fn set_error(page: &mut Roff, error: &str) {
    match error.strip_prefix("* ").and_then(|item| item.split_once(": ")) {
        Some((number, why)) => {
            page.control("TP", []);
            page.text([bold(number)]);
            page.text(inlines(why));
        }
        None => {
            page.text(inlines(error));
        }
    }
}

/// Returns a text with bold names: the text between backticks, constants that begin with `XRDMA_`, and names before a
/// section number of the manual.
fn inlines(text: &str) -> Vec<Inline> {
    let mut inlines = Vec::new();
    for (index, piece) in text.split('`').enumerate() {
        if index % 2 == 1 {
            inlines.push(bold(piece));
            continue;
        }
        for word in piece.split_inclusive(' ') {
            let name_end = word.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let (name, rest) = word.split_at(name_end.unwrap_or(word.len()));
            let section =
                rest.starts_with('(') && rest[1..].starts_with(|of: char| of.is_ascii_digit());
            if section || name.starts_with("XRDMA_") {
                inlines.extend([bold(name), roman(rest)]);
            } else {
                inlines.push(roman(word));
            }
        }
    }
    inlines
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const HEADER: &str = "\
/**
 * A structure.
 */
typedef struct xrdma_thing {
  int field;
} xrdma_thing;

/**
 * Does it, for as
 * long as it takes. See poll(2).
 *
 * Returns how often, with XRDMA_LENT.
 *
 * Errors:
 * * EINVAL: the `thing` is
 *   null.
 * * EIO: it broke.
 */
int xrdma_do(struct xrdma_thing *thing);
";

    #[test]
    fn a_functions_comment_is_split_into_paragraphs() {
        let functions = functions(HEADER);
        let [function] = &functions[..] else { panic!("{functions:?}") };
        assert_eq!(function.name, "xrdma_do");
        assert_eq!(function.declaration, "int xrdma_do(struct xrdma_thing *thing)");
        let want = [
            "Does it, for as long as it takes. See poll(2).",
            "Returns how often, with XRDMA_LENT.",
            "Errors:",
            "* EINVAL: the `thing` is null.",
            "* EIO: it broke.",
        ];
        assert_eq!(function.paragraphs, want);
    }

    #[test]
    fn a_page_has_the_sections_of_manual_pages() {
        let page = page(&functions(HEADER)[0], &["xrdma_do", "xrdma_undo"]);
        for want in [
            "xrdma_do \\- does it, for as long as it takes\n",
            "\\fBint xrdma_do(struct xrdma_thing *thing);\\fR",
            "\\fBpoll\\fR(2)",
            ".SH \"RETURN VALUE\"\nReturns how often, with \\fBXRDMA_LENT\\fR.",
            ".TP\n\\fBEINVAL\\fR\nthe \\fBthing\\fR is null.",
            "\\fBxrdma_undo\\fR(3)",
        ] {
            assert!(page.contains(want), "{want:?} in {page}");
        }
    }

    #[test]
    fn every_function_has_a_page_that_groff_accepts_without_warnings() {
        let pages = pages();
        assert!(pages.len() > 25, "{} pages", pages.len());
        for (name, text) in pages {
            assert!(text.contains(".SH DESCRIPTION"), "{name}");
            let mut groff = Command::new("groff");
            let groff = groff.args(["-man", "-Tutf8", "-ww", "-z"]);
            let mut groff =
                groff.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("groff runs");
            let mut stdin = groff.stdin.take().expect("piped");
            std::io::Write::write_all(&mut stdin, text.as_bytes()).expect("it reads");
            drop(stdin);
            let output = groff.wait_with_output().expect("it ends");
            let warnings = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && warnings.is_empty(), "{name}: {warnings}");
        }
    }
}
