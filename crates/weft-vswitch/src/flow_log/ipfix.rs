//! Records of flows as messages of IPFIX (RFC 7011) with two templates, one for each version of IP. All elements are
//! those of IANA's registry.
//!
//! Templates begin each batch and are repeated every few messages: over UDP a collector may have missed them, or started
//! since (RFC 7011, section 8.4).

use std::net::IpAddr;

use weft_units::Instant;
use weft_vpc::{Action, Direction, FlowRecord, PortFlow, PortId};

/// A message for one datagram.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// Number of its data records.
    pub(super) records: u32,
    /// The number of the set that its end belongs to, and where that begins.
    set: (u16, usize),
}

/// The state of an exporter: its messages are numbered by the records before them.
#[derive(Debug)]
pub(super) struct Encoder {
    sequence: u32,
    max_len: usize,
}

/// The version of the protocol.
const VERSION: u16 = 10;
/// Bytes of a message's header.
const HEADER: usize = 16;
/// Bytes of a set's header.
const SET_HEADER: usize = 4;
/// The number of the set that holds templates.
const TEMPLATE_SET: u16 = 2;
/// Number of messages from one with templates to the next.
const TEMPLATES_EVERY: usize = 16;
/// The observation domain: a host is one.
const DOMAIN: u32 = 1;
/// Bytes of headers of IPv6 and UDP around a message.
const AROUND: u16 = 48;
/// Smallest length of a message with templates and one record of the longest name.
const MIN_LEN: usize = 600;
/// The length that stands for a variable one.
const VARIABLE: u16 = 65_535;
/// Longest name of a port with a length of one byte (RFC 7011, section 7).
const MAX_NAME: usize = 254;

/// The elements of a record with their lengths, in order; `addresses` and `icmp` differ between versions of IP.
const fn template(addresses: [(u16, u16); 2], icmp: u16) -> [(u16, u16); 15] {
    [
        (152, 8), // flowStartMilliseconds
        (153, 8), // flowEndMilliseconds
        addresses[0],
        addresses[1],
        (4, 1),  // protocolIdentifier
        (7, 2),  // sourceTransportPort
        (11, 2), // destinationTransportPort
        (icmp, 2),
        (6, 2),         // tcpControlBits
        (2, 8),         // packetDeltaCount
        (1, 8),         // octetDeltaCount
        (351, 8),       // layer2SegmentId
        (61, 1),        // flowDirection
        (89, 1),        // forwardingStatus
        (82, VARIABLE), // interfaceName
    ]
}

/// The templates, each with its number: IPv4 (sourceIPv4Address, destinationIPv4Address, icmpTypeCodeIPv4) and IPv6.
const TEMPLATES: [(u16, [(u16, u16); 15]); 2] =
    [(256, template([(8, 4), (12, 4)], 32)), (257, template([(27, 16), (28, 16)], 139))];

/// The kind of a layer 2 segment that is a VXLAN, the first byte of layer2SegmentId.
const VXLAN: u64 = 1 << 56;
/// Values of forwardingStatus (RFC 7270, section 4.12): forwarded, and dropped by an access list.
const FORWARDED: u8 = 64;
const DENIED: u8 = 129;

impl Encoder {
    /// Returns an exporter's state for a network with this MTU, bytes.
    pub(super) fn new(mtu: u16) -> Self {
        Self { sequence: 0, max_len: usize::from(mtu.saturating_sub(AROUND)).max(MIN_LEN) }
    }

    /// Returns the messages for records. `lead` is what the wall clock shows more than `now`, nanoseconds.
    pub(super) fn messages<'a>(
        &mut self,
        flows: &[PortFlow],
        name: impl Fn(PortId) -> &'a str,
        now: Instant,
        lead: u64,
    ) -> Vec<Message> {
        let mut messages: Vec<Message> = Vec::new();
        for flow in flows {
            let (set, record) = record(flow, name(flow.port), lead);
            let fits = |message: &Message| message.len_with(set, &record) <= self.max_len;
            if !messages.last().is_some_and(fits) {
                messages.push(Message::new(messages.len().is_multiple_of(TEMPLATES_EVERY)));
            }
            let message = messages.last_mut().expect("pushed if there was none");
            message.push(set, &record);
            message.records += 1;
        }
        let seconds = wall_millis(now, lead) / 1000;
        messages.iter_mut().for_each(|message| self.finish(message, seconds));
        messages
    }

    /// Writes a message's header.
    fn finish(&mut self, message: &mut Message, seconds: u64) {
        let len = u16::try_from(message.bytes.len()).expect("at most an MTU");
        let header = &mut message.bytes[..HEADER];
        header[..2].copy_from_slice(&VERSION.to_be_bytes());
        header[2..4].copy_from_slice(&len.to_be_bytes());
        // The protocol's seconds wrap in 2106.
        header[4..8].copy_from_slice(&seconds.to_be_bytes()[4..]);
        header[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        header[12..].copy_from_slice(&DOMAIN.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(message.records);
    }
}

impl Message {
    fn new(with_templates: bool) -> Self {
        let mut message = Self { bytes: vec![0; HEADER], records: 0, set: (0, 0) };
        if with_templates {
            TEMPLATES.iter().for_each(|template| message.push(TEMPLATE_SET, &emit(template)));
        }
        message
    }

    /// Returns its length with another record of a set.
    fn len_with(&self, set: u16, record: &[u8]) -> usize {
        let header = if self.set.0 == set { 0 } else { SET_HEADER };
        self.bytes.len() + header + record.len()
    }

    /// Appends a record of a set.
    fn push(&mut self, set: u16, record: &[u8]) {
        if self.set.0 != set {
            self.set = (set, self.bytes.len());
            self.bytes.extend(set.to_be_bytes());
            self.bytes.extend([0, 0]);
        }
        self.bytes.extend_from_slice(record);
        let at = self.set.1;
        let len = u16::try_from(self.bytes.len() - at).expect("at most an MTU");
        self.bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

/// Returns a template as bytes.
fn emit((number, elements): &(u16, [(u16, u16); 15])) -> Vec<u8> {
    let count = u16::try_from(elements.len()).expect("15");
    let words = [*number, count].into_iter().chain(elements.iter().flat_map(|it| [it.0, it.1]));
    words.flat_map(u16::to_be_bytes).collect()
}

/// Returns a record as bytes, and the number of its template.
fn record(flow: &PortFlow, name: &str, lead: u64) -> (u16, Vec<u8>) {
    let FlowRecord { flow: key, frames, bytes, tcp_flags, first_at, last_at } = flow.record;
    let mut out = Vec::with_capacity(128);
    out.extend(wall_millis(first_at, lead).to_be_bytes());
    out.extend(wall_millis(last_at, lead).to_be_bytes());
    let mut template = TEMPLATES[0].0;
    for address in [key.source, key.destination] {
        match address {
            IpAddr::V4(v4) => out.extend(v4.octets()),
            IpAddr::V6(v6) => {
                template = TEMPLATES[1].0;
                out.extend(v6.octets());
            }
        }
    }
    out.push(key.protocol);
    out.extend(key.ports.0.to_be_bytes());
    out.extend(key.ports.1.to_be_bytes());
    out.extend([key.icmp.0, key.icmp.1]);
    out.extend(u16::from(tcp_flags.0).to_be_bytes());
    out.extend(frames.to_be_bytes());
    out.extend(bytes.to_be_bytes());
    out.extend((VXLAN | u64::from(flow.vni.get())).to_be_bytes());
    // The port is where flows are observed: what its tenant sends comes in there.
    out.push(u8::from(key.direction == Direction::Ingress));
    out.push(if key.action == Action::Allow { FORWARDED } else { DENIED });
    let name = &name.as_bytes()[..name.len().min(MAX_NAME)];
    out.push(u8::try_from(name.len()).expect("at most 254"));
    out.extend_from_slice(name);
    (template, out)
}

/// Returns a time by the wall clock, milliseconds since 1970.
const fn wall_millis(at: Instant, lead: u64) -> u64 {
    at.as_nanos().wrapping_add(lead) / 1_000_000
}

#[cfg(test)]
mod tests {
    use weft_vpc::{Flow, TcpFlags, Vni, protocol};

    use super::*;

    fn flow(source: &str, destination: &str) -> PortFlow {
        let flow = Flow {
            direction: Direction::Egress,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: protocol::TCP,
            ports: (40_000, 443),
            icmp: (0, 0),
            action: Action::Deny,
        };
        let record = FlowRecord {
            flow,
            frames: 3,
            bytes: 4_000,
            tcp_flags: TcpFlags::SYN,
            first_at: Instant::from_nanos(1_000_000_000),
            last_at: Instant::from_nanos(2_500_000_000),
        };
        PortFlow { port: PortId(7), vni: Vni::new(100).unwrap(), record }
    }

    fn messages(encoder: &mut Encoder, flows: &[PortFlow]) -> Vec<Message> {
        encoder.messages(flows, |_| "web", Instant::from_nanos(5_000_000_000), 0)
    }

    fn word(bytes: &[u8], at: usize) -> u16 {
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    /// Checks the bytes of RFC 7011, sections 3.1, 3.3.2 and 3.4.1.
    #[test]
    fn a_message_has_its_header_the_templates_and_a_set_of_records() {
        let sent = messages(&mut Encoder::new(1500), &[flow("10.0.0.1", "10.0.0.2")]);
        let [Message { bytes, records: 1, .. }] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((word(bytes, 0), usize::from(word(bytes, 2))), (10, bytes.len()));
        assert_eq!(bytes[4..16], [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]);
        let template = 4 + 15 * 4;
        assert_eq!((word(bytes, 16), usize::from(word(bytes, 18))), (2, 4 + 2 * template));
        assert_eq!([word(bytes, 20), word(bytes, 22)], [256, 15]);
        assert_eq!(bytes[24..28], [0, 152, 0, 8]);
        let data = 16 + 4 + 2 * template;
        assert_eq!(
            (word(bytes, data), usize::from(word(bytes, data + 2))),
            (256, bytes.len() - data)
        );
        let record = &bytes[data + 4..];
        assert_eq!(record[..8], 1_000_u64.to_be_bytes());
        assert_eq!(record[8..16], 2_500_u64.to_be_bytes());
        assert_eq!(record[16..24], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(record[24..29], [6, 0x9c, 0x40, 1, 187]);
        assert_eq!(
            record[record.len() - 14..],
            [1, 0, 0, 0, 0, 0, 0, 100, 0, 129, 3, b'w', b'e', b'b']
        );
    }

    #[test]
    fn messages_fit_the_network_and_are_numbered_by_the_records_before_them() {
        let mut encoder = Encoder::new(1500);
        let one = |index: usize| match index % 40 < 20 {
            true => flow("10.0.0.1", "10.0.0.2"),
            false => flow("fd00::1", "fd00::2"),
        };
        let flows: Vec<_> = (0..1000).map(one).collect();
        let mut expected = 0_u32;
        for _ in 0..2 {
            let sent = messages(&mut encoder, &flows);
            assert!(sent.len() > TEMPLATES_EVERY);
            for (index, message) in sent.iter().enumerate() {
                let bytes = &message.bytes;
                assert!(bytes.len() <= 1452, "{}", bytes.len());
                assert_eq!(u32::from_be_bytes(bytes[8..12].try_into().unwrap()), expected);
                expected += message.records;
                let is_first = index.is_multiple_of(TEMPLATES_EVERY);
                assert_eq!(word(bytes, 16) == TEMPLATE_SET, is_first, "message {index}");
                // The sets fill the message.
                let mut at = HEADER;
                while at < bytes.len() {
                    at += usize::from(word(bytes, at + 2));
                }
                assert_eq!(at, bytes.len());
            }
        }
        assert_eq!(expected, 2000);
    }

    #[test]
    fn a_long_name_is_cut() {
        let name = "n".repeat(400);
        let (_, bytes) = record(&flow("10.0.0.1", "10.0.0.2"), &name, 0);
        assert_eq!(bytes[bytes.len() - 255], 254);
        let sent =
            Encoder::new(0).messages(&[flow("fd00::1", "fd00::2")], |_| &name, Instant::EPOCH, 0);
        assert_eq!(sent.len(), 1);
    }
}
