//! The end of a trace: faults, and the counters of the network and of its links.

use std::io::{self, Write};

use weft_topo::{LinkId, Topology};

use super::packets::{Label, Value};
use super::{Timeline, Trace, Written, link_name};
use crate::time::SimTime;

impl<W: Write> Trace<W> {
    /// Adds the faults, and the counters of the network and of `links`; returns the writer and what it got.
    ///
    /// # Errors
    /// The first error of the writer.
    pub fn finish(
        mut self,
        timeline: &Timeline,
        topology: &Topology,
        links: &[LinkId],
    ) -> io::Result<(W, Written)> {
        let faults = self.packets.track(Some(self.network), "faults");
        for (at, name) in timeline.faults() {
            let attributes = [("time_ps", Value::Count(at.as_picos()))];
            let label = Label { name, category: "fault", attributes: &attributes };
            self.packets.instant(*at, faults, label);
        }
        self.network_counters(timeline);
        links.iter().for_each(|&link| self.link_counters(timeline, topology, link));
        let counts = Written { bytes: self.packets.written(), ..self.counts };
        self.packets.finish().map(|out| (out, counts))
    }

    fn network_counters(&mut self, timeline: &Timeline) {
        let columns = || timeline.columns().iter();
        let lost: Vec<u64> = columns().map(|column| column.lost.iter().sum()).collect();
        let counts = |value: fn(&crate::timeline::Column) -> u64| columns().map(value).collect();
        let rows: [(&str, Vec<u64>); 4] = [
            ("messages in progress", counts(|column| column.in_progress)),
            ("path switches", counts(|column| column.path_switches)),
            ("retransmissions", counts(|column| column.retransmissions)),
            ("packets lost", lost),
        ];
        for (name, values) in rows {
            let values = values.into_iter().map(Value::Count).collect();
            self.counter(timeline, self.network, name, "", values);
        }
    }

    fn link_counters(&mut self, timeline: &Timeline, topology: &Topology, link: LinkId) {
        let Self { links, packets, groups, .. } = self;
        let parent = *links
            .entry(link)
            .or_insert_with(|| packets.track(Some(groups[1]), &link_name(topology, link)));
        let counts = |value: fn(&crate::timeline::Cell) -> u64| {
            timeline.cells(link).map(|cell| Value::Count(value(cell))).collect()
        };
        let rates = timeline.cells(link).enumerate().map(|(column, cell)| {
            let span = timeline.columns()[column].end.since(timeline.start_of(column));
            Value::Number(gbps(cell.sent, span.as_secs_f64()))
        });
        let rates = rates.collect();
        self.counter(timeline, parent, "queue", "bytes", counts(|cell| cell.deepest));
        self.counter(timeline, parent, "rate", "Gb/s", rates);
        self.counter(timeline, parent, "marked", "packets", counts(|cell| cell.marked.into()));
        self.counter(timeline, parent, "refused", "packets", counts(|cell| cell.refused.into()));
    }

    /// Adds a counter with a value for each column; one that is always zero is left out, and so are repeated values.
    fn counter(
        &mut self,
        timeline: &Timeline,
        parent: super::Track,
        name: &str,
        unit: &str,
        values: Vec<Value>,
    ) {
        let is_zero = |value: &Value| matches!(value, Value::Count(0) | Value::Number(0.0));
        if values.iter().all(is_zero) {
            return;
        }
        let track = self.packets.counter(Some(parent), name, unit);
        let mut before = None;
        for (column, value) in values.into_iter().enumerate() {
            if before.replace(value) != Some(value) {
                self.packets.count(timeline.start_of(column), track, value);
            }
        }
        // A viewer draws the last value to its time only.
        let last = timeline.columns().last().map_or(SimTime::EPOCH, |column| column.end);
        if let Some(value) = before {
            self.packets.count(last, track, value);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a column")]
fn gbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 }
}
