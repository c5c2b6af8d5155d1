//! The packets of the dissector's tests: one of each kind.

use weft_wire::{
    AckHeader, AckType, AtomicOperands, Bitmap, DataHeader, ExchangeHeader, MessageHeader, Packet,
    RdmaHeader, RdmaOpcode, RdmaOperation, SealedHeader, SetupHeader, SetupKind, SetupParameters,
    U3, U4, U5, U11, U24,
};

const VERSION: U4 = U4::truncate(1);

fn data() -> DataHeader {
    DataHeader {
        version: VERSION,
        cc_type: U4::truncate(2),
        ece: true,
        path_id: U3::truncate(5),
        psn: 4_294_967_290,
        destination_cid: 0xabcd_0001,
        timestamp: 123_456_789,
        ..DataHeader::default()
    }
}

fn message(opcode: u8) -> MessageHeader {
    MessageHeader { opcode, tag: 0, id: 9, offset: 1000, length: 2500 }
}

fn setup(kind: SetupKind) -> Packet {
    let terms = SetupParameters {
        capabilities: 3,
        first_psn: 77,
        mtu: 4096,
        window: 1024,
        paths: 128,
        receive_port: 4791,
        service: 7 << 32 | 42,
        min_version: 1,
        token: 0x0123_4567_89ab_cdef,
    };
    Packet::Setup(SetupHeader {
        kind,
        version: VERSION,
        cc_type: U4::truncate(1),
        thread_id: 3,
        reason: if kind.carries_terms() { 0 } else { 2 },
        local_cid: 0xabcd_0001,
        destination_cid: 0x0000_beef,
        terms: kind.carries_terms().then_some(terms),
    })
}

/// Returns a packet of each kind, as a UDP payload.
pub(crate) fn payloads_of_the_transport() -> Vec<Vec<u8>> {
    let bytes = |packet: Packet, rest: &[u8]| {
        let mut bytes = vec![0; Packet::MAX_LEN];
        let len = packet.emit(&mut bytes);
        bytes.truncate(len);
        bytes.extend(rest);
        bytes
    };
    let ack = AckHeader {
        version: VERSION,
        path_id: U3::truncate(5),
        hop_count: U4::truncate(3),
        block: U5::truncate(1),
        psn: 100,
        destination_cid: 0xabcd_0002,
        timestamp: 1,
        timestamp_echo: 2,
        timestamp_nic_rx: 3,
        num_ack: U11::truncate(2047),
        num_ece: U11::truncate(1025),
        psn_base: 90,
        bitmap: Bitmap::from_words(&[0x8000_0001, 0xffff_ffff]),
        ..AckHeader::default()
    };
    let plain = AckHeader { bitmap: Bitmap::default(), ..ack };
    let mut payloads = vec![
        bytes(Packet::data(data(), None), &[0x45; 60]),
        bytes(Packet::data(data(), Some(message(7))), b"hello"),
        bytes(
            Packet::data(DataHeader { retransmitted: true, ..data() }, Some(message(7))),
            b"again",
        ),
        bytes(Packet::data(DataHeader { special: true, ..data() }, None), &[]),
        bytes(Packet::Ack(ack), &[]),
        bytes(Packet::Ack(plain), &[]),
        bytes(Packet::Ack(AckHeader { ack_type: AckType::Duplicate, ..plain }), &[]),
        bytes(Packet::Ack(AckHeader { ack_type: AckType::Nack, ..plain }), &[]),
        bytes(Packet::Ack(AckHeader { special: true, ..plain }), &[]),
    ];
    payloads.extend(SetupKind::ALL.map(|kind| bytes(setup(kind), &[])));
    for operation in (0..=u8::MAX).filter_map(RdmaOpcode::from_number) {
        let atomic = RdmaOperation::decode(operation, &RdmaHeader::default()).is_err();
        let header = RdmaHeader {
            solicited: true,
            destination_qp: U24::truncate(0x11_2233),
            psn: U24::truncate(5),
            address: 0x7fff_0000_1000,
            key: 0xfeed_0001,
            immediate: 17,
            operands: atomic.then_some(AtomicOperands { swap_or_add: 1, compare: 2 }),
        };
        let mut rest = vec![0; header.header_len()];
        header.emit(&mut rest);
        rest.extend(b"payload");
        payloads
            .push(bytes(Packet::data(data(), Some(message(operation as u8))).with_rdma(), &rest));
    }
    payloads.extend([SetupKind::Request, SetupKind::Accept].map(|kind| {
        let mut exchange = [0; ExchangeHeader::LEN];
        ExchangeHeader { protocol: ExchangeHeader::NOISE_IX_PSK0, length: 97 }.emit(&mut exchange);
        bytes(setup(kind), &[&exchange[..], &[0x4e; 97]].concat())
    }));
    let sealed =
        SealedHeader { version: VERSION, key: 3, iv: 7, spi: 9, ..SealedHeader::default() };
    let mut rest = vec![0xa5; SealedHeader::OVERHEAD + 40];
    sealed.emit(&mut rest);
    payloads.push(rest);
    payloads
}
