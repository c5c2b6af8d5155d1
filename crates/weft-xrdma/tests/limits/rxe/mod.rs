//! The kernel's rxe: two Linux guests in QEMU, whose stock libibverbs has no part of Weft, with a cable for RoCE and one
//! for TCP between them. One guest runs this program's tests, and the other starts their other ends.
//!
//! `make rxe`

mod capture;
mod guest;

use std::collections::BTreeSet;
use std::net::IpAddr;

use capture::{Capture, Packet};
use weft_testkit::rxe::{Guests, NETWORK, NETWORK_V6};

/// The name of the test in records of skipped ones.
const TEST: &str = "two guests on rxe";

/// The traffic class of channels that set it, and their number.
const CLASS: u8 = 96;
/// Their flow label.
const FLOW_LABEL: u32 = 0x1_2345;
const CHANNELS: usize = 8;

#[test]
#[ignore = "it boots two guests on emulated processors (make rxe)"]
fn channels_between_two_guests_on_rxe_keep_every_promise() {
    let mut guests = match Guests::find() {
        Ok(guests) => guests,
        Err(missing) => return weft_testkit::skip(TEST, &missing),
    };
    let own = std::env::current_exe().expect("it has a path");
    guests.files().add_program("limits", &own);
    let outcome = guests.run(&guest::server_script(), &guest::client_script());
    let [server, client] = outcome.consoles;
    println!("{client}");
    let passed = client.matches("test result: ok.").count();
    assert_eq!(passed, guest::RUNS.len(), "of the other guest: {server}");
    check_labels(&outcome.capture);
}

/// Returns the traffic class that a packet was sent with: a queue on the way may have replaced ECT(0) by CE (RFC 3168), as
/// the default one of Linux does under load.
const fn class_as_sent(packet: &Packet) -> u8 {
    const CE: u8 = 0b11;
    const ECT_0: u8 = 0b10;
    match packet.traffic_class & CE {
        CE => packet.traffic_class & !CE | ECT_0,
        _ => packet.traffic_class,
    }
}

/// Checks the labels of all packets of RoCE on the cable: those of docs/messages.md, as far as rxe honours them.
fn check_labels(file: &[u8]) {
    let Capture { roce, roce_v1 } = Capture::parse(file);
    assert_eq!(roce_v1, 0, "version 2 of RoCE is first");
    let of = |guest: u8| -> BTreeSet<IpAddr> {
        [format!("{NETWORK}.{guest}"), format!("{NETWORK_V6}:{guest}")]
            .map(|address| address.parse().expect("an address"))
            .into()
    };
    let (server, client) = (of(1), of(2));
    let select = |from: &BTreeSet<IpAddr>, class: u8| -> Vec<&Packet> {
        let chosen =
            |packet: &&Packet| from.contains(&packet.source) && class_as_sent(packet) == class;
        roce.iter().filter(chosen).collect()
    };
    // DSCP 26 and ECT(0) by default, in both versions of IP.
    let by_default = [select(&server, 106), select(&client, 106)];
    for packets in &by_default {
        let addresses: BTreeSet<_> = packets.iter().map(|packet| packet.source).collect();
        assert_eq!(addresses.len(), 2, "IPv4 first, and IPv6 where it is asked for");
    }
    let labelled = select(&client, CLASS);
    let is_expected = |packet: &&Packet| match class_as_sent(packet) {
        106 => server.contains(&packet.source) || client.contains(&packet.source),
        class => class == CLASS && client.contains(&packet.source),
    };
    let others: Vec<&Packet> = roce.iter().filter(|packet| !is_expected(packet)).collect();
    assert!(others.is_empty(), "of {} packets: {others:?}", roce.len());
    assert!(labelled.len() > 2 * CHANNELS, "{} packets", labelled.len());
    let ports = |packets: &[&Packet]| -> BTreeSet<u16> {
        packets.iter().map(|packet| packet.source_port).collect()
    };
    // A flow label has one port, by the rule of annex A17: its lower 14 bits, with the others folded in.
    let port = 0xc000 | ((FLOW_LABEL & 0x3fff) ^ (FLOW_LABEL >> 14));
    assert_eq!(ports(&labelled).into_iter().map(u32::from).collect::<Vec<_>>(), [port]);
    // Without one, queue pairs have ports of their own, which follow from the numbers of both ends.
    for packets in &by_default {
        assert!(ports(packets).len() >= CHANNELS, "{:?}", ports(packets));
    }
    // rxe writes no flow label.
    for packet in &roce {
        assert!(packet.source_port >= 0xc000, "{packet:?}");
        assert_eq!((packet.flow_label, packet.hop_limit), (0, 64), "{packet:?}");
    }
}
