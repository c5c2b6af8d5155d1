//! The headline and the HTML page of a run.

use std::collections::BTreeMap;

use weft_report::{Axis, BarPlot, Body, CdfPlot, Report as Page, Section, Unit};
use weft_sim::measure::Distribution;
use weft_sim::{Report, Scenario};

/// Returns the pictures, tables and plots of one run, and the scenario with which to repeat it.
pub(super) fn page(
    scenario: &Scenario,
    expanded: &str,
    report: &Report,
    pictures: Vec<Section>,
) -> Page {
    let section = |heading: &str, text: &str, body| Section {
        heading: heading.into(),
        text: text.into(),
        body,
    };
    let mut sections = pictures;
    // The results come first, their explanation below.
    let (counters, tables): (Vec<_>, Vec<_>) =
        report.tables().into_iter().partition(|(heading, _)| *heading == "Counters");
    let table_section = |(heading, table)| section(heading, "", Body::Table(table));
    sections.extend(tables.into_iter().map(table_section));
    if !report.flows.is_empty() {
        let text = "From submission to delivery, by workload.";
        sections.push(section("Flow completion time", text, flow_times(report)));
    }
    if report.ports.uplink_load.count > 0 {
        let text = "How much of its rate an uplink of a leaf used: the closer the bars, the better \
                    the load is spread.";
        sections.push(section("Port load", text, port_load(&report.ports.uplink_load)));
    }
    sections.extend(counters.into_iter().map(table_section));
    let text = "With every default filled in; with the seed, all that decides the run.";
    sections.push(section("Scenario", text, Body::Code(expanded.into())));
    let subtitle =
        if scenario.about.is_empty() { headline(report) } else { scenario.about.clone() };
    Page { title: report.scenario.clone(), subtitle, facts: facts(report), sections }
}

/// Returns the result in one line.
pub(super) fn headline(report: &Report) -> String {
    let end = if report.finished { "finished" } else { "NOT FINISHED before run.limit" };
    let time = Unit::Seconds.format(report.simulated_us / 1e6);
    let goodput = Unit::BitsPerSecond.format(report.goodput.total_gbps * 1e9);
    format!(
        "{}, seed {}: {end} after {time} of simulated time, {goodput} in all",
        report.scenario, report.seed
    )
}

fn facts(report: &Report) -> Vec<(String, String)> {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let count = |count: u64| Unit::Count.format(count as f64);
    let finished = if report.finished { "yes" } else { "no: run.limit came first" };
    [
        ("seed", report.seed.to_string()),
        ("finished", finished.into()),
        ("simulated", Unit::Seconds.format(report.simulated_us / 1e6)),
        ("goodput in all", Unit::BitsPerSecond.format(report.goodput.total_gbps * 1e9)),
        ("packet hops", count(report.network.packet_hops)),
        ("packets lost", count(report.network.lost.values().sum())),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn flow_times(report: &Report) -> Body {
    let mut samples: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for flow in &report.flows {
        let seconds = (flow.delivered_us - flow.start_us) / 1e6;
        samples.entry(flow.workload).or_default().push(seconds);
    }
    let name = |workload: u32| {
        let kind =
            report.workloads.get(workload as usize).map_or("flows", |workload| workload.kind);
        format!("{kind} ({})", workload + 1)
    };
    Body::Cdf(CdfPlot {
        x: Axis::new("flow completion time", Unit::Seconds),
        samples: samples.into_iter().map(|(workload, times)| (name(workload), times)).collect(),
    })
}

fn port_load(load: &Distribution) -> Body {
    let bars = [
        ("least", load.min),
        ("median", load.p50),
        ("mean", load.mean),
        ("p99", load.p99),
        ("most", load.max),
    ];
    Body::Bars(BarPlot {
        y: Axis::new("share of the rate", Unit::Share),
        groups: bars.iter().map(|(name, _)| (*name).to_owned()).collect(),
        series: vec![(String::new(), bars.iter().map(|(_, value)| *value).collect())],
    })
}
