//! Generates `docs/reference/metrics.md`: the metrics of the monitor, the overlay's daemon and the route controller, and
//! the transport's counters, which reports have too.

use std::collections::BTreeMap;

use serde_json::json;
use weft_steer::View;
use weft_transport::Stats;
use weft_vswitch::Status;

use super::{assert_page, cell, read, table};
use crate::{cmd, monitor};

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
    text: String,
    /// The source file that writes them.
    file: &'static str,
    labels: &'static [&'static str],
}

fn sources() -> [Source; 3] {
    let status = json!({
        "address": "10.0.0.1", "tenant_mtu": 1378, "networks": [], "ports": [], "pairs": [], "threads": [],
        "encryption": { "mode": "", "identity": "", "authenticates": false, "connections": [0, 0], "counters": {} },
        "transport": Stats::default(), "dropped": {},
    });
    let status: Status = serde_json::from_value(status).unwrap();
    [
        Source {
            title: "Programs: `weft monitor`",
            about: "`weft monitor agent` serves those of its host, by default at port 7475, `weft monitor serve` those of all \
                    hosts at port 7480.",
            text: monitor::metrics::text(std::iter::empty(), &[]),
            file: "crates/weft-cli/src/monitor/metrics.rs",
            labels: &[
                "host",
                "program",
                "pid",
                "peer",
                "address",
                "device",
                "state",
                "of_paths",
                "cause",
                "encrypted",
            ],
        },
        Source {
            title: "The overlay: `weft vpc serve --metrics`",
            about: "Pairs and their paths are the first 256 of each thread.",
            text: cmd::vpc::metrics::text(&status),
            file: "crates/weft-cli/src/cmd/vpc/metrics.rs",
            labels: &[
                "mode",
                "as",
                "thread",
                "direction",
                "kind",
                "port",
                "vni",
                "by",
                "cause",
                "remote",
                "peer",
                "path",
                "event",
            ],
        },
        Source {
            title: "The route controller: `weft route serve`",
            about: "They are served beside its page, by default at port 7490.",
            text: cmd::route::metrics::text(&View::default()),
            file: "crates/weft-cli/src/cmd/route/metrics.rs",
            labels: &["router", "port", "to", "stage", "begun", "what", "kind"],
        },
    ]
}

fn render() -> String {
    let mut page = BEGINNING.to_owned();
    for source in sources() {
        let labels: Vec<_> = source.labels.iter().map(|label| format!("`{label}`")).collect();
        page += &format!(
            "\n## {}\n\n{} Labels: {}.\n\n",
            source.title,
            source.about,
            labels.join(", ")
        );
        page += &table(["metric", "kind", "what it says"], &rows(&source.text));
    }
    page += COUNTERS;
    let counters = Stats::COUNTERS.iter().map(|counter| {
        [
            format!("`{}`", counter.key),
            counter.unit.to_string(),
            cell(counter.about.trim_end_matches('.')),
        ]
    });
    page += &table(["counter", "unit", "what it says"], &Vec::from_iter(counters));
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// Returns a row for each family of an OpenMetrics text.
fn rows(text: &str) -> Vec<[String; 3]> {
    let of = |mark: &str| -> BTreeMap<&str, &str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        lines.filter_map(|line| line.split_once(' ')).collect()
    };
    let kinds = of("# TYPE ");
    let families = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    families
        .map(|(name, help)| {
            let kind = kinds[name];
            let total = if kind == "counter" { "_total" } else { "" };
            [format!("`{name}{total}`"), kind.to_owned(), cell(help.trim_end_matches('.'))]
        })
        .collect()
}

#[test]
fn every_label_is_one_of_its_source() {
    for source in sources() {
        let code = read(source.file);
        for label in source.labels {
            assert!(code.contains(&format!("\"{label}\"")), "{} has no label {label}", source.file);
        }
    }
}

#[test]
fn the_page_of_metrics_is_as_they_are_served() {
    assert_page("docs/reference/metrics.md", &render());
}
