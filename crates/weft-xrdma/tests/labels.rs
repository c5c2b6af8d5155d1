//! The labels of channels on the wire: two nodes of this process, whose packets a packet socket (packet(7)) sees.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use weft_units::Duration;
use weft_xrdma::{Event, Node, Options, Payload};
// The archive is made with the library.
use weft_verbs as _;

/// Returns a socket that sees this host's IPv4 packets; `None` if this user may not have one.
fn sniffer() -> Option<OwnedFd> {
    // ETH_P_IP of linux/if_ether.h, in network order.
    const IP: u16 = 0x0800_u16.to_be();
    let protocol = std::num::NonZeroU32::new(IP.into()).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let opened = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol);
    if let Err(error) = &opened {
        weft_testkit::skip(
            "labels of channels",
            &format!("no packet socket: {error} (run as root)"),
        );
    }
    let socket = opened.ok()?;
    // Whoever may open it may also have more room than others (capabilities(7), CAP_NET_ADMIN).
    let _ = set_socket_recv_buffer_size_force(&socket, 16 << 20);
    Some(socket)
}

/// Adds the traffic class and the source port of each UDP packet that was sent from one of `ports`.
fn add_labels(sniffer: &OwnedFd, ports: &[u16], labels: &mut BTreeSet<(u8, u16)>) {
    let mut bytes = vec![0; 1 << 17];
    while let Ok((len, _)) = recv(sniffer.as_fd(), &mut bytes, RecvFlags::empty()) {
        let packet = &bytes[..len];
        if len >= 28 && packet[0] == 0x45 && packet[9] == 17 {
            let port = u16::from_be_bytes([packet[20], packet[21]]);
            if ports.contains(&port) {
                labels.insert((packet[1], port));
            }
        }
    }
}

/// Returns two adjacent ports of RoCE v2's that are free now.
fn free_ports() -> [u16; 2] {
    let is_free = |port: u16| std::net::UdpSocket::bind(("0.0.0.0", port)).is_ok();
    let first = (0xe000..0xffff).step_by(2).find(|&port| is_free(port) && is_free(port + 1));
    let first = first.expect("a few of thousands are free");
    [first, first + 1]
}

#[test]
fn channels_have_the_class_and_take_the_ports_of_their_options_in_turn() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("labels");
    weft_testkit::load_verbs(&weft_testkit::link_verbs(folder, false));
    let Some(sniffer) = sniffer() else { return };
    let ports = free_ports();
    let options: Options =
        format!("traffic_class=96 source_ports={}-{}", ports[0], ports[1]).parse().unwrap();
    let (mut server, mut client) =
        (Node::new(options.clone()).unwrap(), Node::new(options).unwrap());
    let at: SocketAddr = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let tickets = [0, 1].map(|_| client.connect(at).unwrap());
    let (mut channels, mut received, mut labels) = (Vec::new(), 0, BTreeSet::new());
    let until = client.now() + Duration::from_secs(30);
    while received < tickets.len() {
        assert!(client.now() < until, "{} channels, {received} messages", channels.len());
        while let Some(event) = client.poll_event() {
            if let Event::Connected { channel, .. } = event {
                let now = client.now();
                client.context().send(now, channel, Payload::Copy(&[7; 1000])).unwrap();
                channels.push(channel);
            }
        }
        while let Some(event) = server.poll_event() {
            received +=
                usize::from(matches!(event, Event::Channel(weft_msg::Event::Message { .. })));
        }
        for node in [&mut client, &mut server] {
            node.wait(Some(Duration::from_micros(100)));
        }
        // Packets of other programs of this host would fill the socket's buffer.
        add_labels(&sniffer, &ports, &mut labels);
    }
    // DSCP 24, and ECT(0) for the ECN bits that the option leaves at zero.
    assert_eq!(labels, ports.map(|port| (98, port)).into());
}
