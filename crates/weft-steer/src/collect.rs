//! Conversion of sFlow datagrams to the engine's reports and samples.
//!
//! sFlow has no counter of ECN marks. Weft's Linux agents add the count of the queue itself, in a record of Weft's own.
//! Elsewhere marks are estimated from the ECN bits of sampled packets: marked packets that cross a link, less marked packets
//! that arrived at the router that sends on it. Weft's agents sample packets in both directions; switches sample received
//! packets and name the output interface. Both are supported.
//!
//! | step | where |
//! | --- | --- |
//! | accepted agents, and the order of their datagrams | `collect/admission.rs` |
//! | the check of counters | `collect/counted.rs` |
//! | marks of a link, counted or estimated | `collect/marks.rs` |
//! | samples as flows on links | here |

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use weft_guard::{Refusals, Refused};
use weft_route::{End, Fabric, Flow, LinkId, PortReport, RouterId, Sample as EngineSample, Start};
use weft_topo::hash::FiveTuple6;
use weft_units::Instant;
use weft_wire::Ecn;
use weft_wire::sflow::{
    CounterSample, Datagram, FlowSample, Interface, QueueMarks, Sample, SampledPacket, SflowError,
};

use self::admission::{Admission, Position, Rejection};
use self::counted::LinkState;
use self::marks::Estimate;
pub use self::marks::MarksSource;
use crate::gnmi::PortCounters;
use crate::{Inventory, Method, RouterEntry};

mod admission;
mod counted;
mod marks;

/// An item of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectedItem {
    /// A port's counters.
    Report(PortReport),
    /// A packet of a flow.
    Sample(EngineSample),
}

/// The event counts of a collector since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorCounters {
    /// Number of datagrams of known agents.
    pub datagrams: u64,
    /// Number of datagrams missing from the sequence.
    pub lost: u64,
    /// Number of datagrams that were repeated, or arrived long after the next.
    pub late: u64,
    /// Number of datagrams or samples that are not valid sFlow.
    pub malformed: u64,
    /// Number of datagrams from known sources with an agent that no router has.
    pub unknown_agent: u64,
    /// Number of datagrams from sources that the agent's router does not list.
    pub refused: u64,
    /// Number of datagrams whose sequence numbers jumped, until a run of them shows that the agent restarted.
    pub jumped: u64,
    /// Number of port counters that decreased or grew beyond the link's capacity, and of queues' counts of marks that
    /// decreased or grew by more than the packets sent; they are not used.
    pub doubted: u64,
    /// Number of sampled packets.
    pub samples: u64,
    /// Number of sampled packets without a known flow or link: not IP, link-local, unknown interfaces.
    pub unplaced: u64,
    /// Number of port counters.
    pub reports: u64,
}

/// A parser of agents' datagrams, which knows the agents of an inventory and their source addresses.
#[derive(Debug, Default)]
pub struct Collector {
    admission: Admission,
    links: BTreeMap<LinkId, LinkState>,
    counters: CollectorCounters,
    refusals: Refusals,
    /// The agents of routers whose counters are read by gNMI. Those in their datagrams are ignored: they have no marks, and
    /// each count is a second reading of the same port.
    read_by_gnmi: BTreeSet<IpAddr>,
}

impl Collector {
    /// Creates a collector that knows the agents of these routers.
    pub fn new(inventory: &Inventory) -> Self {
        let mut collector = Self::default();
        collector.set_inventory(inventory);
        collector
    }

    /// Replaces the routers and discards the state of links. Event counts continue.
    pub fn set_inventory(&mut self, inventory: &Inventory) {
        self.admission.set(inventory);
        let has_gnmi = |router: &&RouterEntry| matches!(router.apply, Method::Gnmi(_));
        let routers = inventory.routers.iter().filter(has_gnmi);
        self.read_by_gnmi = routers.map(|router| router.agent).collect();
        self.links.clear();
    }

    /// Returns the event counts.
    pub const fn counters(&self) -> CollectorCounters {
        self.counters
    }

    /// Returns the recently refused sources, the newest first.
    pub fn refused(&self) -> impl Iterator<Item = Refused> + '_ {
        self.refusals.sources()
    }

    /// Returns the source of a link's marks; `None` if its port has not reported.
    pub fn marks_source(&self, link: LinkId) -> Option<MarksSource> {
        self.links.get(&link)?.marks.source()
    }

    /// Parses a datagram received from the address `source` and appends its items to `received`.
    pub fn ingest(
        &mut self,
        bytes: &[u8],
        source: IpAddr,
        now: Instant,
        fabric: &Fabric,
        received: &mut Vec<CollectedItem>,
    ) {
        // A socket of both families shows IPv4 sources as mapped IPv6 addresses.
        let source = source.to_canonical();
        if !self.admission.knows(source) {
            return self.refuse(source, None, now);
        }
        let Ok(datagram) = Datagram::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let agent = datagram.agent;
        let router = match self.admission.router(agent, source) {
            Ok(name) => fabric.find(name),
            Err(Rejection::UnknownAgent) => None,
            Err(_) => return self.refuse(source, Some(agent), now),
        };
        let Some(router) = router else {
            self.counters.unknown_agent += 1;
            return;
        };
        self.counters.datagrams += 1;
        match self.admission.position(agent, datagram.sub_agent, datagram.sequence) {
            Ok(Position::Next { lost }) => self.counters.lost += u64::from(lost),
            Ok(Position::Late) => return self.counters.late += 1,
            Ok(Position::Jumped) => return self.counters.jumped += 1,
            Err(_) => return self.refuse(source, Some(agent), now),
        }
        for sample in datagram.samples {
            let parsed = match sample {
                Ok(Sample::Flow(flow)) => {
                    received
                        .extend(self.flow(router, &flow, now, fabric).map(CollectedItem::Sample));
                    Ok(())
                }
                Ok(Sample::Counters(_)) if self.read_by_gnmi.contains(&agent) => Ok(()),
                Ok(Sample::Counters(counters)) => self
                    .report(router, &counters, now, fabric)
                    .map(|report| received.extend(report.map(CollectedItem::Report))),
                Ok(Sample::Other { .. }) => Ok(()),
                Err(error) => Err(error),
            };
            self.counters.malformed += u64::from(parsed.is_err());
        }
    }

    fn refuse(&mut self, source: IpAddr, agent: Option<IpAddr>, now: Instant) {
        self.counters.refused += 1;
        if let Some(datagrams) = self.refusals.note(source, now) {
            let agent = agent.map(tracing::field::display);
            tracing::warn!(
                %source,
                agent,
                datagrams,
                "sFlow refused: if a router's agent sends from there, add the address to the router's `sources`"
            );
        }
    }

    fn flow(
        &mut self,
        router: RouterId,
        sample: &FlowSample<'_>,
        now: Instant,
        fabric: &Fabric,
    ) -> Option<EngineSample> {
        self.counters.samples += 1;
        let link = |interface| match interface {
            Interface::Index(index) => fabric.link_of_ifindex(router, index),
            _ => None,
        };
        let input = link(sample.input).and_then(|link| fabric.reverse(link));
        let output = link(sample.output);
        let header = sample.header.as_ref();
        let packet = header.and_then(|it| Some((SampledPacket::parse(it)?, it.frame_len)));
        let placed = packet.and_then(|(packet, length)| Some((flow_of(&packet)?, packet, length)));
        let Some((flow, packet, length)) = placed else {
            self.counters.unplaced += 1;
            return None;
        };
        let marked =
            if packet.ecn == Ecn::CongestionExperienced { u64::from(sample.rate) } else { 0 };
        match (input, output) {
            (None, Some(link)) => self.estimate(link).crossed += marked,
            (Some(input), Some(link)) => {
                self.estimate(input).crossed += marked;
                self.estimate(link).entered += marked;
            }
            // The packet leaves by the link that the tables determine. It entered that link marked, so its mark is not
            // counted for that link.
            (Some(input), None) if marked > 0 => {
                let path = fabric.path_from(Start::Link(input), &flow);
                if let Some(&next) = path.links().get(1) {
                    self.estimate(next).entered += marked;
                }
            }
            (Some(_), None) => {}
            (None, None) => self.counters.unplaced += 1,
        }
        let rate = sample.rate;
        output.map(|link| EngineSample {
            at: now,
            link,
            input,
            flow,
            bytes: length,
            packets: 1,
            rate,
        })
    }

    fn estimate(&mut self, link: LinkId) -> &mut Estimate {
        &mut self.links.entry(link).or_default().marks.estimate
    }

    fn report(
        &mut self,
        router: RouterId,
        sample: &CounterSample<'_>,
        now: Instant,
        fabric: &Fabric,
    ) -> Result<Option<PortReport>, SflowError> {
        let Some(counters) = sample.interface()? else { return Ok(None) };
        let Some(link) = fabric.link_of_ifindex(router, counters.index) else { return Ok(None) };
        // Counters before a damaged record of marks are used.
        let marks = sample.queue_marks();
        self.counters.malformed += u64::from(marks.is_err());
        Ok(self.count(link, counters.out_octets, marks.unwrap_or_default(), now, fabric))
    }

    /// Accepts the counters that were read from a router's gNMI server, and appends the reports of its ports to `received`.
    pub(crate) fn ingest_counters(
        &mut self,
        router: &str,
        counters: &[PortCounters],
        now: Instant,
        fabric: &Fabric,
        received: &mut Vec<CollectedItem>,
    ) {
        let Some(router) = fabric.find(router) else { return };
        for PortCounters { port, bytes, marks } in counters {
            let link = fabric.link_of_port(router, port);
            let report = link.and_then(|link| self.count(link, *bytes, *marks, now, fabric));
            received.extend(report.map(CollectedItem::Report));
        }
    }

    /// Returns the report of a port that has sent `bytes`, of which `marks` is the count of its queues; `None` if it has no
    /// cable or cannot have sent so much.
    fn count(
        &mut self,
        link: LinkId,
        bytes: u64,
        marks: Option<QueueMarks>,
        now: Instant,
        fabric: &Fabric,
    ) -> Option<PortReport> {
        // A port without a cable cannot be congested.
        if fabric.to(link) == End::Nothing {
            return None;
        }
        let state = self.links.entry(link).or_default();
        if !state.accepts(now, bytes, fabric.rate(link)) {
            self.counters.doubted += 1;
            return None;
        }
        self.counters.reports += 1;
        let is_believed = state.marks.add(bytes, marks);
        self.counters.doubted += u64::from(!is_believed);
        Some(PortReport { link, at: now, bytes, marks: state.marks.total() })
    }
}

/// Returns the packet's flow; `None` for link-local packets, such as those of neighbours and routing protocols, because
/// no table determines their path.
fn flow_of(packet: &SampledPacket) -> Option<Flow> {
    if [packet.source, packet.destination].into_iter().any(is_of_a_link) {
        return None;
    }
    let from = SocketAddr::new(packet.source, packet.ports.0);
    let to = SocketAddr::new(packet.destination, packet.ports.1);
    Some(match Flow::new(from, to, packet.protocol)? {
        Flow::V6(tuple) => Flow::V6(FiveTuple6 { flow_label: packet.flow_label, ..tuple }),
        v4 @ Flow::V4(_) => v4,
    })
}

/// Returns `true` if packets from or to the address are not forwarded by destination: link-local and multicast.
const fn is_of_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.is_link_local() || it.is_multicast(),
        IpAddr::V6(it) => it.is_unicast_link_local() || it.is_multicast() || it.is_unspecified(),
    }
}

#[cfg(test)]
mod tests;
