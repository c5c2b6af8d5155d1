//! The flows that fill a port, ranked by mean rate from packet samples (Astral, section 4.2, step 1).
//!
//! One packet in `rate` is sampled. A flow with `c` sampled packets sent about the sum of their lengths times `rate`;
//! the error is at most 196·√(1/c) percent in 19 cases of 20 (Phaal and Panchen, *Packet Sampling Basics*). By default
//! a flow is a suspect if it was sampled in at least two of six windows.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use weft_topo::hash::{FiveTuple, FiveTuple6};
use weft_units::{Duration, Instant};

use crate::fabric::{End, Fabric, LinkId};
use crate::flow::Flow;
use crate::path::Start;
use crate::telemetry::TelemetryError;

/// Sampled packets of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time at which they were sampled.
    pub at: Instant,
    /// The link on which they were sent.
    pub link: LinkId,
    /// The link on which they were received, if known.
    pub input: Option<LinkId>,
    /// The flow of the packets.
    pub flow: Flow,
    /// Total bytes of the packets.
    pub bytes: u32,
    /// Number of packets.
    pub packets: u32,
    /// The sampling rate: one packet in this many is sampled.
    pub rate: u32,
}

/// The rules by which flows become suspects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SuspectRules {
    /// Maximum number of suspects of a port.
    pub top: usize,
    /// Number of recent windows that are examined.
    pub of_windows: u64,
    /// Minimum number of these windows in which a suspect was sampled.
    pub in_windows: usize,
    /// Maximum number of flows that are kept for a port.
    #[serde(alias = "most_flows")]
    pub max_flows: usize,
}

impl Default for SuspectRules {
    /// Two of six windows, as in the paper; the paper leaves N open.
    fn default() -> Self {
        Self { top: 16, of_windows: 6, in_windows: 2, max_flows: 1 << 16 }
    }
}

/// A flow with its estimated rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The flow.
    pub flow: Flow,
    /// The place from which the flow's path is known.
    pub start: Start,
    /// Bits per second, the mean over the windows since the flow was first sampled.
    pub rate: u64,
    /// Bits per second while the flow is sent: more than its mean if its job sends in known bursts.
    pub peak: u64,
    /// Maximum error of the rate, in percent.
    pub error_percent: u32,
    /// Number of windows in which the flow was sampled.
    pub windows: usize,
}

/// The samples of a flow at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// The link on which the flow was received.
    pub(crate) input: Option<LinkId>,
    /// Window index, packets sampled, estimated bytes.
    seen: VecDeque<(u64, u64, u64)>,
}

/// The samples of all ports.
#[derive(Clone, Debug)]
pub struct Suspects {
    rules: SuspectRules,
    window: Duration,
    ports: BTreeMap<LinkId, Tallies>,
}

/// A port's flows, ordered by destination because moves look them up by destination.
pub(crate) type Tallies = BTreeMap<(IpAddr, Flow), Tally>;

impl Suspects {
    /// Creates an empty collection of samples.
    pub const fn new(rules: SuspectRules, window: Duration) -> Self {
        Self { rules, window, ports: BTreeMap::new() }
    }

    /// Counts sampled packets.
    ///
    /// # Errors
    /// Returns a [`TelemetryError`] if the sample is not counted.
    pub fn record(&mut self, sample: Sample, fabric: &Fabric) -> Result<(), TelemetryError> {
        let Sample { link, input, flow, bytes, packets, rate, .. } = sample;
        if link.index() >= fabric.links() || input.is_some_and(|it| it.index() >= fabric.links()) {
            return Err(TelemetryError::NoSuchLink(link.0));
        }
        if bytes == 0 || rate == 0 || packets == 0 {
            return Err(TelemetryError::Empty { bytes, rate });
        }
        let Some(start) = start(fabric, link, input) else { return Err(TelemetryError::OffPath) };
        let index = sample.at.as_nanos() / self.window.as_nanos().max(1);
        let flows = self.ports.entry(link).or_default();
        if let Some(tally) = flows.get_mut(&(flow.dst(), flow)).filter(|tally| tally.input == input)
        {
            tally.add(index, packets, u64::from(bytes) * u64::from(rate), self.rules.of_windows);
            return Ok(());
        }
        // A path is looked up once per flow, input link and port. Later samples of a tally are not checked against
        // tables that have changed since; `top` and `to_destination` look the path up again.
        let path = fabric.path_from(start, &flow);
        if !path.links().contains(&link) {
            return Err(TelemetryError::OffPath);
        }
        if flows.len() >= self.rules.max_flows {
            return Err(TelemetryError::TooManyFlows(self.rules.max_flows));
        }
        let mut tally = Tally { input, seen: VecDeque::new() };
        tally.add(index, packets, u64::from(bytes) * u64::from(rate), self.rules.of_windows);
        flows.insert((flow.dst(), flow), tally);
        Ok(())
    }

    /// Returns the heaviest flows of a port in the windows up to `index`, the heaviest first.
    pub fn top(&self, link: LinkId, index: u64, fabric: &Fabric) -> Vec<Suspect> {
        let capacity = fabric.rate(link).as_bps();
        let of_port = self.ports.get(&link).into_iter().flatten();
        let flows = self.flows(of_port, link, index, fabric);
        let mut suspects: Vec<Suspect> = flows
            .filter(|suspect| suspect.windows >= self.rules.in_windows)
            // A rate above twice the link's capacity means false samples.
            .filter(|suspect| suspect.rate <= capacity.saturating_mul(2))
            .collect();
        suspects.sort_unstable_by_key(|suspect| (core::cmp::Reverse(suspect.rate), suspect.flow));
        // Some flows may have been moved away since they were sampled.
        suspects.into_iter().filter(|it| crosses(fabric, it, link)).take(self.rules.top).collect()
    }

    /// Returns every flow to a destination that was sampled at these ports.
    pub fn to_destination(
        &self,
        links: impl Iterator<Item = LinkId>,
        destination: IpAddr,
        index: u64,
        fabric: &Fabric,
    ) -> Vec<Suspect> {
        let of_link = |link| {
            let tallies =
                self.ports.get(&link).into_iter().flat_map(move |it| flows_to(it, destination));
            self.flows(tallies, link, index, fabric).filter(move |it| crosses(fabric, it, link))
        };
        let mut flows: Vec<_> = links.flat_map(of_link).collect();
        flows.sort_unstable_by_key(|suspect| (suspect.flow, core::cmp::Reverse(suspect.rate)));
        flows.dedup_by_key(|suspect| suspect.flow);
        flows
    }

    fn flows<'a>(
        &'a self,
        flows: impl Iterator<Item = (&'a (IpAddr, Flow), &'a Tally)> + 'a,
        link: LinkId,
        index: u64,
        fabric: &'a Fabric,
    ) -> impl Iterator<Item = Suspect> + 'a {
        let oldest = (index + 1).saturating_sub(self.rules.of_windows);
        flows.filter_map(move |(&(_, flow), tally)| {
            let seen = tally.seen.iter().filter(|(at, _, _)| (oldest..=index).contains(at));
            let (mut first, mut windows, mut packets, mut bytes) = (index, 0, 0u64, 0u64);
            for &(at, sampled, estimated) in seen {
                first = first.min(at);
                windows += 1;
                packets = packets.saturating_add(sampled);
                bytes = bytes.saturating_add(estimated);
            }
            let start = start(fabric, link, tally.input)?;
            let nanos = (index + 1 - first) * self.window.as_nanos();
            let bits = u128::from(bytes) * 8_000_000_000;
            let rate = u64::try_from(bits / u128::from(nanos.max(1))).unwrap_or(u64::MAX);
            let error_percent = error_percent(packets);
            (windows > 0).then_some(Suspect {
                flow,
                start,
                rate,
                peak: rate,
                error_percent,
                windows,
            })
        })
    }

    /// Returns the last window in which a flow to a destination was sampled at these ports.
    pub(crate) fn last_seen(
        &self,
        links: impl Iterator<Item = LinkId>,
        destination: IpAddr,
    ) -> Option<u64> {
        let tallies = links.filter_map(|link| self.ports.get(&link));
        let tallies = tallies.flat_map(|flows| flows_to(flows, destination));
        tallies.filter_map(|(_, tally)| tally.seen.back().map(|&(at, _, _)| at)).max()
    }

    /// Returns the last window in which a flow was sampled at a port.
    pub(crate) fn last_sampled(&self, link: LinkId, flow: Flow) -> Option<u64> {
        let tally = self.ports.get(&link)?.get(&(flow.dst(), flow))?;
        tally.seen.back().map(|&(at, _, _)| at)
    }

    /// Returns `true` if no flow was sampled at these ports in the recent windows.
    pub(crate) fn is_silent(&self, mut links: impl Iterator<Item = LinkId>) -> bool {
        !links.any(|link| self.ports.contains_key(&link))
    }

    /// Discards samples that are older than the examined windows.
    pub fn expire(&mut self, index: u64) {
        let oldest = (index + 1).saturating_sub(self.rules.of_windows);
        for flows in self.ports.values_mut() {
            flows.retain(|_, tally| tally.seen.back().is_some_and(|&(at, _, _)| at >= oldest));
        }
        self.ports.retain(|_, flows| !flows.is_empty());
    }

    pub(crate) const fn tallies(&self) -> &BTreeMap<LinkId, Tallies> {
        &self.ports
    }

    pub(crate) fn restore(&mut self, link: LinkId, flow: Flow, tally: Tally) {
        self.ports.entry(link).or_default().insert((flow.dst(), flow), tally);
    }
}

impl Tally {
    /// Returns the indices of the windows with samples.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        self.seen.iter().map(|&(at, _, _)| at)
    }

    fn add(&mut self, index: u64, packets: u32, bytes: u64, max_windows: u64) {
        let packets = u64::from(packets);
        match self.seen.iter_mut().rev().find(|(at, _, _)| *at == index) {
            Some((_, all, sum)) => {
                *all = all.saturating_add(packets);
                *sum = sum.saturating_add(bytes);
            }
            None => self.seen.push_back((index, packets, bytes)),
        }
        while self.seen.len() as u64 > max_windows {
            self.seen.pop_front();
        }
    }
}

/// Returns a port's flows to one destination.
fn flows_to(
    flows: &Tallies,
    destination: IpAddr,
) -> impl Iterator<Item = (&(IpAddr, Flow), &Tally)> {
    let v4 = FiveTuple { src: 0, dst: 0, src_port: 0, dst_port: 0, protocol: 0 };
    let none = Ipv6Addr::from_bits(u128::MAX);
    let v6 = FiveTuple6 {
        src: none,
        dst: none,
        flow_label: u32::MAX,
        src_port: u16::MAX,
        dst_port: u16::MAX,
        protocol: u8::MAX,
    };
    flows.range((destination, Flow::V4(v4))..=(destination, Flow::V6(v6)))
}

/// Returns `true` if a flow still crosses the port at which it was sampled.
fn crosses(fabric: &Fabric, flow: &Suspect, link: LinkId) -> bool {
    fabric.path_from(flow.start, &flow.flow).links().contains(&link)
}

/// Returns the place from which a flow's path is known: the input link, if it leads to the port's router.
fn start(fabric: &Fabric, link: LinkId, input: Option<LinkId>) -> Option<Start> {
    let End::Router(router) = fabric.from(link) else { return None };
    match input {
        None => Some(Start::Router(router)),
        Some(input) if fabric.to(input) == End::Router(router) => Some(Start::Link(input)),
        Some(_) => None,
    }
}

/// Returns 196·√(1/c) in percent, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 196")]
#[expect(clippy::cast_precision_loss, reason = "a count of samples is far below 2^52")]
fn error_percent(packets: u64) -> u32 {
    libm::ceil(196.0 / libm::sqrt(packets.max(1) as f64)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Installed;

    #[test]
    fn the_error_is_six_percent_after_1370_samples() {
        // 180 Gb/s of 4 KB packets at 1 in 40,000 are 137 samples per second, 1,370 in ten seconds.
        assert_eq!(error_percent(1370), 6);
        assert_eq!(error_percent(1), 196);
    }

    #[test]
    fn heavy_flows_of_two_windows_are_suspects_and_samples_off_the_path_are_refused() {
        let text = include_str!("../tests/golden/installed/two-by-two.toml");
        let fabric = Fabric::new(toml::from_str::<Installed>(text).unwrap()).unwrap();
        let host = fabric.links_of_host(fabric.host([10, 1, 0, 2]).unwrap())[0];
        let mut suspects = Suspects::new(SuspectRules::default(), Duration::from_secs(10));
        let flow =
            |port: u16| -> Flow { alloc::format!("10.1.0.2:{port}>10.2.0.2").parse().unwrap() };
        let up = |flow: Flow| fabric.path(&flow).links()[1];
        let first = flow(49_152);
        let same = (49_153..).map(flow).find(|&it| up(it) == up(first)).unwrap();
        let other = (49_153..).map(flow).find(|&it| up(it) != up(first)).unwrap();
        let mut sample = |flow, seconds, packets| {
            let at = Instant::EPOCH + Duration::from_secs(seconds);
            let (link, input) = (up(first), Some(host));
            let bytes = packets * 1000;
            suspects.record(Sample { at, link, input, flow, bytes, packets, rate: 1000 }, &fabric)
        };
        assert_eq!(sample(other, 1, 1), Err(TelemetryError::OffPath));
        for (flow, seconds, packets) in
            [(first, 1, 100), (first, 11, 100), (same, 1, 50), (same, 2, 500)]
        {
            sample(flow, seconds, packets).unwrap();
        }
        let top = suspects.top(up(first), 1, &fabric);
        // 200 packets of 1,000 bytes stand for 200 MB in 20 s.
        assert_eq!(top.len(), 1, "{top:?}");
        assert_eq!((top[0].flow, top[0].rate, top[0].windows), (first, 80_000_000, 2));
        assert_eq!(top[0].error_percent, 14);
        let links = fabric.links_of(fabric.find("leaf-0").unwrap());
        assert_eq!(suspects.to_destination(links, [10, 2, 0, 2].into(), 1, &fabric).len(), 2);
        suspects.expire(6);
        assert!(suspects.top(up(first), 6, &fabric).is_empty());
    }
}
