//! A page that compares the lines of code of programs that use messages with those that use bare verbs. Blank lines and
//! comments do not count.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The two versions of a program, each with its files in `crates/weft-xrdma/examples`.
struct Pair {
    name: &'static str,
    messages: &'static [&'static str],
    bare: &'static [&'static str],
}

const PAIRS: &[Pair] = &[
    Pair { name: "Ping-pong", messages: &["ping_pong.rs"], bare: &["bare/ping_pong.c"] },
    Pair {
        name: "Key-value store, server and client",
        messages: &["kv_server.rs", "kv_client.rs"],
        bare: &["bare/kv_server.c", "bare/kv_client.c", "bare/kv.h", "bare/kv.c"],
    },
];

const EXAMPLES: &str = "crates/weft-xrdma/examples";

/// Returns the page.
pub(super) fn render() -> String {
    let mut page = String::from(
        "# Lines of code\n\nThe same programs with X-RDMA's messages and with bare verbs. The same tests run both \
         (`cargo test -p weft-xrdma --test programs`); blank lines and comments do not count. For \
         a terminal, use `cargo xtask lines`.\n\n| program | messages | bare verbs | saved |\n| --- | --- | --- | --- |\n",
    );
    for Pair { name, messages, bare } in PAIRS {
        let [messages, bare] =
            [messages, bare].map(|files| files.iter().map(|file| count(file)).sum::<usize>());
        let saved = 100 - 100 * messages / bare;
        writeln!(page, "| {name} | {messages} | {bare} | {saved} % |").expect("a string takes it");
    }
    page.push_str("\n| file | lines |\n| --- | --- |\n");
    for file in PAIRS.iter().flat_map(|pair| pair.messages.iter().chain(pair.bare)) {
        writeln!(page, "| `{EXAMPLES}/{file}` | {} |", count(file)).expect("a string takes it");
    }
    page.push_str(
        "\nThe store with bare verbs implements what channels do in the other: it finds an address, \
         connects to its peer, keeps windows of credits so that no receiver lacks a buffer, has long values read, and \
         detects the end of a peer. It lacks optional functions: a keepalive, memory limits, \
         a cache of registered memory and of queue pairs, a second carrier, tracing, counters. Some of the difference is due to \
         the languages: the C version contains its own hash table. Without it and the texts, the files that use only verbs \
         are `kv.h` and `kv.c`.\n",
    );
    page
}

/// Returns the lines of code of a file.
///
/// # Panics
/// Panics if the file cannot be read, because then the repository is incomplete.
fn count(file: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(EXAMPLES).join(file);
    let text = fs::read_to_string(&path);
    lines_of_code(&text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// Returns the number of lines with code outside comments. No example has `//` or `/*` in a string.
fn lines_of_code(text: &str) -> usize {
    let mut in_comment = false;
    let has_code = |line: &&str| {
        let mut rest = *line;
        let mut code = false;
        while !rest.is_empty() {
            if in_comment {
                let Some((_, after)) = rest.split_once("*/") else { break };
                (in_comment, rest) = (false, after);
                continue;
            }
            let comment = ["//", "/*"].iter().filter_map(|mark| rest.find(mark)).min();
            code |= !rest[..comment.unwrap_or(rest.len())].trim().is_empty();
            let Some(at) = comment else { break };
            in_comment = rest[at..].starts_with("/*");
            rest = if in_comment { &rest[at + 2..] } else { "" };
        }
        code
    };
    text.lines().filter(has_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_comments_do_not_count() {
        let text = "//! About.\n\nfn main() { // here\n    /* not\n this */ go(); /* nor\n that */\n}\n/* end */\n";
        assert_eq!(lines_of_code(text), 3, "fn, go and the brace");
    }

    #[test]
    fn messages_take_a_third_of_the_code_at_most() {
        // The paper saves at least 70 %.
        for Pair { name, messages, bare } in PAIRS {
            let [messages, bare] =
                [messages, bare].map(|files| files.iter().map(|file| count(file)).sum::<usize>());
            assert!(3 * messages < bare, "{name}: {messages} and {bare}");
        }
    }
}
