//! sFlow datagrams as the engine's reports and samples.
//!
//! sFlow has no counter of ECN marks. They are estimated from the congestion bits of sampled packets: what
//! crosses a link marked, less what came marked to the router that sends on it. Linux agents of ours sample
//! both ways in; switches sample what comes in and say where it leaves: both are understood.
//!
//! | step | where |
//! | --- | --- |
//! | whose datagrams are believed, and in which order | `collect/admission.rs` |
//! | marks of a link, and counters that can be | `collect/counted.rs` |
//! | samples as flows on links | here |

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_guard::{Refusals, Refused};
use weft_route::{End, Fabric, Flow, LinkId, PortReport, RouterId, Sample as EngineSample, Start};
use weft_topo::hash::FiveTuple6;
use weft_units::Instant;
use weft_wire::Ecn;
use weft_wire::sflow::{
    CounterSample, Datagram, FlowSample, Interface, Sample, SampledPacket, SflowError,
};

use self::admission::{Admission, Place, Stranger};
use self::counted::{Counted, Marks};
use crate::Inventory;

mod admission;
mod counted;

/// What a datagram told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A port's counters.
    Report(PortReport),
    /// A packet of a flow.
    Sample(EngineSample),
}

/// What a collector has heard since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorCounters {
    /// Datagrams of known agents.
    pub datagrams: u64,
    /// Datagrams, by their numbers, that never came.
    pub lost: u64,
    /// Datagrams that came again, or long after the next.
    pub late: u64,
    /// Datagrams or samples that are not sFlow.
    pub malformed: u64,
    /// Datagrams of agents that no router has, from sources that some router lists.
    pub unknown_agent: u64,
    /// Datagrams from sources that the agent's router does not list.
    pub refused: u64,
    /// Datagrams whose numbers leapt, up to the one that shows that the agent began anew.
    pub jumped: u64,
    /// Counters of ports that went back or leapt beyond what the link carries; they are not used.
    pub doubted: u64,
    /// Sampled packets.
    pub samples: u64,
    /// Sampled packets of which no flow or link can be told: not IP, between neighbours, unknown interfaces.
    pub unplaced: u64,
    /// Counters of ports.
    pub reports: u64,
}

/// Understands agents' datagrams; knows which router is which agent, and where each sends from.
#[derive(Debug, Default)]
pub struct Collector {
    admission: Admission,
    counted: BTreeMap<LinkId, Counted>,
    counters: CollectorCounters,
    refusals: Refusals,
}

impl Collector {
    /// Returns a collector that knows the agents of these routers.
    pub fn new(inventory: &Inventory) -> Self {
        let mut collector = Self::default();
        collector.set_inventory(inventory);
        collector
    }

    /// Takes these routers in place of those before, and forgets what it knows of links. Counters go on.
    pub fn set_inventory(&mut self, inventory: &Inventory) {
        self.admission.set(inventory);
        self.counted.clear();
    }

    /// Returns what it has heard.
    pub const fn counters(&self) -> CollectorCounters {
        self.counters
    }

    /// Returns the sources that were refused last, the newest first.
    pub fn refused(&self) -> impl Iterator<Item = Refused> + '_ {
        self.refusals.sources()
    }

    /// Takes a datagram that came from the address `source`, and adds what it tells to `heard`.
    pub fn take(
        &mut self,
        bytes: &[u8],
        source: IpAddr,
        now: Instant,
        fabric: &Fabric,
        heard: &mut Vec<Heard>,
    ) {
        // A socket for both families shows an IPv4 source as an IPv6 one.
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
            Err(Stranger::UnknownAgent) => None,
            Err(_) => return self.refuse(source, Some(agent), now),
        };
        let Some(router) = router else {
            self.counters.unknown_agent += 1;
            return;
        };
        self.counters.datagrams += 1;
        match self.admission.place(agent, datagram.sub_agent, datagram.sequence) {
            Ok(Place::Next { lost }) => self.counters.lost += u64::from(lost),
            Ok(Place::Late) => return self.counters.late += 1,
            Ok(Place::Jumped) => return self.counters.jumped += 1,
            Err(_) => return self.refuse(source, Some(agent), now),
        }
        for sample in datagram.samples {
            let understood = match sample {
                Ok(Sample::Flow(flow)) => {
                    heard.extend(self.flow(router, &flow, now, fabric).map(Heard::Sample));
                    Ok(())
                }
                Ok(Sample::Counters(counters)) => self
                    .report(router, &counters, now, fabric)
                    .map(|report| heard.extend(report.map(Heard::Report))),
                Ok(Sample::Other { .. }) => Ok(()),
                Err(error) => Err(error),
            };
            self.counters.malformed += u64::from(understood.is_err());
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
            (None, Some(link)) => self.mark(link).crossed += marked,
            (Some(input), Some(link)) => {
                self.mark(input).crossed += marked;
                self.mark(link).entered += marked;
            }
            // It leaves where the tables say, and is sampled there again.
            (Some(input), None) if marked > 0 => {
                let path = fabric.path_from(Start::Link(input), &flow);
                if let Some(&next) = path.links().get(1) {
                    self.mark(next).entered += marked;
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

    fn mark(&mut self, link: LinkId) -> &mut Marks {
        &mut self.counted.entry(link).or_default().marks
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
        // Where nothing is cabled, nothing collides.
        if fabric.to(link) == End::Nothing {
            return Ok(None);
        }
        let (bytes, counted) = (counters.out_octets, self.counted.entry(link).or_default());
        if !counted.believes(now, bytes, fabric.rate(link)) {
            self.counters.doubted += 1;
            return Ok(None);
        }
        self.counters.reports += 1;
        Ok(Some(counted.report(link, now, bytes)))
    }
}

/// The packet's flow; none for what stays on its link, where neighbours and routing protocols speak: no table
/// tells its way.
fn flow_of(packet: &SampledPacket) -> Option<Flow> {
    if [packet.source, packet.destination].into_iter().any(is_of_a_link) {
        return None;
    }
    let (from, to) = ((packet.source, packet.ports.0), (packet.destination, packet.ports.1));
    Some(match Flow::new(from, to, packet.protocol)? {
        Flow::V6(tuple) => Flow::V6(FiveTuple6 { flow_label: packet.flow_label, ..tuple }),
        v4 @ Flow::V4(_) => v4,
    })
}

/// Whether packets from or to it are not forwarded by destination: link-local, and multicast.
const fn is_of_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.is_link_local() || it.is_multicast(),
        IpAddr::V6(it) => it.is_unicast_link_local() || it.is_multicast() || it.is_unspecified(),
    }
}

#[cfg(test)]
mod tests;
