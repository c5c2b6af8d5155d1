//! sFlow datagrams as the engine's reports and samples.
//!
//! sFlow has no counter of ECN marks. They are estimated from the congestion bits of sampled packets: what
//! crosses a link marked, less what came marked to the router that sends on it. Linux agents of ours sample
//! both ways in; switches sample what comes in and say where it leaves: both are understood.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_route::{End, Fabric, Flow, LinkId, PortReport, RouterId, Sample as EngineSample, Start};
use weft_topo::hash::FiveTuple6;
use weft_units::Instant;
use weft_wire::Ecn;
use weft_wire::sflow::{
    CounterSample, Datagram, FlowSample, Interface, Sample, SampledPacket, SflowError,
};

use crate::Inventory;

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
    /// Datagrams of agents that no router has.
    pub unknown_agent: u64,
    /// Sampled packets.
    pub samples: u64,
    /// Sampled packets of which no flow or link can be told: not IP, between neighbours, unknown interfaces.
    pub unplaced: u64,
    /// Counters of ports.
    pub reports: u64,
}

/// Understands agents' datagrams; knows which router is which agent.
#[derive(Debug, Default)]
pub struct Collector {
    agents: BTreeMap<IpAddr, String>,
    /// By agent and sub-agent, the last datagram's number.
    sequences: BTreeMap<(IpAddr, u32), u32>,
    marks: BTreeMap<LinkId, Marks>,
    counters: CollectorCounters,
}

/// Marked packets of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// That crossed it since the last report.
    crossed: u64,
    /// That had come marked to the router that sends on it, since the last report.
    entered: u64,
    /// More that came than left, by the luck of the draw; the next report's are held against it once.
    owed: u64,
    /// Marked here since the beginning.
    total: u64,
}

/// A gap in the numbers beyond which an agent has begun anew.
const RESTARTED: u32 = 1 << 16;

impl Collector {
    /// Knows the agents of these routers.
    pub fn new(inventory: &Inventory) -> Self {
        let agents = inventory.routers.iter().map(|it| (it.agent, it.name.clone())).collect();
        Self { agents, ..Self::default() }
    }

    /// What it has heard.
    pub const fn counters(&self) -> CollectorCounters {
        self.counters
    }

    /// Takes a datagram and adds what it tells to `heard`.
    pub fn take(&mut self, bytes: &[u8], now: Instant, fabric: &Fabric, heard: &mut Vec<Heard>) {
        let Ok(datagram) = Datagram::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let router = self.agents.get(&datagram.agent).and_then(|name| fabric.find(name));
        let Some(router) = router else {
            self.counters.unknown_agent += 1;
            return;
        };
        self.counters.datagrams += 1;
        if !self.is_next(&datagram) {
            self.counters.late += 1;
            return;
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

    /// Whether it is newer than the last of its sub-agent; counts those between.
    fn is_next(&mut self, datagram: &Datagram<'_>) -> bool {
        let key = (datagram.agent, datagram.sub_agent);
        let Some(last) = self.sequences.insert(key, datagram.sequence) else { return true };
        let ahead = datagram.sequence.wrapping_sub(last);
        if (1..RESTARTED).contains(&ahead) {
            self.counters.lost += u64::from(ahead - 1);
            return true;
        }
        let behind = last.wrapping_sub(datagram.sequence);
        if behind < RESTARTED && datagram.sequence > 1 {
            self.sequences.insert(key, last);
            return false;
        }
        true
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
        self.marks.entry(link).or_default()
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
        self.counters.reports += 1;
        let marks = self.mark(link).settle();
        Ok(Some(PortReport { link, at: now, bytes: counters.out_octets, marks }))
    }
}

impl Marks {
    /// Counts what was seen since the last report.
    fn settle(&mut self) -> u64 {
        let against = self.entered + self.owed;
        self.total += self.crossed.saturating_sub(against);
        self.owed = self.entered.saturating_sub(self.crossed);
        (self.crossed, self.entered) = (0, 0);
        self.total
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
