//! A measurement as text.

use weft_perf::{LatencyMicros, Report, TestKind, TransportCounters};
use weft_report::terminal::render;
use weft_report::{Cell, Column, Table, Unit};
use weft_transport::Stats;

pub(super) fn text(profile: &str, report: &Report, source_ports: &[u16]) -> String {
    let summary = summary(report);
    let paths = paths(&report.client, source_ports);
    format!("{}\n\n{}\n{}", headline(profile, report), render(&summary), render(&paths))
}

fn headline(profile: &str, report: &Report) -> String {
    let plan = report.plan;
    let plural =
        |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let size = Unit::Bytes.format(f64::from(plan.message_bytes));
    format!(
        "{}: {}, {}, profile {profile} ({}, {}), messages of {size}, {} under way, {:.1} s",
        plan.kind.name(),
        plural(report.connections.into(), "connection"),
        plural(report.paths.into(), "path"),
        report.policy,
        report.congestion,
        plan.outstanding,
        report.seconds
    )
}

fn summary(report: &Report) -> Table {
    let mut table =
        Table::new(vec![Column::text("measure", "measure"), Column::text("value", "value")]);
    let mut row = |name: &str, value: String| table.push(vec![name.into(), Cell::from(value)]);
    row("goodput", Unit::BitsPerSecond.format(report.goodput_bps));
    row(
        "messages",
        format!("{}/s, {} in all", Unit::Count.format(report.messages_per_second), report.messages),
    );
    let until =
        if report.plan.kind == TestKind::Throughput { "until acknowledged" } else { "round trip" };
    row(until, latency(&report.latency_us));
    row("sent again", retransmissions(&report.client.engine));
    if report.plan.kind.replies() {
        row("sent again by the server", retransmissions(&report.server.engine));
    }
    let engine = &report.client.engine;
    if engine.paths_down > 0 {
        row("paths lost and found", format!("{} down, {} up", engine.paths_down, engine.paths_up));
    }
    if engine.probes_sent > 0 {
        row("probes", format!("{} ({} bytes)", engine.probes_sent, engine.probe_bytes));
    }
    row("encryption", encryption(report));
    if report.plan.verify {
        row("wrong messages", report.corrupt.to_string());
    }
    for (end, counters) in [("here", &report.client), ("at the server", &report.server)] {
        for (reason, count) in &counters.dropped {
            row(&format!("dropped {end}"), format!("{count} ({reason})"));
        }
        for (reason, count) in counters.sealing.iter().filter(|(name, _)| !is_usual(name)) {
            row(&format!("not opened {end}"), format!("{count} ({reason})"));
        }
    }
    table
}

/// Returns the encryption of the connections in one line.
fn encryption(report: &Report) -> String {
    let (encryption, sealing) = (&report.encryption, &report.client.sealing);
    let count = |name| sealing.get(name).copied().unwrap_or(0);
    match (&encryption.cipher, &encryption.peer) {
        (Some(cipher), Some(peer)) => {
            let share = match report.connections {
                all if all == encryption.connections => String::new(),
                all => format!(" on {} of {all} connections", encryption.connections),
            };
            let (sealed, opened) = (count("sealed"), count("opened"));
            format!(
                "{cipher}{share}, {sealed} packets sealed, {opened} opened; the server's key is {peer}"
            )
        }
        _ => "none: everything was sent in the clear".to_owned(),
    }
}

/// Returns `true` for counters that do not count refused packets.
fn is_usual(counter: &str) -> bool {
    ["sealed", "opened", "exchanges", "clear"].contains(&counter)
}

fn latency(micros: &LatencyMicros) -> String {
    let format = |micros: f64| Unit::Seconds.format(micros / 1e6);
    format!(
        "p50 {}, p99 {}, p99.9 {}, max {}",
        format(micros.p50),
        format(micros.p99),
        format(micros.p999),
        format(micros.max)
    )
}

fn retransmissions(counters: &Stats) -> String {
    let retransmissions = counters.retransmissions();
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let share = Unit::Share.format(retransmissions as f64 / counters.data_sent.max(1) as f64);
    format!(
        "{retransmissions} of {} packets ({share}): {} by acknowledgements, {} by timeout, \
         {} to ask for one, {} needlessly",
        counters.data_sent,
        counters.fast_retransmits,
        counters.timeout_retransmits,
        counters.tail_loss_probes,
        counters.spurious_retransmits
    )
}

fn paths(counters: &TransportCounters, source_ports: &[u16]) -> Table {
    let mut table = Table::new(vec![
        Column::number("path", "path"),
        Column::number("source port", "source_port"),
        Column::number("packets", "packets"),
        Column::number("bytes", "bytes"),
    ]);
    for (path, (count, port)) in counters.paths.iter().zip(source_ports).enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let bytes = Unit::Bytes.format(count.bytes as f64);
        table.push(vec![
            path.into(),
            (*port).into(),
            count.datagrams.into(),
            Cell::new(bytes, count.bytes),
        ]);
    }
    table
}
