//! The pictures of a run's page, from its timeline.

use std::collections::BTreeMap;

use weft_report::{
    Axis, BarPlot, Body, Layer, Lines, Mark, Row, Section, Span, TimelinePlot, Unit,
};
use weft_topo::{LinkId, NodeId, Topology};

use super::{Cell, Column, Timeline, link_name};
use crate::measure::kind_of_port;
use crate::scenario::Scenario;
use crate::time::SimTime;
use crate::traffic::FinishedFlow;

/// Maximum number of links in the heat map; the busiest are shown.
const MAX_ROWS: usize = 512;
/// Cells above which columns are merged for the page.
const MAX_CELLS: usize = 200_000;
/// Maximum number of switches in the bars of paths.
const MAX_NEXT_HOPS: usize = 32;

impl Timeline {
    /// Returns the run in pictures: sections of a page.
    pub fn pictures(&self, scenario: &Scenario, topology: &Topology) -> Vec<Section> {
        if self.columns().is_empty() {
            return vec![];
        }
        let mut sections = vec![over_time(scenario, topology, self)];
        sections.extend(paths(topology, self));
        sections
    }
}

/// Returns the section of plots over time.
fn over_time(scenario: &Scenario, topology: &Topology, timeline: &Timeline) -> Section {
    let rows = rows(topology, timeline);
    let all = topology.link_ids().count();
    let which = if rows.len() < all {
        format!(" The heat map has the {} busiest of {all} links.", rows.len())
    } else {
        String::new()
    };
    let text = format!(
        "All plots have one time axis: drag to zoom, double-click for the whole run, hover or use the arrow keys \
         for values.{which} A column is at least {}; queues are sampled four times in it. {} messages finished.",
        Unit::Seconds.format(timeline.interval().as_secs_f64()),
        timeline.messages().count(),
    );
    let plot = Merged::new(timeline, rows.len()).plot(scenario, topology, &rows);
    Section { heading: "Over time".into(), text, body: Body::Timeline(plot) }
}

/// Returns the links of the heat map: by kind, in the topology's order.
fn rows(topology: &Topology, timeline: &Timeline) -> Vec<LinkId> {
    let totals = timeline.totals();
    let mut links: Vec<LinkId> = topology.link_ids().collect();
    links.sort_by_key(|link| std::cmp::Reverse(totals[link.index()]));
    links.truncate(MAX_ROWS);
    let rank = |link: &LinkId| {
        let ends = topology.link(*link);
        let (from, to) = (topology.tier(ends.from), topology.tier(ends.to));
        // Upwards first, then down again, as packets go.
        if to > from {
            (from, from, ends.from, ends.to)
        } else {
            (u8::MAX - from, from, ends.from, ends.to)
        }
    };
    links.sort_by_key(rank);
    links
}

/// The columns of the page: groups of the timeline's.
struct Merged<'a> {
    timeline: &'a Timeline,
    width: usize,
}

impl<'a> Merged<'a> {
    fn new(timeline: &'a Timeline, rows: usize) -> Self {
        let width = (timeline.columns().len() * rows).div_ceil(MAX_CELLS).max(1);
        Self { timeline, width }
    }

    fn edges(&self) -> Vec<f64> {
        let ends = self.timeline.columns().chunks(self.width);
        let ends = ends.filter_map(|columns| columns.last()).map(|column| seconds(column.end));
        std::iter::once(0.0).chain(ends).collect()
    }

    fn spans(&self) -> Vec<f64> {
        self.edges().windows(2).map(|edge| edge[1] - edge[0]).collect()
    }

    /// Returns a link's values in the page's columns.
    fn cells(&self, link: LinkId, value: impl Fn(&[Cell]) -> u64) -> Vec<u64> {
        let cells: Vec<Cell> = self.timeline.cells(link).copied().collect();
        cells.chunks(self.width).map(value).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "drawn")]
    fn columns(&self, value: impl Fn(&[Column]) -> u64) -> Vec<f64> {
        self.timeline.columns().chunks(self.width).map(|columns| value(columns) as f64).collect()
    }

    fn plot(&self, scenario: &Scenario, topology: &Topology, rows: &[LinkId]) -> TimelinePlot {
        let row = |&link: &LinkId| Row {
            name: link_name(topology, link),
            group: kind_of_port(topology, link),
        };
        let marks = self.timeline.faults().iter();
        let kinds = scenario.workloads.iter().map(|workload| workload.kind().name().to_owned());
        TimelinePlot {
            edges: self.edges(),
            rows: rows.iter().map(row).collect(),
            layers: self.layers(topology, rows),
            lines: self.lines(topology),
            spans: self.messages(topology),
            kinds: kinds.collect(),
            marks: marks
                .map(|(at, label)| Mark { x: seconds(*at), label: label.clone() })
                .collect(),
        }
    }

    fn layers(&self, topology: &Topology, rows: &[LinkId]) -> Vec<Layer> {
        let spans = self.spans();
        let load = |&link: &LinkId| {
            let rate = topology.link(link).rate;
            let sent = self.cells(link, |cells| cells.iter().map(|cell| cell.sent).sum());
            sent.iter().zip(&spans).map(|(&sent, &span)| steps(sent, rate.as_bps(), span)).collect()
        };
        let counts = |value: fn(&[Cell]) -> u64| -> Vec<Vec<u32>> {
            let row = |&link: &LinkId| {
                let values = self.cells(link, value);
                values.into_iter().map(|value| u32::try_from(value).unwrap_or(u32::MAX)).collect()
            };
            rows.iter().map(row).collect()
        };
        let layer = |name: &str, unit, step, full, cells| Layer {
            name: name.into(),
            unit,
            step,
            full,
            cells,
        };
        let layers = [
            layer("load", Unit::Share, LOAD_STEP, Some(1.0), rows.iter().map(load).collect()),
            layer(
                "queue",
                Unit::Bytes,
                1.0,
                None,
                counts(|cells| cells.iter().map(|cell| cell.deepest).max().unwrap_or(0)),
            ),
            layer(
                "marked packets",
                Unit::Count,
                1.0,
                None,
                counts(|cells| cells.iter().map(|cell| u64::from(cell.marked)).sum()),
            ),
            layer(
                "refused packets",
                Unit::Count,
                1.0,
                None,
                counts(|cells| cells.iter().map(|cell| u64::from(cell.refused)).sum()),
            ),
        ];
        let has_any = |layer: &Layer| layer.cells.iter().flatten().any(|&cell| cell > 0);
        layers
            .into_iter()
            .enumerate()
            .filter(|(index, layer)| *index == 0 || has_any(layer))
            .map(|it| it.1)
            .collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "drawn")]
    fn lines(&self, topology: &Topology) -> Vec<Lines> {
        let mut queues: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for link in topology.link_ids().filter(|link| !topology.is_host(topology.link(*link).from))
        {
            let depths =
                self.cells(link, |cells| cells.iter().map(|cell| cell.deepest).max().unwrap_or(0));
            let kind = queues.entry(kind_of_port(topology, link)).or_default();
            kind.resize(depths.len(), 0.0);
            kind.iter_mut().zip(depths).for_each(|(most, depth)| *most = most.max(depth as f64));
        }
        let last = |columns: &[Column]| columns.last().map_or(0, |column| column.in_progress);
        let sum = |value: fn(&Column) -> u64| {
            self.columns(move |columns| columns.iter().map(value).sum())
        };
        let events = [
            ("packets lost", sum(|column| column.lost.iter().sum())),
            ("retransmissions", sum(|column| column.retransmissions)),
            ("path switches", sum(|column| column.path_switches)),
        ];
        let events =
            events.into_iter().filter(|(_, values)| values.iter().any(|&value| value > 0.0));
        let events: Vec<_> = events.map(|(name, values)| (name.to_owned(), values)).collect();
        let lines = [
            ("Deepest queue", Unit::Bytes, queues.into_iter().collect()),
            (
                "Messages in progress",
                Unit::Count,
                vec![("messages in progress".into(), self.columns(last))],
            ),
            ("Events in a column", Unit::Count, events),
        ];
        let lines = lines.into_iter().filter(|(.., series): &(_, _, Vec<_>)| !series.is_empty());
        lines.map(|(name, unit, series)| Lines { name: name.into(), unit, series }).collect()
    }

    fn messages(&self, topology: &Topology) -> Vec<Span> {
        let span = |message: &FinishedFlow| {
            let size = Unit::Bytes.format(f64::from(message.length));
            let ends = [message.source, message.destination].map(|host| topology.name(host));
            Span {
                name: format!("{} → {}, {size}", ends[0], ends[1]),
                kind: message.workload as usize,
                start: seconds(message.submitted),
                end: seconds(message.acknowledged),
            }
        };
        self.timeline.messages().shown().iter().map(span).collect()
    }
}

/// The step of loads in the page: a hundredth of a percent.
const LOAD_STEP: f64 = 1e-4;

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "drawn"
)]
fn steps(sent: u64, bps: u64, span: f64) -> u32 {
    let capacity = bps as f64 * span;
    if capacity > 0.0 { (sent as f64 * 8.0 / capacity / LOAD_STEP).round() as u32 } else { 0 }
}

fn seconds(at: SimTime) -> f64 {
    at.since(SimTime::EPOCH).as_secs_f64()
}

/// Returns the shares of leaves' bytes by next hop, if there are several and not too many.
#[expect(clippy::cast_precision_loss, reason = "shares of bytes")]
fn paths(topology: &Topology, timeline: &Timeline) -> Option<Section> {
    let totals = timeline.totals();
    let mut shares: BTreeMap<NodeId, Vec<f64>> = BTreeMap::new();
    for leaf in topology.switch_ids().filter(|&switch| topology.tier(switch) == 1) {
        let up = |link: &&LinkId| topology.tier(topology.link(**link).to) > 1;
        let uplinks: Vec<LinkId> = topology.ports(leaf).iter().filter(up).copied().collect();
        let all: u64 = uplinks.iter().map(|link| totals[link.index()]).sum();
        if all == 0 {
            continue;
        }
        let mut of_leaf: BTreeMap<NodeId, u64> = BTreeMap::new();
        for link in uplinks {
            *of_leaf.entry(topology.link(link).to).or_default() += totals[link.index()];
        }
        for (hop, bytes) in of_leaf {
            shares.entry(hop).or_default().push(bytes as f64 / all as f64);
        }
    }
    if !(2..=MAX_NEXT_HOPS).contains(&shares.len()) {
        return None;
    }
    let fold = |of: fn(&[f64]) -> f64| shares.values().map(|shares| of(shares)).collect();
    let series = vec![
        ("least of the leaves".into(), fold(|it| it.iter().copied().fold(f64::INFINITY, f64::min))),
        ("mean".into(), fold(|it| it.iter().sum::<f64>() / it.len() as f64)),
        ("most".into(), fold(|it| it.iter().copied().fold(0.0, f64::max))),
    ];
    let body = Body::Bars(BarPlot {
        y: Axis::new("share of a leaf's bytes", Unit::Share),
        groups: shares.keys().map(|&hop| topology.name(hop).to_string()).collect(),
        series,
    });
    let text = "The share of the bytes that a leaf sent up by each of its next hops.";
    Some(Section { heading: "Paths taken".into(), text: text.into(), body })
}
