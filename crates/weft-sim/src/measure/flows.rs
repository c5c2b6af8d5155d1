//! Flow completion times, and slowdowns over the time each flow takes alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{NodeId, Routes, Topology};

use super::Distribution;
use crate::fabric::idle_latency;
use crate::nic;
use crate::pace::Pace;
use crate::time::{SimSpan, SimTime};
use crate::traffic::FinishedFlow;

/// The flows of one workload. Times and slowdowns cover the flows that finished and started after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowReport {
    /// Number of flows that were submitted.
    pub started: u64,
    /// Number of flows that were delivered and acknowledged.
    pub finished: u64,
    /// The bytes of those flows.
    pub bytes: u64,
    /// The time from submission to acknowledgement at the sender, microseconds (ns-3's and htsim's flow completion
    /// time).
    pub fct_us: Distribution,
    /// The time from submission to delivery at the receiver, microseconds.
    pub delivery_us: Distribution,
    /// The ratio of `fct_us` to [`ideal_time`], at least 1.
    pub slowdown: Distribution,
    /// Slowdown by size of flow, with every bin, zeros where a bin is empty; a flow of exactly an edge's size belongs
    /// below it.
    pub by_size: Vec<SizeBin>,
}

/// Flows of similar size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeBin {
    /// The largest flow, bytes; the smallest are above the bin before.
    pub up_to_bytes: u64,
    /// Number of flows.
    pub flows: usize,
    /// The mean slowdown.
    pub mean: f64,
    /// The 50th percentile of the slowdown.
    pub p50: f64,
    /// The 95th percentile of the slowdown.
    pub p95: f64,
    /// The 99th percentile of the slowdown.
    pub p99: f64,
    /// The 99.9th percentile of the slowdown.
    pub p999: f64,
}

/// The bin edges of the reference results of ConWeave's simulator, bytes.
pub const REFERENCE_BINS: [u64; 6] = [1_000, 4_000, 10_000, 32_000, 104_000, 500_000];

/// The ideal time that flows are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdealTime {
    /// The time of [`ideal_time`].
    #[default]
    Exact,
    /// The time of [`base_round_trip_time`], as in ConWeave's simulator.
    BaseRoundTrip,
}

/// The parameters of the ideal times of flows.
#[derive(Clone, Copy, Debug)]
pub struct IdealTimeParameters<'a> {
    /// The network as it was built.
    pub topology: &'a Topology,
    /// The network's routes.
    pub routes: &'a Routes,
    /// The payload of a full packet, bytes.
    pub mtu: u16,
    /// The warm-up: flows that start earlier do not count.
    pub warm_up: SimTime,
    /// The largest flow of each size bin but the last, ascending, bytes.
    pub bins: &'a [u64],
    /// The definition of the time a flow takes alone.
    pub ideal: IdealTime,
    /// Bytes of a frame around a message's payload.
    pub overhead: u16,
}

impl FlowReport {
    /// Returns the report about `finished` of `started` flows.
    pub fn new(
        started: u64,
        finished: &[&FinishedFlow],
        parameters: &IdealTimeParameters<'_>,
    ) -> Self {
        let counted = finished.iter().filter(|flow| flow.submitted >= parameters.warm_up);
        let counted: Vec<&FinishedFlow> = counted.copied().collect();
        let each = |value: &dyn Fn(&FinishedFlow) -> f64| -> Vec<f64> {
            counted.iter().map(|flow| value(flow)).collect()
        };
        let mut slowdowns = each(&|flow| parameters.slowdown(flow));
        let delivered = |flow: &FinishedFlow| flow.delivered.since(flow.submitted).as_micros_f64();
        Self {
            started,
            finished: finished.len() as u64,
            bytes: finished.iter().map(|flow| u64::from(flow.length)).sum(),
            fct_us: Distribution::of(&mut each(&completion_us)),
            delivery_us: Distribution::of(&mut each(&delivered)),
            by_size: by_size(&counted, &slowdowns, parameters.bins),
            slowdown: Distribution::of(&mut slowdowns),
        }
    }
}

impl IdealTimeParameters<'_> {
    /// Returns a flow's completion time divided by its ideal time; at least 1.
    pub fn slowdown(&self, flow: &FinishedFlow) -> f64 {
        let ideal = match self.ideal {
            IdealTime::Exact => ideal_time(flow, self),
            IdealTime::BaseRoundTrip => base_round_trip_time(flow, self),
        };
        (completion_us(flow) / ideal.map_or(0.0, SimSpan::as_micros_f64)).max(1.0)
    }
}

/// Returns the time from submission to acknowledgement, microseconds.
fn completion_us(flow: &FinishedFlow) -> f64 {
    flow.acknowledged.since(flow.submitted).as_micros_f64()
}

fn by_size(counted: &[&FinishedFlow], slowdowns: &[f64], edges: &[u64]) -> Vec<SizeBin> {
    let sizes = counted.iter().map(|flow| u64::from(flow.length));
    let largest = sizes.clone().max().unwrap_or(0);
    let bins = binned(sizes.zip(slowdowns.iter().copied()), edges);
    let edges = edges.iter().copied().chain([u64::MAX]);
    edges
        .zip(bins)
        .map(|(edge, Distribution { count, mean, p50, p95, p99, p999, .. })| SizeBin {
            up_to_bytes: edge.min(largest),
            flows: count,
            mean,
            p50,
            p95,
            p99,
            p999,
        })
        .collect()
}

/// Returns the distribution of the values of each size bin; there is one bin more than edges.
pub fn binned(values: impl Iterator<Item = (u64, f64)>, edges: &[u64]) -> Vec<Distribution> {
    let mut bins: Vec<Vec<f64>> = vec![Vec::new(); edges.len() + 1];
    for (bytes, value) in values {
        bins[edges.partition_point(|&edge| edge < bytes)].push(value);
    }
    bins.iter_mut().map(|values| Distribution::of(values)).collect()
}

/// Returns the time a flow takes alone: its first packet through an idle network, then the rest of its bytes and
/// headers at the rate of the sender's ports together, then the last acknowledgement back. Returns `None` if there is
/// no path.
pub fn ideal_time(flow: &FinishedFlow, parameters: &IdealTimeParameters<'_>) -> Option<SimSpan> {
    let &IdealTimeParameters { topology, routes, mtu, overhead, .. } = parameters;
    let (source, destination) = (flow.source, flow.destination);
    let first = u16::try_from(flow.length.min(mtu.into())).expect("no more than the MTU");
    let there = idle_latency(topology, routes, source, destination, first + overhead)?;
    let back = idle_latency(topology, routes, destination, source, nic::ack_len(overhead))?;
    let bytes = bytes_on_wire(flow, parameters) - u64::from(first + overhead);
    Some(SimSpan::from(there + back) + at_line_rate(bytes, source, topology))
}

/// Returns the ideal time of a flow in ConWeave's simulator: the pair's base round trip, with a full payload but
/// no header on each hop there and no ACK back, and all bytes with headers at line rate. That counts
/// the first hop twice: for a flow of one packet through four hops of 100 Gb/s it is 0.6 % more than
/// [`ideal_time`], for one of 100 bytes 3 %. Returns `None` if there is no path.
pub fn base_round_trip_time(
    flow: &FinishedFlow,
    parameters: &IdealTimeParameters<'_>,
) -> Option<SimSpan> {
    let &IdealTimeParameters { topology, routes, mtu, .. } = parameters;
    let (source, destination) = (flow.source, flow.destination);
    let there = idle_latency(topology, routes, source, destination, mtu)?;
    let back = idle_latency(topology, routes, destination, source, 0)?;
    let bytes = bytes_on_wire(flow, parameters);
    Some(SimSpan::from(there + back) + at_line_rate(bytes, source, topology))
}

/// Returns the bytes of a flow with the headers of its packets.
fn bytes_on_wire(flow: &FinishedFlow, parameters: &IdealTimeParameters<'_>) -> u64 {
    let packets = u64::from(flow.length.div_ceil(parameters.mtu.into()).max(1));
    u64::from(flow.length) + packets * u64::from(parameters.overhead)
}

/// Returns the time that bytes take at the rate of a host's ports together.
fn at_line_rate(bytes: u64, host: NodeId, topology: &Topology) -> SimSpan {
    let picos = |pace: Pace| pace.span(bytes).as_picos();
    let together = topology.ports(host).iter();
    let together = together
        .map(|&port| 1.0 / as_f64(picos(Pace::new(topology.link(port).rate)).max(1)))
        .sum::<f64>();
    SimSpan::from_picos(rounded(1.0 / together))
}

#[expect(clippy::cast_precision_loss, reason = "a time of at most days in picoseconds")]
fn as_f64(picos: u64) -> f64 {
    picos as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
fn rounded(picos: f64) -> u64 {
    picos.round() as u64
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;
    use weft_topo::{Failures, NodeId};

    use super::*;

    fn flow(destination: u32, length: u32) -> FinishedFlow {
        let at = SimTime::from_picos;
        FinishedFlow {
            workload: 0,
            tag: 0,
            source: NodeId(0),
            destination: NodeId(destination),
            length,
            submitted: at(0),
            delivered: at(9_000_000),
            acknowledged: at(20_000_000),
        }
    }

    fn parameters<'a>(topology: &'a Topology, routes: &'a Routes) -> IdealTimeParameters<'a> {
        IdealTimeParameters {
            topology,
            routes,
            mtu: 1000,
            warm_up: SimTime::EPOCH,
            bins: &REFERENCE_BINS,
            ideal: IdealTime::Exact,
            overhead: 78,
        }
    }

    #[test]
    fn the_ideal_time_is_the_fabrics_latency_and_the_bytes_at_line_rate() {
        let topology = LeafSpine::default().build().unwrap();
        let routes = Routes::compute(&topology, &Failures::none()).unwrap();
        let parameters = parameters(&topology, &routes);
        let ideal = |flow| ideal_time(&flow, &parameters).unwrap().as_micros_f64();
        // Four hops of 1 us and 1,078 bytes each way, the way back with 78 bytes; 100 Gb/s.
        let one = ideal(flow(127, 1000));
        assert!((one - (8.0 + 4.0 * 0.08624 + 4.0 * 0.00624)).abs() < 0.002, "{one}");
        // Nine more packets of 1,078 bytes; within the rack there are half the hops.
        let ten = ideal(flow(127, 10_000));
        assert!((ten - one - 9.0 * 0.08624).abs() < 0.002, "{ten}");
        let near = ideal(flow(1, 1000));
        assert!((near - one / 2.0).abs() < 0.002, "{near}");
    }

    /// Computed by hand from ConWeave's scripts, in us: 4 hops of 1 us and 80 ns there and of 1 us back, then 1,048
    /// bytes a packet at 100 Gb/s.
    #[test]
    fn conweaves_simulator_counts_the_base_round_trip_and_then_every_byte() {
        let topology = LeafSpine::default().build().unwrap();
        let routes = Routes::compute(&topology, &Failures::none()).unwrap();
        let parameters = IdealTimeParameters { overhead: 48, ..parameters(&topology, &routes) };
        for (destination, length, want) in
            [(127, 100, 8.32 + 0.01184), (127, 10_000, 8.32 + 0.8384), (1, 1000, 4.16 + 0.08384)]
        {
            let ideal = base_round_trip_time(&flow(destination, length), &parameters);
            let ideal = ideal.unwrap().as_micros_f64();
            assert!((ideal - want).abs() < 0.001, "{ideal}, expected {want}");
        }
    }

    #[test]
    fn flows_are_binned_by_size_with_their_slowdowns() {
        let topology = LeafSpine::default().build().unwrap();
        let routes = Routes::compute(&topology, &Failures::none()).unwrap();
        let flows = [flow(127, 1000), flow(127, 1001), flow(127, 600_000)];
        let parameters = parameters(&topology, &routes);
        let report = FlowReport::new(4, &flows.each_ref(), &parameters);
        assert_eq!((report.started, report.finished, report.bytes), (4, 3, 602_001));
        let filled = report.by_size.iter().filter(|bin| bin.flows > 0);
        let bins: Vec<_> = filled.map(|bin| (bin.up_to_bytes, bin.flows)).collect();
        assert_eq!(bins, [(1_000, 1), (4_000, 1), (600_000, 1)]);
        assert_eq!(report.by_size.len(), 7, "a bin's place does not depend on what was sent");
        assert!((report.by_size[0].mean - 20.0 / 8.37).abs() < 0.01, "{:?}", report.by_size);
        assert_eq!(report.fct_us.max, 20.0);
        assert_eq!(report.delivery_us.max, 9.0);
        // The largest takes 59 us alone; no flow is faster than alone.
        assert_eq!(report.slowdown.min, 1.0);

        let late = FinishedFlow { submitted: SimTime::from_picos(2_000_000), ..flow(127, 5000) };
        let parameters =
            IdealTimeParameters { warm_up: SimTime::from_picos(1_000_000), ..parameters };
        let report = FlowReport::new(4, &[&flows[0], &late], &parameters);
        assert_eq!((report.finished, report.fct_us.count, report.fct_us.mean), (2, 1, 18.0));
        assert_eq!(report.by_size.iter().filter(|bin| bin.flows > 0).count(), 1);
    }
}
