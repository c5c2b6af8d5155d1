//! `docs/reference/stat.md`: the layout of programs' status files.

use weft_stat::{DIRECTORY, FieldRow, HEADER, HEADER_WORDS, TABLES};

use super::table::table;

const BEGINNING: &str = "\
# Status files of running programs

<!-- Written by `cargo xtask docs` from crates/weft-stat; edit that. -->

A node of `weft-xrdma` publishes its state in `PID-NUMBER.node`, a device of `weft-verbs` in `PID-NUMBER.device`, in
`$XDG_RUNTIME_DIR/weft` or in `/dev/shm/weft-UID` (`WEFT_STAT` names another folder, or is `off`). `weft stat` reads
them; [the decision](../design/operating.md) gives the reasons.

A file consists of 64-bit little-endian words. A program updates it in place, at most ten times a second. To read it as a
whole, read `sequence` until it is even, then all words, then `sequence` again; if it changed, repeat. The program holds
`flock(2)` on its file as long as it lives: a reader that gets a shared lock has found the file of a dead program.

Addresses have two words, the more significant first; IPv4 is mapped into IPv6, and zeros mean unknown. Texts are UTF-8,
padded with zero bytes. An unknown value is a word of all ones, except `clock_offset`, where it is the least number. Later
versions of Weft may append fields to a record, with more words per record; `version` changes if old readers would fail.

## Header

";

/// Returns the whole page.
pub(super) fn render() -> String {
    let mut page = BEGINNING.to_owned();
    page += &fields(HEADER);
    page += &format!(
        "\nThe directory starts at word {DIRECTORY}, with three words per table: its first word, its number of records, and the \
         words per record. The tables follow from word {HEADER_WORDS} on, in any order:\n"
    );
    for (number, of) in TABLES.iter().enumerate() {
        page += &format!("\n## Table {number}: {}, {} words per record\n\n", of.name, of.words);
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
    table(["Words", "Field", "Meaning"], &rows)
}
