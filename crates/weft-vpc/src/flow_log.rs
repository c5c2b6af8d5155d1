//! A port's flow log: its frames by addresses, protocol and ports, with sums for each interval, as network operators
//! and auditors keep them.
//!
//! The number of flows in an interval is limited: frames of further ones are counted, not recorded.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::net::IpAddr;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use siphasher::sip::SipHasher13;
use weft_units::{Duration, Instant};

use crate::{Action, Direction, Frame, TcpFlags, Transport, protocol};

/// The settings of flow logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLogConfig {
    /// The time over which a record sums.
    pub interval: Duration,
    /// Largest number of flows of a port in an interval.
    pub max_flows: usize,
    /// A random number, without which no sender can choose flows that lengthen the table's chains.
    pub secret: (u64, u64),
}

/// A flow of a port: packets in one direction that have all of this in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The direction, seen from the tenant.
    pub direction: Direction,
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The protocol of the IP packet.
    pub protocol: u8,
    /// The ports of TCP or UDP, sender's first; zero for others, and for fragments after the first.
    pub ports: (u16, u16),
    /// Type and code of ICMP; zero for others.
    pub icmp: (u8, u8),
    /// The decision of access lists and security groups.
    pub action: Action,
}

/// The frames of a flow in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// The flow.
    pub flow: Flow,
    /// Number of frames; one that the tenant left to be cut counts as those that it is cut into.
    pub frames: u64,
    /// Bytes of their IP packets; of a frame that is cut the headers count once.
    pub bytes: u64,
    /// The flags that any of its TCP segments had.
    pub tcp_flags: TcpFlags,
    /// The time of the first frame.
    pub first_at: Instant,
    /// The time of the last frame.
    pub last_at: Instant,
}

/// The flow log of one port.
#[derive(Debug)]
pub(crate) struct FlowLog {
    config: FlowLogConfig,
    flows: HashTable<FlowRecord>,
    /// The time of the interval's first frame.
    began: Option<Instant>,
    /// The records of an interval that has ended.
    ended: Vec<FlowRecord>,
    unrecorded: u64,
}

impl FlowLog {
    pub(crate) const fn new(config: FlowLogConfig) -> Self {
        Self { config, flows: HashTable::new(), began: None, ended: Vec::new(), unrecorded: 0 }
    }

    /// Returns the number of frames that were not recorded for lack of room.
    pub(crate) const fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// Records a frame that counts as `frames` ones. Frames without an IP packet are not recorded.
    pub(crate) fn record(
        &mut self,
        direction: Direction,
        frame: &Frame,
        frames: u64,
        action: Action,
        now: Instant,
    ) {
        let Some((flow, flags, bytes)) = Flow::of(direction, frame, action) else { return };
        self.began.get_or_insert(now);
        let secret = self.config.secret;
        let is_full = self.flows.len() >= self.config.max_flows;
        let same = |known: &FlowRecord| known.flow == flow;
        match self.flows.entry(flow.hash(secret), same, |known| known.flow.hash(secret)) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.frames += frames;
                known.bytes += bytes;
                known.tcp_flags.0 |= flags.0;
                known.last_at = now;
            }
            Entry::Vacant(_) if is_full => self.unrecorded += frames,
            Entry::Vacant(place) => {
                let (first_at, last_at, tcp_flags) = (now, now, flags);
                place.insert(FlowRecord { flow, frames, bytes, tcp_flags, first_at, last_at });
            }
        }
    }

    /// Sets the limits of the present interval.
    pub(crate) fn set_config(&mut self, config: FlowLogConfig) {
        // With another secret no present flow would be found.
        self.config = FlowLogConfig { secret: self.config.secret, ..config };
    }

    /// Ends the interval if it has lasted for its time and no record of the former one is left, which would be two
    /// intervals in memory.
    pub(crate) fn end_if_due(&mut self, now: Instant) {
        let is_over = self.began.is_some_and(|began| now.since(began) >= self.config.interval);
        if self.ended.is_empty() && is_over {
            self.end();
        }
    }

    /// Ends the interval. The next one begins with its first frame.
    pub(crate) fn end(&mut self) {
        self.ended.extend(self.flows.drain());
        self.began = None;
    }

    /// Returns up to `limit` records of intervals that have ended, and forgets them.
    pub(crate) fn take(&mut self, limit: usize) -> impl Iterator<Item = FlowRecord> + use<'_> {
        let kept = self.ended.len().saturating_sub(limit);
        self.ended.drain(kept..)
    }
}

impl Flow {
    /// Returns the flow of a frame, its TCP flags and the bytes of its IP packet; `None` if it carries none.
    fn of(direction: Direction, frame: &Frame, action: Action) -> Option<(Self, TcpFlags, u64)> {
        let ip = frame.ip()?;
        let (mut ports, mut icmp, mut flags) = ((0, 0), (0, 0), TcpFlags::default());
        match ip.transport {
            Transport::Tcp(tcp) => (ports, flags) = ((tcp.source, tcp.destination), tcp.flags),
            Transport::Udp(udp) => ports = (udp.source, udp.destination),
            Transport::Icmp(message) => icmp = (message.kind, message.code),
            Transport::LaterFragment | Transport::Other => {}
        }
        let (source, destination, protocol) = (ip.source, ip.destination, ip.protocol);
        let flow = Self { direction, source, destination, protocol, ports, icmp, action };
        let headers = ip.transport_offset.saturating_sub(frame.network_offset);
        Some((flow, flags, u64::from(headers) + u64::from(ip.transport_len)))
    }

    /// Returns `true` for ICMP of either version.
    pub const fn is_icmp(&self) -> bool {
        matches!(self.protocol, protocol::ICMP | protocol::ICMPV6)
    }

    fn hash(&self, (k0, k1): (u64, u64)) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(k0, k1);
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::example::{self, packet, parsed, tcp, udp};

    const CONFIG: FlowLogConfig =
        FlowLogConfig { interval: Duration::from_secs(10), max_flows: 3, secret: (1, 2) };

    fn at(millis: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(millis)
    }

    fn segment(flags: TcpFlags, payload: &[u8]) -> Frame {
        let segment = tcp((40_000, 80), flags, &[], payload);
        parsed(&packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment))
    }

    fn taken(log: &mut FlowLog, now: Instant) -> Vec<FlowRecord> {
        log.end_if_due(now);
        log.take(100).collect()
    }

    #[test]
    fn the_frames_of_a_flow_are_one_record_of_an_interval() {
        let mut log = FlowLog::new(CONFIG);
        let (egress, allow) = (Direction::Egress, Action::Allow);
        log.record(egress, &segment(TcpFlags::SYN, &[]), 1, allow, at(100));
        log.record(egress, &segment(TcpFlags::ACK, &[7; 3000]), 3, allow, at(900));
        assert_eq!(taken(&mut log, at(10_099)), []);
        let flow = Flow {
            direction: egress,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: protocol::TCP,
            ports: (40_000, 80),
            icmp: (0, 0),
            action: allow,
        };
        let tcp_flags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
        // Headers of IPv4 and TCP, 40 bytes, twice.
        let (first_at, last_at) = (at(100), at(900));
        let record = FlowRecord { flow, frames: 4, bytes: 3_080, tcp_flags, first_at, last_at };
        assert_eq!(taken(&mut log, at(10_100)), [record]);
        // The next interval begins with its first frame, and has its own sums.
        log.record(egress, &segment(TcpFlags::ACK, &[]), 1, allow, at(12_000));
        assert_eq!(taken(&mut log, at(21_999)), []);
        let next = taken(&mut log, at(22_000));
        assert_eq!((next.len(), next[0].frames, next[0].bytes), (1, 1, 40));
    }

    #[test]
    fn direction_and_decision_and_each_header_are_part_of_a_flow() {
        let mut log = FlowLog::new(FlowLogConfig { max_flows: 100, ..CONFIG });
        let echo = example::icmp(8, 0, 5, &[1; 8]);
        let frames = [
            packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, &[])),
            packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 3, &[])),
            packet("10.0.0.1", "10.0.0.3", protocol::UDP, &udp(1, 2, &[])),
            packet("fd00::1", "fd00::2", protocol::UDP, &udp(1, 2, &[])),
            packet("10.0.0.1", "10.0.0.2", protocol::ICMP, &echo),
        ];
        for frame in &frames {
            for direction in [Direction::Ingress, Direction::Egress] {
                for action in [Action::Allow, Action::Deny] {
                    log.record(direction, &parsed(frame), 1, action, at(1));
                }
            }
        }
        let records = taken(&mut log, at(10_001));
        assert_eq!(records.len(), 20);
        assert!(records.iter().all(|record| record.frames == 1));
        let icmp: Vec<_> = records.iter().filter(|it| it.flow.is_icmp()).collect();
        assert!(icmp.len() == 4 && icmp.iter().all(|it| it.flow.icmp == (8, 0)));
    }

    #[test]
    fn frames_beyond_the_limit_are_counted_and_the_known_flows_go_on() {
        let mut log = FlowLog::new(CONFIG);
        let frame =
            |port| parsed(&packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, port, &[])));
        for port in [1, 2, 3, 4, 5, 1] {
            log.record(Direction::Ingress, &frame(port), 2, Action::Allow, at(1));
        }
        assert_eq!(log.unrecorded(), 4);
        let frames: Vec<u64> = taken(&mut log, at(10_001)).iter().map(|it| it.frames).collect();
        assert_eq!((frames.len(), frames.iter().sum::<u64>()), (3, 8));
        log.record(Direction::Ingress, &frame(5), 1, Action::Allow, at(10_001));
        assert_eq!(taken(&mut log, at(20_001)).len(), 1, "there is room again");
    }

    #[test]
    fn records_are_taken_in_parts_and_the_next_interval_waits_for_them() {
        let mut log = FlowLog::new(CONFIG);
        let frame =
            |port| parsed(&packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, port, &[])));
        for port in [1, 2, 3] {
            log.record(Direction::Ingress, &frame(port), 1, Action::Allow, at(1));
        }
        log.end_if_due(at(10_001));
        assert_eq!(log.take(2).count(), 2);
        log.record(Direction::Ingress, &frame(9), 1, Action::Allow, at(11_000));
        log.end_if_due(at(30_000));
        assert_eq!(log.take(2).count(), 1);
        log.end_if_due(at(30_000));
        assert_eq!(log.take(2).map(|it| it.flow.ports.1).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn frames_without_an_ip_packet_are_not_recorded() {
        let mut log = FlowLog::new(CONFIG);
        let frame = parsed(&example::ethernet(weft_wire::EtherType(0x88cc), &[0; 46]));
        log.record(Direction::Egress, &frame, 1, Action::Allow, at(1));
        assert_eq!(taken(&mut log, at(10_001)), []);
    }
}
