//! Tests of each header's bytes against its value. The files under `golden/` were written by hand from
//! the figures and RFCs, not by the code that they check.

use std::net::{Ipv4Addr, Ipv6Addr};

use weft_wire::{
    AckHeader, AckType, AtomicOperands, Bitmap, CallRole, ChannelOffer, Cipher, DataHeader, Ecn,
    EtherType, EthernetHeader, FrameHeader, FrameKind, GsoType, Ipv4Header, Ipv4Options,
    Ipv6Header, MacAddr, MessageHeader, NextHeader, Packet, RdmaHeader, RdmaOpcode, RemoteBody,
    SealedContent, SealedHeader, SetupHeader, SetupKind, SetupParameters, TraceExtension, U3, U4,
    U5, U6, U11, U13, U20, U24, UdpHeader, VirtioNetHeader, VxlanHeader, VxlanNext,
};

mod files;
use files::golden;

/// Checks that the file parses to `packet` and `payload`, and that `packet` is emitted as the file.
fn assert_packet(file: &str, packet: Packet, payload: &[u8]) {
    let bytes = golden(file);
    assert_eq!(Packet::parse(&bytes), Ok((packet, payload)), "{file}");
    let mut out = [0xee; Packet::MAX_LEN];
    let len = packet.emit(&mut out);
    assert_eq!(out[..len], bytes[..bytes.len() - payload.len()], "{file}");
    assert!(out[len..].iter().all(|&byte| byte == 0xee), "{file}: wrote past the header");
}

fn data() -> DataHeader {
    DataHeader {
        version: U4::truncate(1),
        cc_type: U4::truncate(2),
        special: true,
        ack_now: true,
        from_acceptor: false,
        ece: true,
        retransmitted: true,
        path_id: U3::truncate(3),
        next: NextHeader::Frame,
        psn: 0x0123_4567,
        destination_cid: 0x89ab_cdef,
        timestamp: 0xfedc_ba98,
    }
}

#[test]
fn data_packet() {
    assert_packet("data", Packet::Data(data(), None), b"frme");
}

#[test]
fn data_packet_with_message() {
    let header = DataHeader {
        version: U4::MAX,
        from_acceptor: true,
        path_id: U3::truncate(4),
        next: NextHeader::Message,
        psn: u32::MAX,
        destination_cid: 7,
        timestamp: 42,
        ..DataHeader::default()
    };
    let message = MessageHeader { opcode: 0x81, tag: 0, id: 256, offset: 4096, length: 4098 };
    assert_packet("data_message", Packet::Data(header, Some(message)), b"ok");
}

#[test]
fn frame_of_a_large_request() {
    let trace = TraceExtension { id: 9, sent_at: (1 << 32) + 2, received_at: 0 };
    let header = FrameHeader {
        kind: FrameKind::Large,
        call: CallRole::Request(9),
        known: 258,
        length: 70_000,
        trace: Some(trace),
    };
    let body = RemoteBody { address: 0x7f00_1234_5678, rkey: 0x10a };
    let bytes = golden("frame");
    let (parsed, rest) = FrameHeader::parse(&bytes).unwrap();
    assert_eq!((parsed, RemoteBody::parse(rest)), (header, Ok(body)));
    let mut out = vec![0; bytes.len()];
    let len = header.emit(&mut out);
    body.emit(&mut out[len..]);
    assert_eq!(out, bytes);
}

#[test]
fn channel_offer() {
    let offer = ChannelOffer {
        qp: U24::truncate(17),
        psn: U24::MAX,
        gid: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(),
        depth: 32,
        ack_frames: 5,
        small: 4096,
        longest: 64 << 20,
        token: 0x0123_4567_89ab_cdef,
        attempt: 0,
        shared: false,
    };
    let bytes = golden("offer");
    assert_eq!(ChannelOffer::parse(&bytes), Ok(offer));
    assert_eq!(offer.emit().as_slice(), bytes);
}

#[test]
fn data_packet_with_rdma() {
    let header = DataHeader {
        ece: true,
        next: NextHeader::Rdma,
        psn: 5,
        destination_cid: 0x89ab_cdef,
        timestamp: 42,
        ..DataHeader::default()
    };
    let opcode = RdmaOpcode::RcFetchAdd as u8;
    let message = MessageHeader { opcode, tag: 0, id: 3, offset: 0, length: 0 };
    let rdma = RdmaHeader {
        solicited: true,
        destination_qp: U24::truncate(17),
        psn: U24::MAX,
        address: 0x7f00_1234_5678,
        key: 0x10a,
        immediate: 0,
        operands: Some(AtomicOperands { swap_or_add: 2, compare: 0 }),
    };
    let bytes = golden("data_rdma");
    let (packet, rest) = Packet::parse(&bytes).unwrap();
    assert!(packet.announces_rdma());
    assert_eq!(packet, Packet::data(header, Some(message)).with_rdma());
    assert_eq!(RdmaHeader::parse(rest), Ok((rdma, &[][..])));
    let mut out = [0; 72];
    let len = packet.emit(&mut out);
    assert_eq!(len + rdma.emit(&mut out[len..]), out.len());
    assert_eq!(out[..], bytes[..]);
}

#[test]
fn request() {
    let header = SetupHeader {
        kind: SetupKind::Request,
        version: U4::truncate(1),
        cc_type: U4::truncate(2),
        thread_id: 5,
        reason: 0,
        local_cid: 0xc0ff_ee01,
        destination_cid: 0,
        terms: Some(SetupParameters {
            capabilities: 3,
            first_psn: 0xffff_fffe,
            mtu: 1400,
            window: 1024,
            paths: 128,
            receive_port: 4789,
            service: 11 << 32 | 17,
            min_version: 1,
            token: 0x0102_0304_0506_0708,
        }),
    };
    assert_packet("request", Packet::Setup(header), b"");
}

#[test]
fn close() {
    let header = SetupHeader {
        kind: SetupKind::Close,
        version: U4::truncate(1),
        cc_type: U4::truncate(0),
        thread_id: 255,
        reason: 2,
        local_cid: 0x1122_3344,
        destination_cid: 0x5566_7788,
        terms: None,
    };
    assert_packet("close", Packet::Setup(header), b"");
}

#[test]
fn ack_with_two_bitmap_words() {
    let header = AckHeader {
        version: U4::truncate(1),
        cc_type: U4::truncate(2),
        special: true,
        path_id: U3::truncate(5),
        hop_count: U4::truncate(5),
        block: U5::truncate(3),
        ack_type: AckType::Duplicate,
        psn: 0x107,
        destination_cid: 0xdead_beef,
        timestamp: 3,
        timestamp_echo: 1,
        timestamp_nic_rx: 2,
        num_ack: U11::truncate(1025),
        num_ece: U11::truncate(1025),
        reserved: U6::truncate(0),
        psn_base: 256,
        bitmap: Bitmap::from_words(&[0x4000_0000, 1]),
    };
    assert_packet("ack", Packet::Ack(header), b"");
    assert_eq!(header.bitmap.iter().collect::<Vec<_>>(), [1, 63]);
}

#[test]
fn ack_with_everything_set() {
    let header = AckHeader {
        version: U4::MAX,
        cc_type: U4::MAX,
        special: false,
        path_id: U3::MAX,
        hop_count: U4::MAX,
        block: U5::MAX,
        ack_type: AckType::Nack,
        psn: u32::MAX,
        destination_cid: 1,
        timestamp: 0,
        timestamp_echo: 0,
        timestamp_nic_rx: 0,
        num_ack: U11::MAX,
        num_ece: U11::MAX,
        reserved: U6::MAX,
        psn_base: 0xffff_ff00,
        bitmap: Bitmap::from_words(&[u32::MAX, 0, u32::MAX, 0, u32::MAX, 0, u32::MAX, 0]),
    };
    assert_packet("ack_full", Packet::Ack(header), b"");
}

#[test]
fn ethernet() {
    let bytes = golden("eth");
    let header = EthernetHeader {
        destination: MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
        source: MacAddr([2, 0, 0, 0, 0, 1]),
        ethertype: EtherType::IPV4,
    };
    assert_eq!(EthernetHeader::parse(&bytes), Ok((header, &[0x45, 0][..])));
    let mut out = [0; EthernetHeader::LEN];
    header.emit(&mut out);
    assert_eq!(out[..], bytes[..14]);
}

#[test]
fn ipv4() {
    let bytes = golden("ipv4");
    let header = Ipv4Header {
        dscp: U6::truncate(0),
        ecn: Ecn::NotCapable,
        payload_len: 95,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: U13::truncate(0),
        ttl: 64,
        protocol: UdpHeader::PROTOCOL,
        source: Ipv4Addr::new(192, 168, 0, 1),
        destination: Ipv4Addr::new(192, 168, 0, 199),
        options: Ipv4Options::NONE,
    };
    assert_eq!(Ipv4Header::parse(&bytes), Ok((header, &bytes[20..])));
    let mut out = [0; Ipv4Header::LEN];
    header.emit(&mut out);
    assert_eq!(out[..], bytes[..20]);
}

#[test]
fn ipv4_with_options() {
    let bytes = golden("ipv4_options");
    let header = Ipv4Header {
        dscp: U6::truncate(46),
        ecn: Ecn::CongestionExperienced,
        payload_len: 0,
        identification: 0xbeef,
        dont_fragment: false,
        more_fragments: true,
        fragment_offset: U13::truncate(5),
        ttl: 1,
        protocol: 2,
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(224, 0, 0, 1),
        options: Ipv4Options::new(&[0x94, 4, 0, 0]).expect("a router alert is an option"),
    };
    assert_eq!(Ipv4Header::parse(&bytes), Ok((header, &[][..])));
    let mut out = [0; Ipv4Header::MAX_LEN];
    header.emit(&mut out);
    assert_eq!(out[..24], bytes[..24]);
}

#[test]
fn ipv6_and_the_checksum_of_its_payload() {
    let bytes = golden("ipv6");
    let header = Ipv6Header {
        dscp: U6::truncate(46),
        ecn: Ecn::CongestionExperienced,
        flow_label: U20::truncate(0x1_2345),
        payload_len: 8,
        next_header: UdpHeader::PROTOCOL,
        hop_limit: 64,
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };
    assert_eq!(Ipv6Header::parse(&bytes), Ok((header, &bytes[40..])));
    let mut out = [0; Ipv6Header::LEN];
    header.emit(&mut out);
    assert_eq!(out[..], bytes[..40]);

    let (udp, payload) = UdpHeader::parse(&bytes[40..]).unwrap();
    assert_eq!(udp.checksum, 0xd1b2);
    assert_eq!(udp.verify(header.pseudo_header(), payload), Ok(()));
    assert_eq!(udp.with_checksum(header.pseudo_header(), payload), udp);
}

#[test]
fn udp_and_its_checksum() {
    use weft_wire::checksum::PseudoHeader;

    let bytes = golden("udp");
    let header = UdpHeader {
        source_port: 49_153,
        destination_port: VxlanHeader::PORT,
        payload_len: 4,
        checksum: 0x630e,
    };
    assert_eq!(UdpHeader::parse(&bytes), Ok((header, &b"weft"[..])));
    let mut out = [0; UdpHeader::LEN];
    header.emit(&mut out);
    assert_eq!(out[..], bytes[..8]);

    let pseudo = PseudoHeader::V4 {
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(198, 51, 100, 2),
    };
    assert_eq!(header.verify(pseudo, b"weft"), Ok(()));
    assert_eq!(UdpHeader { checksum: 0, ..header }.with_checksum(pseudo, b"weft"), header);
}

#[test]
fn vxlan_with_each_next_protocol() {
    for (name, next) in [("vxlan", VxlanNext::Frame), ("vxlan_weft", VxlanNext::Weft)] {
        let bytes = golden(name);
        let header = VxlanHeader { vni: U24::truncate(123_456), next };
        assert_eq!(VxlanHeader::parse(&bytes), Ok((header, &[0xaa][..])));
        let mut out = [0; VxlanHeader::LEN];
        header.emit(&mut out);
        assert_eq!(out[..], bytes[..8]);
    }
}

#[test]
fn virtio_net_of_a_super_frame() {
    let bytes = golden("virtio_net");
    let header = VirtioNetHeader {
        needs_csum: true,
        data_valid: false,
        gso_type: GsoType::TcpV6,
        ecn: true,
        hdr_len: 86,
        gso_size: 1428,
        csum_start: 54,
        csum_offset: 16,
        num_buffers: 1,
    };
    assert_eq!(VirtioNetHeader::parse(&bytes), Ok((header, &[0xaa][..])));
    let mut out = [0; VirtioNetHeader::LEN];
    header.emit(&mut out);
    assert_eq!(out[..], bytes[..12]);
}

#[test]
fn sealed_frame() {
    let bytes = golden("sealed");
    let header = SealedHeader {
        version: U4::truncate(1),
        cipher: Cipher::Aes256Gcm,
        key: 7,
        content: SealedContent::Frame,
        iv: 0x1122_3344,
        spi: 0x5566_7788,
    };
    assert_eq!(SealedHeader::parse(&bytes), Ok((header, &[0xaa][..])));
    let mut out = [0; SealedHeader::LEN];
    header.emit(&mut out);
    assert_eq!(out[..], bytes[..SealedHeader::LEN]);
}
