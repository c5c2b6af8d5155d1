//! The results as text for people: a table, a sentence, and a page.

use weft_perf::LatencyMicros;
use weft_report::{
    Axis, Body, Cell, Column, LinePlot, Mark, PercentilePlot, Report, Section, Series, Table, Unit,
};

use super::{Act, Contender, Outcome, PATHS, Row};
use weft_report::terminal::render;

/// Returns the text for a terminal.
pub(crate) fn text(outcome: &Outcome) -> String {
    format!("{}\n\n{}\n{}\n", outcome.stage, render(&table(outcome)), meaning(outcome))
}

/// Returns the page.
pub(crate) fn report(outcome: &Outcome) -> Report {
    let plot = |act: fn(&Row) -> &Act| {
        let marks = outcome.rows.last().map(|row| marks(act(row))).unwrap_or_default();
        Body::Lines(LinePlot {
            x: Axis::new("time", Unit::Seconds),
            y: Axis::new("goodput", Unit::BitsPerSecond),
            series: outcome.rows.iter().map(|row| line(row, act(row))).collect(),
            marks,
        })
    };
    let section =
        |heading: &str, text: String, body| Section { heading: heading.into(), text, body };
    let unlucky = "A contender with one path is given the unlucky one, as a fabric's hash does to one flow in four.";
    Report {
        title: format!("{PATHS} paths, one loses packets, one dies"),
        subtitle: format!("{}. Again: make run", outcome.stage),
        facts: facts(outcome),
        sections: vec![
            section("Side by side", meaning(outcome), Body::Table(table(outcome))),
            section(
                "A path loses 1% of its packets",
                format!("Goodput of a bulk transfer. {unlucky}"),
                plot(|row| &row.loss),
            ),
            section(
                "Another path dies",
                "It drops every packet in both directions, and no notice of it is sent. Two seconds later it is \
                 repaired; the lossy path stays lossy throughout."
                    .into(),
                plot(|row| &row.death),
            ),
            section(
                "Requests while a path loses packets",
                "Round trips of 64-byte requests, one at a time, beside the bulk transfer.".into(),
                Body::Percentiles(PercentilePlot {
                    y: Axis::new("round trip", Unit::Seconds),
                    series: outcome.rows.iter().map(percentiles).collect(),
                }),
            ),
        ],
    }
}

fn table(outcome: &Outcome) -> Table {
    let mut table = Table::new(vec![
        Column::text("", "contender"),
        Column::text("encrypted", "cipher"),
        Column::number("healthy", "healthy_bps"),
        Column::number("1% loss", "lossy_bps"),
        Column::number("request p50", "lossy_p50_s"),
        Column::number("p99", "lossy_p99_s"),
        Column::number("p99.9", "lossy_p999_s"),
        Column::number("back after a death", "back_after_s"),
        Column::number("longest wait", "longest_wait_s"),
    ]);
    for row in &outcome.rows {
        let rate = |bps: f64| Cell::new(Unit::BitsPerSecond.format(bps), bps);
        let time = |seconds: f64| Cell::new(Unit::Seconds.format(seconds), seconds);
        let LatencyMicros { p50, p99, p999, .. } = row.lossy_latency_us;
        let cipher = Cell::from(row.cipher.clone().unwrap_or_else(|| "no".to_owned()));
        let mut cells =
            vec![row.contender.name().into(), cipher, rate(row.healthy_bps), rate(row.lossy_bps)];
        cells.extend([p50, p99, p999].map(|micros| time(micros / 1e6)));
        cells.push(
            row.back_after_seconds
                .map_or_else(Cell::missing, |seconds| Cell::new(back_after(seconds), seconds)),
        );
        cells.push(time(row.longest_wait_seconds));
        table.push(cells);
    }
    table
}

/// Returns a recovery time as text; times below the 10 ms of an interval are not resolved.
fn back_after(seconds: f64) -> String {
    if seconds < 0.01 { "< 10 ms".into() } else { Unit::Seconds.format(seconds) }
}

/// Returns the conclusion as one sentence.
fn meaning(outcome: &Outcome) -> String {
    let find = |contender| outcome.rows.iter().find(|row| row.contender == contender);
    let (Some(single), Some(weft)) = (find(Contender::SinglePath), find(Contender::Weft)) else {
        return String::new();
    };
    let kept = |row: &Row| Unit::Share.format((row.lossy_bps / row.healthy_bps).min(1.0));
    let back = |row: &Row| match row.back_after_seconds {
        Some(seconds) => format!("was back after {}", back_after(seconds)),
        None if row.before_death_bps == 0.0 => "had moved nothing before either".into(),
        None => {
            let [before, after] = [row.before_death_bps, row.after_repair_bps]
                .map(|bps| Unit::BitsPerSecond.format(bps));
            format!("was not back at the end, at {after} against {before} before it")
        }
    };
    format!(
        "With 1% loss on one of {PATHS} paths Weft keeps {} of its throughput, a flow bound to that \
         path {}; when a path dies Weft {}, a flow bound to it {} (the path is repaired after 2 s).",
        kept(weft),
        kept(single),
        back(weft),
        back(single),
    )
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let weft = outcome.rows.iter().find(|row| row.contender == Contender::Weft);
    let back = weft.and_then(|row| row.back_after_seconds).map(back_after);
    let mut facts = vec![("paths".to_owned(), PATHS.to_string())];
    facts.extend(weft.map(|row| {
        let rate = Unit::BitsPerSecond.format(row.lossy_bps);
        ("Weft with 1% loss".to_owned(), rate)
    }));
    facts.extend(back.map(|back| ("Weft back after a death".to_owned(), back)));
    facts.push(("version".into(), env!("CARGO_PKG_VERSION").into()));
    facts
}

fn line(row: &Row, act: &Act) -> Series {
    Series::new(row.contender.name(), smoothed(&act.goodput.points()))
}

/// Returns the means of three neighbouring points, 30 ms: smooth enough to read, short enough to show an outage.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points
        .windows(3)
        .map(|window| (window[1].0, window.iter().map(|point| point.1).sum::<f64>() / 3.0))
        .collect()
}

fn marks(act: &Act) -> Vec<Mark> {
    act.events.iter().map(|&(x, label)| Mark { x, label: label.into() }).collect()
}

fn percentiles(row: &Row) -> Series {
    let LatencyMicros { min, p50, p90, p99, p999, .. } = row.lossy_latency_us;
    let points = [(0.0, min), (0.5, p50), (0.9, p90), (0.99, p99), (0.999, p999)];
    Series::new(row.contender.name(), points.map(|(share, us)| (share, us / 1e6)).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goodput::Goodput;

    fn row(contender: Contender, healthy_bps: f64, lossy_bps: f64, back: Option<f64>) -> Row {
        let act = || Act { goodput: Goodput::default(), events: vec![] };
        Row {
            contender,
            cipher: Some("aes-128-gcm".into()),
            healthy_bps,
            lossy_bps,
            lossy_latency_us: LatencyMicros {
                p50: 80.0,
                p99: 400.0,
                p999: 4_000.0,
                ..LatencyMicros::default()
            },
            back_after_seconds: back,
            before_death_bps: 9e9,
            after_repair_bps: 3e9,
            longest_wait_seconds: 0.012,
            loss: act(),
            death: act(),
        }
    }

    fn outcome() -> Outcome {
        let rows = vec![
            row(Contender::SinglePath, 10e9, 1e9, None),
            row(Contender::Weft, 10e9, 8e9, Some(0.004)),
        ];
        Outcome { stage: "a stage".into(), rows }
    }

    #[test]
    fn the_sentence_agrees_with_the_numbers() {
        let want = "With 1% loss on one of 4 paths Weft keeps 80% of its throughput, a flow bound to \
                    that path 10%; when a path dies Weft was back after < 10 ms, a flow bound to it \
                    was not back at the end, at 3 Gb/s against 9 Gb/s before it (the path is repaired \
                    after 2 s).";
        assert_eq!(meaning(&outcome()), want);
    }

    #[test]
    fn a_transfer_that_carried_nothing_before_is_reported_as_such() {
        let mut outcome = outcome();
        outcome.rows[0].before_death_bps = 0.0;
        let text = meaning(&outcome);
        assert!(text.contains("a flow bound to it had moved nothing before either"), "{text}");
    }

    #[test]
    fn a_transfer_that_did_not_recover_has_a_dash_in_the_table() {
        let text = table(&outcome()).to_string();
        let single = text.lines().find(|line| line.starts_with("Weft, one path")).unwrap();
        assert!(single.contains("–") && single.contains("10 Gb/s"), "{text}");
    }

    #[test]
    fn a_page_is_made_of_flows_that_carried_nothing() {
        assert!(report(&outcome()).to_html().contains("No data."));
    }
}
