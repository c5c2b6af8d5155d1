//! A report as tables, for people and for CSV.

use std::collections::BTreeMap;

use weft_report::{Cell, Column, Table};

use super::Report;
use crate::measure::{Distribution, FlowReport, PortReport};
use crate::workload::{Iteration, Shares};

impl Report {
    /// Returns the report in tables, each under its heading. Empty ones are left out.
    pub fn tables(&self) -> Vec<(&'static str, Table)> {
        let tables = [
            ("Flows", self.flow_table()),
            ("Slowdown by size", self.size_table()),
            ("Collectives", self.collective_table()),
            ("Training", self.training_table()),
            ("Fast-forward", self.fast_forward_table()),
            ("Queues", self.queue_table()),
            ("Links", self.tier_table()),
            ("Leaf uplinks", self.port_table()),
            ("Pauses", self.pause_table()),
            ("PCIe", self.pcie_table()),
            ("Overlay", self.overlay_table()),
            ("Route controller", self.controller_table()),
            ("Counters", self.counter_table()),
        ];
        tables.into_iter().filter(|(_, table)| !table.is_empty()).collect()
    }

    /// Returns every finished flow, for CSV.
    pub fn flow_lines(&self) -> Table {
        let number = |key: &str| Column::number(key.replace('_', " "), key);
        let keys = [
            "workload",
            "tag",
            "source",
            "destination",
            "bytes",
            "start_us",
            "delivered_us",
            "acknowledged_us",
            "slowdown",
        ];
        let mut table = Table::new(keys.into_iter().map(number).collect());
        for flow in &self.flows {
            table.push(vec![
                flow.workload.into(),
                flow.tag.into(),
                flow.source.into(),
                flow.destination.into(),
                flow.bytes.into(),
                decimal(flow.start_us, 3),
                decimal(flow.delivered_us, 3),
                decimal(flow.acknowledged_us, 3),
                decimal(flow.slowdown, 3),
            ]);
        }
        table
    }

    fn flow_table(&self) -> Table {
        let mut columns = vec![
            Column::text("workload", "workload"),
            Column::number("flows", "flows"),
            Column::number("finished", "finished"),
        ];
        for (heading, key) in [
            ("mean us", "fct_mean_us"),
            ("p50 us", "fct_p50_us"),
            ("p99 us", "fct_p99_us"),
            ("max us", "fct_max_us"),
            ("slowdown", "slowdown_mean"),
            ("p50", "slowdown_p50"),
            ("p95", "slowdown_p95"),
            ("p99", "slowdown_p99"),
            ("p99.9", "slowdown_p999"),
        ] {
            columns.push(Column::number(heading, key));
        }
        let mut table = Table::new(columns);
        for workload in self.workloads.iter().filter(|workload| workload.flows.started > 0) {
            let FlowReport { started, finished, fct_us, slowdown, .. } = &workload.flows;
            table.push(vec![
                workload.kind.into(),
                (*started).into(),
                (*finished).into(),
                decimal(fct_us.mean, 1),
                decimal(fct_us.p50, 1),
                decimal(fct_us.p99, 1),
                decimal(fct_us.max, 1),
                decimal(slowdown.mean, 3),
                decimal(slowdown.p50, 3),
                decimal(slowdown.p95, 3),
                decimal(slowdown.p99, 3),
                decimal(slowdown.p999, 3),
            ]);
        }
        table
    }

    fn size_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("workload", "workload"),
            Column::number("up to bytes", "up_to_bytes"),
            Column::number("flows", "flows"),
            Column::number("slowdown", "slowdown_mean"),
            Column::number("p50", "slowdown_p50"),
            Column::number("p95", "slowdown_p95"),
            Column::number("p99", "slowdown_p99"),
            Column::number("p99.9", "slowdown_p999"),
        ]);
        for workload in &self.workloads {
            let filled = || workload.flows.by_size.iter().filter(|bin| bin.flows > 0);
            if filled().count() < 2 {
                continue;
            }
            for bin in filled() {
                table.push(vec![
                    workload.kind.into(),
                    bin.up_to_bytes.into(),
                    bin.flows.into(),
                    decimal(bin.mean, 3),
                    decimal(bin.p50, 3),
                    decimal(bin.p95, 3),
                    decimal(bin.p99, 3),
                    decimal(bin.p999, 3),
                ]);
            }
        }
        table
    }

    fn collective_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("workload", "workload"),
            Column::number("operations", "operations"),
            Column::number("mean us", "time_mean_us"),
            Column::number("max us", "time_max_us"),
            Column::number("bus Gb/s", "bus_mean_gbps"),
            Column::number("min", "bus_min_gbps"),
            Column::number("max", "bus_max_gbps"),
        ]);
        for workload in self.workloads.iter().filter(|workload| !workload.iterations.is_empty()) {
            let times = workload.iterations.iter().map(|done| done.time_us);
            let times = Distribution::of(&mut times.collect::<Vec<_>>());
            table.push(vec![
                workload.kind.into(),
                workload.iterations.len().into(),
                decimal(times.mean, 1),
                decimal(times.max, 1),
                decimal(workload.bus_gbps.mean, 2),
                decimal(workload.bus_gbps.min, 2),
                decimal(workload.bus_gbps.max, 2),
            ]);
        }
        table
    }

    fn training_table(&self) -> Table {
        let mut columns = vec![Column::text("workload", "workload")];
        for (heading, key) in [
            ("iteration us", "time_us"),
            ("computing %", "computing"),
            ("exposed %", "exposed"),
            ("TP %", "tensor"),
            ("PP %", "pipeline"),
            ("DP %", "data"),
            ("EP %", "expert"),
        ] {
            columns.push(Column::number(heading, key));
        }
        let mut table = Table::new(columns);
        for workload in &self.workloads {
            for Iteration { time_us, shares, .. } in &workload.iterations {
                let Some(shares) = shares else { continue };
                let Shares { exposed, computing, tensor, pipeline, data, expert } = *shares;
                let parts = [computing, exposed, tensor, pipeline, data, expert];
                let mut row = vec![workload.kind.into(), decimal(*time_us, 1)];
                row.extend(parts.map(|share| decimal(100.0 * share, 2)));
                table.push(row);
            }
        }
        table
    }

    fn queue_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("ports", "kind"),
            Column::number("used", "ports"),
            Column::number("mean KB", "mean_kb"),
            Column::number("max KB", "max_kb"),
            Column::number("marked", "marked"),
            Column::number("refused", "refused"),
        ]);
        for (kind, queue) in self.queues.iter().filter(|(_, queue)| queue.ports > 0) {
            table.push(vec![
                kind.clone().into(),
                queue.ports.into(),
                decimal(queue.mean_bytes / 1e3, 2),
                decimal(kilo(queue.max_bytes), 1),
                queue.marked.into(),
                queue.refused.into(),
            ]);
        }
        table
    }

    fn tier_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("tier", "tier"),
            Column::number("links", "links"),
            Column::number("load", "load_mean"),
            Column::number("most", "load_max"),
        ]);
        for (kind, load) in &self.ports.tiers {
            table.push(vec![
                kind.clone().into(),
                load.links.into(),
                decimal(load.mean, 4),
                decimal(load.max, 4),
            ]);
        }
        table
    }

    fn pause_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("tier", "tier"),
            Column::number("ports paused", "ports"),
            Column::number("frames", "frames"),
            Column::number("paused us", "paused_us"),
            Column::number("longest", "max_paused_us"),
        ]);
        for (kind, tier) in self.pfc.iter().flat_map(|pfc| &pfc.tiers) {
            table.push(vec![
                kind.clone().into(),
                tier.ports.into(),
                tier.frames.into(),
                decimal(tier.paused_us, 1),
                decimal(tier.max_paused_us, 1),
            ]);
        }
        table
    }

    fn pcie_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("reads", "reads"),
            Column::number("ns a read", "read_ns"),
            Column::number("writes", "writes"),
            Column::number("ns a write", "write_ns"),
            Column::number("ATC misses", "atc_miss_share"),
            Column::number("ns a miss", "translation_ns"),
            Column::number("IOMMU lookups", "iommu_lookups"),
            Column::number("IOTLB misses", "iotlb_miss_share"),
        ]);
        if let Some(pcie) = &self.pcie {
            table.push(vec![
                pcie.reads.into(),
                decimal(pcie.read_ns, 0),
                pcie.writes.into(),
                decimal(pcie.write_ns, 0),
                decimal(pcie.atc_miss_share, 4),
                decimal(pcie.translation_ns, 0),
                pcie.iommu_lookups.into(),
                decimal(pcie.iotlb_miss_share, 4),
            ]);
        }
        table
    }

    fn overlay_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("pairs", "pairs"),
            Column::number("frames", "frames_sent"),
            Column::number("again", "frames_retransmitted"),
            Column::number("timeouts", "timeouts"),
            Column::number("received", "frames_received"),
            Column::number("late", "late"),
            Column::number("twice", "twice"),
            Column::number("plain", "plain_received"),
            Column::number("declined", "declined"),
            Column::number("dropped", "dropped"),
        ]);
        if let Some(overlay) = &self.overlay {
            table.push(vec![
                (overlay.pair_ends / 2).into(),
                overlay.tenants.frames_sent.into(),
                overlay.tenants.frames_retransmitted.into(),
                overlay.tenants.timeouts.into(),
                overlay.tenants.frames_received.into(),
                overlay.tenants.late.into(),
                overlay.tenants.frames_duplicate.into(),
                overlay.plain_received.into(),
                overlay.declined.into(),
                overlay.dropped.values().sum::<u64>().into(),
            ]);
        }
        table
    }

    fn controller_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("windows", "windows"),
            Column::number("marks a window", "marks_mean"),
            Column::number("ports above", "congested_windows"),
            Column::number("alarms", "alarms"),
            Column::number("moves", "moves"),
            Column::number("kept", "kept"),
            Column::number("undone", "undone"),
        ]);
        if let Some(controller) = &self.controller {
            table.push(vec![
                controller.windows.len().into(),
                decimal(controller.marks_per_window.mean, 1),
                controller.congested_windows.into(),
                controller.stats.alarms.into(),
                controller.stats.moves.into(),
                controller.stats.kept.into(),
                controller.stats.undone.into(),
            ]);
        }
        table
    }

    fn port_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("uplinks", "uplinks"),
            Column::number("load", "load_mean"),
            Column::number("least", "load_min"),
            Column::number("most", "load_max"),
            Column::number("imbalance", "imbalance_mean"),
            Column::number("worst", "imbalance_max"),
        ]);
        let PortReport { uplink_load, imbalance, .. } = &self.ports;
        if uplink_load.count > 0 {
            table.push(vec![
                uplink_load.count.into(),
                decimal(uplink_load.mean, 4),
                decimal(uplink_load.min, 4),
                decimal(uplink_load.max, 4),
                decimal(imbalance.mean, 4),
                decimal(imbalance.max, 4),
            ]);
        }
        table
    }

    /// Returns the counters that are not zero.
    fn counter_table(&self) -> Table {
        let mut table =
            Table::new(vec![Column::text("counter", "counter"), Column::number("count", "count")]);
        let (network, transport) = (&self.network, &self.transport.counters);
        let fixed = [
            ("packet hops", network.packet_hops),
            ("packets injected", network.injected),
            ("packets marked", network.marked),
            ("data packets sent", transport.data_sent),
            ("acks sent", transport.acks_sent),
            ("fast retransmits", transport.fast_retransmits),
            ("timeout retransmits", transport.timeout_retransmits),
            ("tail loss probes", transport.tail_loss_probes),
            ("spurious retransmits", transport.spurious_retransmits),
            ("out of order", transport.out_of_order),
            ("paths down", transport.paths_down),
            ("paths up", transport.paths_up),
            ("path switches", transport.path_switches),
            ("probes", transport.probes_sent),
            ("probe bytes", transport.probe_bytes),
        ];
        let named = |kind: &'static str, counts: &BTreeMap<&'static str, u64>| {
            let text = move |(&name, &count): (&&str, &u64)| {
                (format!("{kind}: {}", name.replace('_', " ")), count)
            };
            counts.iter().map(text).collect::<Vec<_>>()
        };
        let fixed = fixed.into_iter().map(|(name, count)| (name.to_owned(), count));
        let counts = fixed
            .chain(named("lost", &network.lost))
            .chain(named("refused", &self.transport.refused))
            .filter(|(_, count)| *count > 0);
        for (name, count) in counts {
            table.push(vec![name.into(), count.into()]);
        }
        table
    }
}

#[expect(clippy::cast_precision_loss, reason = "a queue's bytes")]
fn kilo(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}

fn decimal(value: f64, places: usize) -> Cell {
    Cell::new(format!("{value:.places$}"), value)
}
