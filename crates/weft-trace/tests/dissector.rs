//! The dissector, in tshark, over a packet of each kind. Without tshark the tests say so and pass; the
//! set-up of `make test` installs it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_trace::Datagram;
use weft_trace::pcapng::{Direction, LinkType, Record, Writer};
use weft_wire::{
    AckHeader, AckType, AtomicOperands, Bitmap, Cipher, Content, DataHeader, Ecn, MessageHeader,
    PACKET_TYPES, Packet, RdmaHeader, RdmaOperation, SealedHeader, SetupHeader, SetupKind, Terms,
    U3, U4, U5, U11, U24, VxlanHeader, VxlanNext,
};

/// RoCEv2's own port, where the dissector has to be preferred, and another.
const PORTS: [u16; 2] = [4791, 4792];

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
    let terms = Terms {
        capabilities: 3,
        first_psn: 77,
        mtu: 4096,
        window: 1024,
        paths: 128,
        receive_port: 4791,
        service: 42,
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

/// A packet of each kind, as a UDP payload.
fn payloads_of_the_transport() -> Vec<Vec<u8>> {
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
    for operation in (0..=u8::MAX).filter_map(RdmaOperation::from_number) {
        let atomic = matches!(operation, RdmaOperation::RcCompareSwap | RdmaOperation::RcFetchAdd);
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
    payloads
}

/// The overlay's packets, as UDP payloads: a plain frame, packets of the transport, an encrypted one, and
/// one of a next protocol that is not ours.
fn overlay_payloads() -> Vec<Vec<u8>> {
    let vxlan = |next, rest: &[u8]| {
        let mut bytes = vec![0; VxlanHeader::LEN];
        VxlanHeader { vni: U24::truncate(123_456), next }.emit(&mut bytes);
        bytes.extend(rest);
        bytes
    };
    let arp = [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 0xa, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &[2, 0, 0, 0, 0, 0xa, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
    ];
    let mut payloads = vec![vxlan(VxlanNext::Frame, &arp.concat())];
    let of_each_kind = payloads_of_the_transport();
    payloads.extend(of_each_kind.iter().map(|payload| vxlan(VxlanNext::Weft, payload)));
    let header = SealedHeader {
        version: U4::truncate(1),
        cipher: Cipher::Aes256Gcm,
        key: 3,
        content: Content::Frame,
        iv: 0x1122_3344,
        spi: 0x0200_0007,
    };
    let mut sealed = vec![0xa5; SealedHeader::LEN + 40];
    header.emit(&mut sealed);
    payloads.push(vxlan(VxlanNext::Weft, &sealed));
    let mut other = vxlan(VxlanNext::Weft, &[0; 40]);
    other[3] = 4;
    payloads.push(other);
    payloads
}

/// The payloads, every other one to the second port.
fn capture(payloads: &[Vec<u8>], ports: [u16; 2]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "a test").unwrap();
    let interface = writer.interface("h0", LinkType::Raw, 0).unwrap();
    for (index, payload) in payloads.iter().enumerate() {
        let mut headers = [0; Datagram::MAX_LEN];
        let datagram = Datagram {
            from: "10.0.0.1:49152".parse().unwrap(),
            to: (Ipv4Addr::new(10, 0, 0, 2), ports[index % 2]).into(),
            ecn: Ecn::Capable0,
            hop_limit: 64,
            payload_len: payload.len().try_into().unwrap(),
        };
        let len = datagram.emit(&mut headers);
        writer
            .packet(&Record {
                interface,
                time_ns: 1000 * index as u64,
                direction: Direction::Out,
                bytes: &[&headers[..len], payload],
                length: len + payload.len(),
            })
            .unwrap();
    }
    file
}

/// A file that goes away with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}.pcapng", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What tshark prints with our dissector; nothing without tshark.
fn tshark(file: &File, arguments: &[&str]) -> Option<String> {
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dissector/weft.lua");
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", plugin.display()))
        .arg("-r")
        .arg(&file.0)
        .args(arguments)
        .output();
    let Ok(output) = output else {
        weft_testkit::skip("our dissector", "no tshark (sudo apt-get install tshark)");
        return None;
    };
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Compares with a file of `tests/golden`; `BLESS=1` accepts what is there.
fn assert_golden(name: &str, got: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, got).unwrap();
    }
    let want = fs::read_to_string(&file).unwrap();
    assert_eq!(got, want, "{}; BLESS=1 accepts it", file.display());
}

#[test]
fn every_kind_of_packet_is_told_in_a_line() {
    let file = File::new("lines", &capture(&payloads_of_the_transport(), PORTS));
    let fields = ["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"];
    let Some(lines) = tshark(&file, &fields) else { return };
    for kind in PACKET_TYPES {
        assert!(lines.contains(kind.name), "no {} in\n{lines}", kind.name);
    }
    assert_golden("lines.txt", &lines);
}

#[test]
fn every_field_is_what_was_put_there() {
    let file = File::new("fields", &capture(&payloads_of_the_transport(), PORTS));
    let fields = [
        "weft.data.packet_sequence_number",
        "weft.data.path_id",
        "weft.data.ret",
        "weft.message.length",
        "weft.rdma.destqp",
        "weft.rdma.virtual_address",
        "weft.operands.compare_data",
        "weft.ack.num_ack",
        "weft.ack.num_ece",
        "weft.ack.psn_bitmap_len",
        "weft.ack.placed",
        "weft.terms.token",
        "weft.psn",
        "weft.cid",
        "_ws.expert.message",
    ];
    let mut arguments = vec!["-T", "fields", "-E", "header=y"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let Some(table) = tshark(&file, &arguments) else { return };
    assert_golden("fields.txt", &table);
}

#[test]
fn packets_that_are_cut_short_are_no_error_of_the_dissector() {
    let payloads = payloads_of_the_transport();
    let cut =
        payloads.iter().flat_map(|payload| (0..payload.len()).map(|len| payload[..len].to_vec()));
    let file = File::new("cut", &capture(&cut.collect::<Vec<_>>(), PORTS));
    let Some(lines) = tshark(&file, &["-V"]) else { return };
    assert!(!lines.contains("Lua Error"), "{lines}");
}

#[test]
fn the_overlay_is_told_from_other_vxlan() {
    let payloads = overlay_payloads();
    let file = File::new("overlay", &capture(&payloads, [VxlanHeader::PORT; 2]));
    let fields = [
        "-T",
        "fields",
        "-e",
        "_ws.col.Protocol",
        "-e",
        "weft.vxlan.vni",
        "-e",
        "vxlan.vni",
        "-e",
        "weft.sealed.iv",
        "-e",
        "_ws.col.Info",
    ];
    let Some(lines) = tshark(&file, &fields) else { return };
    assert_golden("overlay.txt", &lines);
    let cut =
        payloads.iter().flat_map(|payload| (0..payload.len()).map(|len| payload[..len].to_vec()));
    let cut = capture(&cut.collect::<Vec<_>>(), [VxlanHeader::PORT; 2]);
    let lines = tshark(&File::new("overlay-cut", &cut), &["-V"]).unwrap();
    assert!(!lines.contains("Lua Error"), "{lines}");
}
