//! The kernel's rxe: two Linux guests in QEMU, whose stock libibverbs has no part of Weft, with a cable for RoCE and one
//! for TCP between them. One guest runs this program's tests, and the other starts their other ends.
//!
//! `make rxe`

mod capture;
mod guest;
mod machine;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use capture::{Capture, Packet};
use machine::{Cables, Guest, Image};

/// The name of the test in records of skipped ones.
const TEST: &str = "two guests on rxe";

/// The addresses of the guests on the cable of RoCE end in the guest's number.
const NETWORK: &str = "10.79.0";
/// The addresses of the guests on the cable of TCP.
const TCP_NETWORK: &str = "10.80.0";
/// The same on the cable of RoCE, in IPv6.
const NETWORK_V6: &str = "fd79:";
/// The port at which the second guest starts other ends.
const PORT: u16 = 99;

/// The traffic class of channels that set it, and their number.
const CLASS: u8 = 96;
/// Their flow label.
const FLOW_LABEL: u32 = 0x1_2345;
const CHANNELS: usize = 8;

/// The folder of a test, which is removed with this value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "it boots two guests on emulated processors (make rxe)"]
fn channels_between_two_guests_on_rxe_keep_every_promise() {
    let image = match Image::find() {
        Ok(image) => image,
        Err(missing) => return weft_testkit::skip(TEST, &missing),
    };
    let folder = std::env::temp_dir().join(format!("weft-rxe-{}", std::process::id()));
    let folder = Scratch(folder);
    fs::create_dir_all(&folder.0).expect("a temporary folder");
    let cables = Cables::new(&folder.0);
    let server = Guest::boot(&image, &cables, 1, &guest::server_script());
    let mut client = Guest::boot(&image, &cables, 2, &guest::client_script());
    client.wait();
    let console = client.console();
    println!("{console}");
    let passed = console.matches("test result: ok.").count();
    assert_eq!(passed, guest::RUNS.len(), "of the other guest: {}", server.console());
    check_labels(&fs::read(cables.capture()).expect("QEMU writes it"));
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
