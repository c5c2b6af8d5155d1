//! `weft route status`: prints a running controller's state.

use std::process::ExitCode;

use anyhow::Result;
use weft_report::{Cell, Column, Table};
use weft_route::LinkFault;
use weft_steer::{JobView, LinkView, MarksSource, ProbeAlarmView, Role, View};
use weft_units::{BitRate, Duration};

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
    let does = match (picture.dry_run, picture.steers, &picture.leader, &picture.other) {
        (true, ..) => "decides, and does nothing".into(),
        (_, true, ..) => "steers".into(),
        (_, _, Some(leader), _) => {
            format!("stands by; {} steers, at {}", leader.holder, leader.url)
        }
        (_, _, _, Some(other)) => format!("watches; {other} steers"),
        _ if picture.role == Role::TakesOver => "takes over".into(),
        _ => "watches; nobody steers".into(),
    };
    let fault = picture.store_fault.as_ref();
    let fault = fault.map(|why| format!("decisions cannot be kept: {why}\n")).unwrap_or_default();
    let records = picture.unreadable_records.iter();
    let records = records.map(|(key, why)| format!("record {key:?} cannot be read: {why}\n"));
    let records: String = records.collect();
    let by_probes = |link: &LinkView| -> Vec<String> {
        link.probes.iter().map(|it| suspected(link, it)).collect()
    };
    let marked = picture.links.iter().filter_map(alarm);
    let alarms: Vec<String> = marked.chain(picture.links.iter().flat_map(by_probes)).collect();
    let unread = picture.unread.iter().map(|(router, why)| format!("{router}: {why}\n"));
    let unread: String = unread.collect();
    format!(
        "{} {does}\n{fault}{records}{unread}{}\n{}\n{}\nalarms: {}\n\n{}\n{}\n\n{}\n",
        picture.holder,
        sflow(picture),
        marks(picture),
        probes(picture),
        if alarms.is_empty() { "none".into() } else { alarms.join(", ") },
        jobs(picture),
        reserved(picture),
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

/// Returns the number of ports by the source of their marks.
fn marks(picture: &View) -> String {
    let count = |source| picture.links.iter().filter(|it| it.marks_from == Some(source)).count();
    let (counted, estimated) = (count(MarksSource::Queue), count(MarksSource::Samples));
    format!("marks by port: {counted} counted by the queue, {estimated} estimated from samples")
}

/// Returns the counts of probes.
fn probes(picture: &View) -> String {
    let (it, counts) = (&picture.probes, &picture.probes.counters);
    format!(
        "probes: {} paths of {} hosts; {} sent, {} lost, {} reports, {} refused",
        it.paths, it.hosts, counts.sent, counts.lost, counts.reports, counts.refused
    )
}

/// Returns an alarm by probes.
fn suspected(link: &LinkView, it: &ProbeAlarmView) -> String {
    let (from, to) = (format!("{} {}", link.from, link.port), &link.to);
    let figure = match it.fault {
        LinkFault::Loss => format!("{:.1} % lost", f64::from(it.lost_per_mille) / 10.0),
        LinkFault::Delay => format!("{} delay", Duration::from_nanos(it.delay_ns)),
    };
    let others: String = it.others.iter().map(|other| format!(", or at {other}")).collect();
    let avoided = if it.avoided { ", avoided by jobs" } else { "" };
    format!(
        "{} → {to} (probes: {figure}, by {} of {} hosts{others}{avoided})",
        from.trim_end(),
        it.votes,
        it.hosts
    )
}

fn alarm(link: &LinkView) -> Option<String> {
    let level = link.alarm.as_ref()?;
    let estimated = if link.marks_from == Some(MarksSource::Queue) { "" } else { "about " };
    let LinkView { from, port, to, marks, .. } = link;
    Some(format!("{from} {port} → {to} ({level}, {estimated}{marks} marks)"))
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
        Column::text("sends", "bursts"),
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
            bursts(job).into(),
        ]);
    }
    render(&table)
}

/// Returns when a job sends, if it is periodic.
fn bursts(job: &JobView) -> String {
    job.bursts.map_or_else(String::new, |it| {
        let [length, period] = [it.length_ns, it.period_ns].map(Duration::from_nanos);
        format!("{length} of every {period}")
    })
}

/// Returns the links that are reserved for coming bursts, and the fullest of them.
fn reserved(picture: &View) -> String {
    let share =
        |link: &LinkView| 100 * u128::from(link.reserved) / u128::from(link.capacity.max(1));
    let links = picture.links.iter().filter(|link| link.reserved > 0);
    let fullest = links.clone().max_by_key(|&link| share(link));
    fullest.map_or_else(
        || "reserved: nothing; no announced job is known to be periodic".into(),
        |it| {
            let jobs = picture.jobs.iter().filter(|job| job.bursts.is_some()).count();
            format!(
                "reserved: {} links for the bursts of {jobs} jobs; at most {} % at once, {} {} → {}",
                links.count(),
                share(it),
                it.from,
                it.port,
                it.to
            )
        },
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::route::metrics;

    #[test]
    fn marks_are_shown_with_their_source() {
        let link = |port: &str, marks_from: Option<MarksSource>| LinkView {
            from: "l0".into(),
            port: port.into(),
            to: "s9".into(),
            capacity: 1_000_000,
            load: marks_from.map(|_| 500_000),
            reserved: 0,
            marks: 512,
            marks_from,
            up: true,
            alarm: marks_from.map(|_| "low".into()),
            probes: Vec::new(),
        };
        let sources = [Some(MarksSource::Queue), Some(MarksSource::Samples), None];
        let links = ["s0", "s1", "s2"].into_iter().zip(sources);
        let links = links.map(|(port, source)| link(port, source)).collect();
        let picture = View { links, ..View::default() };
        let status = text(&picture);
        for line in [
            "marks by port: 1 counted by the queue, 1 estimated from samples\n",
            "alarms: l0 s0 → s9 (low, 512 marks), l0 s1 → s9 (low, about 512 marks)\n",
        ] {
            assert!(status.contains(line), "{line:?} is not in\n{status}");
        }
        let metrics = metrics::text(&picture);
        let exact = |port: &str| {
            let labels = format!("{{router=\"l0\",port=\"{port}\",to=\"s9\"}} ");
            let name = format!("weft_route_link_marks_exact{labels}");
            metrics.lines().find_map(|line| Some(line.strip_prefix(&name)?.to_owned()))
        };
        assert_eq!(exact("s0").as_deref(), Some("1.0"), "{metrics}");
        assert_eq!(exact("s1").as_deref(), Some("0.0"), "{metrics}");
        assert_eq!(exact("s2"), None, "{metrics}");
    }
}
