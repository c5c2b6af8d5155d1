//! `docs/reference/stat.md`: the words of the files that programs show themselves in.

use weft_stat::{DIRECTORY, FieldRow, HEADER, HEADER_WORDS, TABLES};

use super::table::table;

const BEGINNING: &str = "\
# What programs say of themselves

<!-- Written by `cargo xtask docs` from crates/weft-stat; edit that. -->

A node of `weft-xrdma` shows itself in `PID-NUMBER.node`, a device of `weft-verbs` in `PID-NUMBER.device`, below
`$XDG_RUNTIME_DIR/weft` or in `/dev/shm/weft-UID` (`WEFT_STAT` names another folder, or is `off`). `weft stat` reads
them; why they are so is in [the decision](../design/operating.md).

A file is 64-bit words, little-endian. A program writes it in place, at most ten times a second. To read it whole: read
`sequence` until it is even, then everything, then `sequence` again; if it changed, once more. The program holds
`flock(2)` on its file for as long as it lives: who gets a shared lock has found what a dead program left.

Addresses are two words, the more significant first, IPv4 mapped into IPv6, zeros where unknown. Texts are UTF-8, filled up
with zero bytes. `Option`s that are none are all ones, but for `clock_offset`, where it is the least number. Later versions of
Weft may append fields to a record, and say so by more words a record; `version` changes where old readers would be wrong.

## The beginning

";

/// The whole page.
pub(super) fn render() -> String {
    let mut page = BEGINNING.to_owned();
    page += &fields(HEADER);
    page += &format!(
        "\nFrom word {DIRECTORY} on a directory, three words a table: the word it begins at, how many records it has, and \
         words of each. The tables, from word {HEADER_WORDS} on, in any order:\n"
    );
    for (number, of) in TABLES.iter().enumerate() {
        page += &format!("\n## Table {number}: {}, {} words a record\n\n", of.name, of.words);
        page += &fields(of.fields);
    }
    page
}

fn fields(fields: &[FieldRow]) -> String {
    let mut at = 0;
    let rows: Vec<[String; 3]> = fields
        .iter()
        .map(|field| {
            let (first, last) = (at, at + field.words - 1);
            at += field.words;
            let place = if first == last { first.to_string() } else { format!("{first}-{last}") };
            [place, format!("`{}`", field.name), field.about.to_owned()]
        })
        .collect();
    table(["Words", "Field", "What it says"], &rows)
}
