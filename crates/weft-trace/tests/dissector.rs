//! Tests of the dissector, which tshark runs over a packet of each kind. Without tshark the tests print
//! that and pass; the set-up of `make test` installs it.

use weft_wire::{
    Cipher, PACKET_TYPES, SealedContent, SealedHeader, U4, U24, VxlanHeader, VxlanNext,
};

mod packets;
mod shark;

use packets::payloads_of_the_transport;
use shark::{File, assert_golden, capture, tshark};

/// RoCEv2's port, where this dissector must take precedence, and another port.
const PORTS: [u16; 2] = [4791, 4792];

/// Returns the overlay's packets as UDP payloads: a plain frame, packets of the transport, an encrypted
/// packet, and a packet whose next protocol is not Weft's.
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
        content: SealedContent::Frame,
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

#[test]
fn every_kind_of_packet_is_summarised_in_a_line() {
    let file = File::new("lines", &capture(&payloads_of_the_transport(), PORTS));
    let fields = ["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"];
    let Some(lines) = tshark(&file, &fields) else { return };
    for kind in PACKET_TYPES {
        assert!(lines.contains(kind.name), "no {} in\n{lines}", kind.name);
    }
    assert_golden("lines.txt", &lines);
}

#[test]
fn every_field_has_the_value_that_was_written() {
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
fn the_overlay_is_distinguished_from_other_vxlan() {
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
