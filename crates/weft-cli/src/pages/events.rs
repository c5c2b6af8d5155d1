//! Generates `docs/reference/events.md`: the events in daemons' logs.

use weft_events::EVENTS;

use super::{assert_page, cell, in_repository, table};

const BEGINNING: &str = "\
# Events

<!-- Written by `BLESS=1 cargo test -p weft-cli --bin weft pages` from the table; edit crates/weft-events/src/table.rs. -->

The daemons' logs have these events, each with the field `event`, a message and the fields below. Things that come in bursts are one event
with a count for each interval. [Logs](../supervision.md#logs) says how a log becomes JSON or entries of systemd's journal, and how to find
an event there.

";

fn render() -> String {
    let rows: Vec<[String; 4]> = EVENTS
        .iter()
        .map(|row| {
            let fields: Vec<String> =
                row.fields.iter().map(|field| format!("`{}`", field.name)).collect();
            let page = format!("[{0}](../runbook/{0}.md)", row.page);
            [format!("[`{0}`](#{0})", row.name), row.level.into(), fields.join(", "), page]
        })
        .collect();
    let mut page = BEGINNING.to_owned();
    page += &table(["event", "level", "fields", "what to do"], &rows);
    for row in EVENTS {
        page += &format!("## {}\n\n{} Message: *{}*.\n\n", row.name, row.about, row.message);
        let fields: Vec<[String; 2]> =
            row.fields.iter().map(|it| [format!("`{}`", it.name), cell(it.about)]).collect();
        page += &table(["field", "value"], &fields);
    }
    format!("{}\n", page.trim_end())
}

#[test]
fn the_page_of_events_agrees_with_the_table() {
    assert_page("docs/reference/events.md", &render());
}

#[test]
fn every_event_has_a_page_of_the_runbook() {
    for row in EVENTS {
        let page = format!("docs/runbook/{}.md", row.page);
        assert!(in_repository(&page).is_file(), "{} names {page}", row.name);
    }
}
