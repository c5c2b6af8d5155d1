//! `weft route status`: prints a running controller's state.

use std::process::ExitCode;

use anyhow::Result;
use weft_report::{Cell, Column, Table};
use weft_steer::View;
use weft_units::BitRate;

use super::announce::ControllerOptions;
use weft_report::terminal::{Output, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft route status
  weft route status --controller 10.9.0.1:7490 --token-file token
  weft route status --controller https://10.9.0.1:7490 --ca ca.pem --certificate me.pem --key me.key
  weft route status --json | jq '.jobs[] | select(.begun | not)'    what its page shows, as JSON")]
pub(super) struct Status {
    #[command(flatten)]
    at: ControllerOptions,
}

pub(super) fn run(arguments: &Status, output: Output) -> Result<ExitCode> {
    let answer = arguments.at.fetch("/v1/picture", None)?;
    let picture: View =
        serde_json::from_slice(&answer).map_err(|error| arguments.at.malformed(&error))?;
    output.value(&picture, || text(&picture))?;
    Ok(ExitCode::SUCCESS)
}

fn text(picture: &View) -> String {
    let does = match (picture.dry_run, picture.steers, &picture.other) {
        (true, ..) => "decides, and does nothing".into(),
        (_, true, _) => "steers".into(),
        (_, _, Some(other)) => format!("watches; {other} steers"),
        (_, _, None) => "watches; nobody steers".into(),
    };
    let alarms: Vec<String> = picture.links.iter().filter_map(alarm).collect();
    let unread = picture.unread.iter().map(|(router, why)| format!("{router}: {why}\n"));
    let unread: String = unread.collect();
    format!(
        "{} {does}\n{unread}{}\nalarms: {}\n\n{}\n\n{}\n",
        picture.holder,
        sflow(picture),
        if alarms.is_empty() { "none".into() } else { alarms.join(", ") },
        jobs(picture),
        moves(picture)
    )
}

/// Returns the counts of accepted and refused sFlow, in two lines at most.
fn sflow(picture: &View) -> String {
    let it = &picture.collector;
    let counts = format!(
        "sFlow at {}: {} datagrams, {} lost, {} late; not believed: {} refused, {} of unknown agents, {} malformed, \
         {} whose numbers jumped, {} counters that cannot be",
        picture.listening,
        it.datagrams,
        it.lost,
        it.late,
        it.refused,
        it.unknown_agent,
        it.malformed,
        it.jumped,
        it.doubted
    );
    if picture.refused.is_empty() {
        return counts;
    }
    let refused = picture.refused.iter().map(|it| format!("{} ({})", it.source, it.datagrams));
    let refused: Vec<String> = refused.collect();
    format!("{counts}\nrefused sFlow came from {}", refused.join(", "))
}

fn alarm(link: &weft_steer::LinkView) -> Option<String> {
    let level = link.alarm.as_ref()?;
    Some(format!("{} {} → {} ({level}, {} marks)", link.from, link.port, link.to, link.marks))
}

fn jobs(picture: &View) -> String {
    if picture.jobs.is_empty() {
        return "no jobs were announced".into();
    }
    let mut table = Table::new(vec![
        Column::text("job", "name"),
        Column::number("flows", "flows"),
        Column::text("together", "rate"),
        Column::number("fullest link planned", "fullest_per_mille"),
        Column::text("", "begun"),
    ]);
    for job in &picture.jobs {
        let together = BitRate::bps(job.rate).map(|rate| rate.to_string()).unwrap_or_default();
        let full = format!("{} %", job.fullest_per_mille.div_ceil(10));
        let begun = if job.begun { "begun" } else { "not seen yet" };
        table.push(vec![
            job.name.as_str().into(),
            (job.flows as u64).into(),
            together.into(),
            Cell::new(full, job.fullest_per_mille),
            begun.into(),
        ]);
    }
    render(&table)
}

fn moves(picture: &View) -> String {
    if picture.moves.is_empty() {
        return "nothing was moved".into();
    }
    let mut table = Table::new(vec![
        Column::text("router", "router"),
        Column::text("destination", "destination"),
        Column::text("from", "from"),
        Column::text("to", "to"),
        Column::number("flows", "flows"),
        Column::text("stage", "stage"),
    ]);
    for it in &picture.moves {
        let (router, destination) = (it.router.as_str().into(), it.destination.as_str().into());
        let (from, to) = (it.from.as_str().into(), it.to.join(", ").into());
        table.push(vec![
            router,
            destination,
            from,
            to,
            (it.flows as u64).into(),
            it.stage.as_str().into(),
        ]);
    }
    render(&table)
}
