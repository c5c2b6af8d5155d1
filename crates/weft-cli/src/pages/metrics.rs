//! Generates `docs/reference/metrics.md`: the metrics of the monitor, the overlay's and the device's daemon and both controllers, and
//! the transport's counters, which reports have too.

use std::collections::BTreeMap;

use weft_transport::Stats;

use super::{assert_page, cell, read, samples, table};
use crate::{cmd, monitor, openmetrics};

const BEGINNING: &str = "\
# Metrics

<!-- Written by `BLESS=1 cargo test -p weft-cli --bin weft pages` from the code that serves them. -->

All are OpenMetrics text at `/metrics`, which Prometheus scrapes. A counter's samples have `_total` behind the name here, a histogram's
`_bucket`, `_sum` and `_count`. [The monitor's page](../operating-messages.md#all-hosts-weft-monitor) has the configuration of
Prometheus, with tokens and TLS.
";

const COUNTERS: &str = "
## Counters of the transport

`weft_vpc_transport_total` names them in its label `event`. The reports of `weft perf` (`client`, `server`), `weft sim run` (`transport`) and
`weft vpc status` (`transport`) have the same keys as JSON. The counts of refused packets by reason are `dropped` in the report of
`weft perf`, `refused` in the simulator's and a device's. `retransmit_share`, the simulator's, leaves `tail_loss_probes` out.

";

/// A program that serves metrics.
struct Source {
    title: &'static str,
    about: &'static str,
    /// The text that it serves in a state in which every family has a sample.
    text: String,
    /// The source file that writes them.
    file: &'static str,
}

fn sources() -> [Source; 5] {
    [
        Source {
            title: "Programs: `weft monitor`",
            about: "`weft monitor agent` serves those of its host, by default at port 7475, `weft monitor serve` those of all \
                    hosts at port 7480.",
            text: openmetrics::text(&monitor::metrics::registry(
                [samples::report()].iter(),
                &[],
                Some(&samples::pings()),
            )),
            file: "crates/weft-cli/src/monitor/metrics.rs",
        },
        Source {
            title: "The overlay: `weft vpc serve --metrics`",
            about: "Pairs and their paths are 256 of each thread, those with a fault first.",
            text: cmd::vpc::metrics::text(&samples::status()),
            file: "crates/weft-cli/src/cmd/vpc/metrics.rs",
        },
        Source {
            title: "The device: `weft device serve --metrics`",
            about: "Sums are of all devices. Of the devices that a process has used, the first 256 by name (`--metrics-devices`) have samples of \
                    their own: 64,000 devices are not 64,000 series.",
            text: cmd::device::metrics::text(&Default::default(), &[samples::device()]),
            file: "crates/weft-cli/src/cmd/device/metrics.rs",
        },
        Source {
            title: "The route controller: `weft route serve`",
            about: "They are served beside its page, by default at port 7490.",
            text: cmd::route::metrics::text(&samples::view()),
            file: "crates/weft-cli/src/cmd/route/metrics.rs",
        },
        Source {
            title: "The controller of Kubernetes: `weft-kube run --listen`",
            about: "The chart has it listen at port 9466.",
            // A test of weft-kube serves this text.
            text: read("crates/weft-kube/tests/golden/metrics.txt"),
            file: "crates/weft-kube/src/page.rs",
        },
    ]
}

fn render() -> String {
    let mut page = BEGINNING.to_owned();
    for source in sources() {
        page += &format!("\n## {}\n\n{}\n\n", source.title, source.about);
        let rows = families(&source.text).map(|family| {
            let total = if family.kind == "counter" { "_total" } else { "" };
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let Family { name, kind, help, .. } = family;
            [
                format!("`{name}{total}`"),
                kind.to_owned(),
                labels.join(", "),
                cell(help.trim_end_matches('.')),
            ]
        });
        page += &table(["metric", "kind", "labels", "value"], &Vec::from_iter(rows));
    }
    page += COUNTERS;
    let counters = Stats::COUNTERS.iter().map(|counter| {
        [
            format!("`{}`", counter.key),
            counter.unit.to_string(),
            cell(counter.about.trim_end_matches('.')),
        ]
    });
    page += &table(["counter", "unit", "value"], &Vec::from_iter(counters));
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// A family of an OpenMetrics text.
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    /// The labels of its first sample, without the `le` of a histogram. The values in `samples` contain no comma.
    labels: Vec<&'a str>,
    has_sample: bool,
}

/// Returns the families of an OpenMetrics text, in its order.
fn families(text: &str) -> impl Iterator<Item = Family<'_>> {
    let of = |mark: &str| -> BTreeMap<&str, &str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        lines.filter_map(|line| line.split_once(' ')).collect()
    };
    let kinds = of("# TYPE ");
    let names = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    names.map(move |(name, help)| {
        let is_its = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| {
                ["{", " ", "_total", "_bucket"].iter().any(|mark| rest.starts_with(mark))
            })
        };
        let sample = text.lines().find(is_its);
        let inner = sample.and_then(|line| Some(line.split_once('{')?.1.split_once('}')?.0));
        let labels = inner.into_iter().flat_map(|inner| inner.split(','));
        let labels = labels.filter_map(|label| Some(label.split_once('=')?.0));
        Family {
            name,
            kind: kinds[name],
            help,
            labels: labels.filter(|&label| label != "le").collect(),
            has_sample: sample.is_some(),
        }
    })
}

/// An encoder leaves out a family without a sample, so the page would not have it.
#[test]
fn every_family_that_is_served_has_a_sample_here() {
    for source in sources() {
        let code = read(source.file).split_whitespace().collect::<Vec<_>>().join(" ");
        let marks = ["= gauges(", "= counters(", "\"weft_"];
        let in_code: usize = marks.iter().map(|mark| code.matches(mark).count()).sum();
        // The prefix of a registry.
        let in_code = in_code - code.matches("with_prefix(\"weft_").count();
        assert_eq!(families(&source.text).count(), in_code, "{}", source.file);
        for family in families(&source.text) {
            assert!(family.has_sample, "{} of {}", family.name, source.file);
        }
    }
}

#[test]
fn the_page_of_metrics_is_as_they_are_served() {
    assert_page("docs/reference/metrics.md", &render());
}
