//! The packets of RoCE in a capture of QEMU's `filter-dump`: libpcap's format (draft-ietf-opsawg-pcap).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The UDP port of RoCE v2 (IBTA, annex A17).
const ROCE_PORT: u16 = 4791;

/// Ethernet's types.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ROCE_V1: u16 = 0x8915;

/// The protocol number of UDP.
const UDP: u8 = 17;

/// The labels of a packet of RoCE v2.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) source: IpAddr,
    /// Zero in IPv4.
    pub(super) flow_label: u32,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) source_port: u16,
}

/// The packets of a capture.
#[derive(Debug, Default)]
pub(super) struct Capture {
    pub(super) roce: Vec<Packet>,
    /// Number of frames of RoCE v1.
    pub(super) roce_v1: usize,
}

impl Capture {
    /// Parses a file of this machine's byte order, whose frames are Ethernet's. The last record may be incomplete.
    pub(super) fn parse(file: &[u8]) -> Self {
        let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1), "libpcap's magic number, and Ethernet");
        let (mut this, mut at) = (Self::default(), 24);
        while at + 16 <= file.len() {
            let end = at + 16 + word(at + 8) as usize;
            if let Some(frame) = file.get(at + 16..end) {
                this.add(frame);
            }
            at = end;
        }
        this
    }

    fn add(&mut self, frame: &[u8]) {
        let Some((ethernet, packet)) = frame.split_at_checked(14) else { return };
        match (u16::from_be_bytes([ethernet[12], ethernet[13]]), packet) {
            (ROCE_V1, _) => self.roce_v1 += 1,
            (
                IPV4,
                [0x45, class, _, _, _, _, _, _, hop_limit, UDP, _, _, a, b, c, d, rest @ ..],
            ) => {
                let source = Ipv4Addr::new(*a, *b, *c, *d).into();
                self.add_udp(rest.get(4..), (source, *class, 0, *hop_limit));
            }
            (IPV6, [_, _, _, _, _, _, UDP, hop_limit, rest @ ..]) => {
                let first = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]);
                let Some((source, rest)) = rest.split_first_chunk::<16>() else { return };
                let class = u8::try_from(first >> 20 & 0xff).expect("eight bits");
                let labels = (Ipv6Addr::from(*source).into(), class, first & 0xf_ffff, *hop_limit);
                self.add_udp(rest.get(16..), labels);
            }
            _ => {}
        }
    }

    fn add_udp(&mut self, datagram: Option<&[u8]>, labels: (IpAddr, u8, u32, u8)) {
        let Some([a, b, c, d, ..]) = datagram else { return };
        if u16::from_be_bytes([*c, *d]) == ROCE_PORT {
            let (source, traffic_class, flow_label, hop_limit) = labels;
            let source_port = u16::from_be_bytes([*a, *b]);
            self.roce.push(Packet { source, flow_label, traffic_class, hop_limit, source_port });
        }
    }
}
