//! Tests of the labels that programs give their packets, read from the packets between two network namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with,
    sockopt::set_socket_recv_buffer_size_force,
};

use crate::pair::run;
use crate::processes::compile;
use crate::two_namespaces::{TwoHosts, two_hosts};

/// The first of the UDP ports at which devices receive, and their number.
const RECEIVE_PORTS: std::ops::Range<u16> = 0x5000..0x5100;

/// The length from which a frame is full of a message's bytes.
const MESSAGE: usize = 1000;

/// A packet socket (packet(7)) that sees the frames of all interfaces of a host.
struct Sniffer(OwnedFd);

/// The labels of the packets that one host sent.
#[derive(Debug, Default)]
struct Labels {
    /// The traffic classes and the source ports of messages.
    traffic_classes: BTreeSet<u8>,
    source_ports: BTreeSet<u16>,
    /// Numbers of shorter packets, mostly ACKs, by traffic class. Those that set a connection up belong to no queue pair
    /// yet.
    short: BTreeMap<u8, usize>,
}

impl Labels {
    /// Returns the traffic class of most short packets.
    fn of_acknowledgements(&self) -> Option<u8> {
        self.short.iter().max_by_key(|(_, count)| **count).map(|(class, _)| *class)
    }
}

impl Sniffer {
    fn on(hosts: &TwoHosts) -> Self {
        // ETH_P_ALL of linux/if_ether.h, in network order: sent frames, too.
        const ALL: u16 = 3_u16.to_be();
        let protocol = std::num::NonZeroU32::new(ALL.into()).map(Protocol::from_raw);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = || socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol);
        let socket = hosts.0.enter("h1", open).unwrap().unwrap();
        set_socket_recv_buffer_size_force(&socket, 32 << 20).unwrap();
        Self(socket)
    }

    /// Returns the labels of the packets since the socket was opened, by their source.
    fn labels(&self) -> BTreeMap<Ipv4Addr, Labels> {
        let (mut labels, mut bytes) = (BTreeMap::<Ipv4Addr, Labels>::new(), vec![0; 1 << 17]);
        while let Ok((len, _)) = recv(self.0.as_fd(), &mut bytes, RecvFlags::empty()) {
            let packet = &bytes[..len];
            // IPv4 without options, a header of 20 bytes, and protocol 17, UDP.
            if len < 28 || packet[0] != 0x45 || packet[9] != 17 {
                continue;
            }
            let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            if RECEIVE_PORTS.contains(&port(22)) {
                let source: [u8; 4] = packet[12..16].try_into().unwrap();
                let of_host = labels.entry(source.into()).or_default();
                if len < MESSAGE {
                    *of_host.short.entry(packet[1]).or_default() += 1;
                } else {
                    of_host.traffic_classes.insert(packet[1]);
                    of_host.source_ports.insert(port(20));
                }
            }
        }
        labels
    }
}

#[test]
fn the_traffic_class_of_a_program_is_that_of_its_packets() {
    let Some(hosts) = two_hosts("the traffic class of a program") else { return };
    // The ECN bits are ECT(0), whatever the program asks for.
    for (option, expected) in [("", 0b10), (" --tclass=105", 0b0110_1010), (" --tclass=96", 98)] {
        let sniffer = Sniffer::on(&hosts);
        run(&hosts, &format!("ib_write_bw -n 100{option}"));
        let labels = sniffer.labels();
        let client = &labels[&hosts.0.fabric().address(1)];
        assert_eq!(client.traffic_classes, [expected].into(), "{option}: {labels:?}");
        assert!(client.source_ports.len() > 1, "{option}: it sprays over paths: {labels:?}");
        let server = &labels[&hosts.0.fabric().address(0)];
        assert_eq!(server.of_acknowledgements(), Some(expected), "{option}: {labels:?}");
    }
}

#[test]
fn a_flow_label_pins_a_queue_pair_only_where_the_environment_says_so() {
    let Some(hosts) = two_hosts("a flow label and a source port") else { return };
    let binary = compile("labels.c", &["-lmlx5"]);
    for (variable, pinned_by_label) in [("", false), ("env WEFT_PIN_FLOW_LABEL=on ", true)] {
        let sniffer = Sniffer::on(&hosts);
        let printed = run(&hosts, &format!("{variable}{} 0x68 0x5 50001", binary.display()));
        assert_eq!([printed.client, printed.server], ["done\n", "done\n"]);
        let labels = sniffer.labels();
        for host in [0, 1] {
            let of_host = &labels[&hosts.0.fabric().address(host)];
            assert_eq!(of_host.traffic_classes, [0x6a].into(), "{labels:?}");
            // The port that the program sets after half of its messages.
            assert!(of_host.source_ports.contains(&50_001), "{labels:?}");
            let (others, by_label) = (&of_host.source_ports - &[50_001].into(), [0xc005].into());
            assert_eq!(others == by_label, pinned_by_label, "{labels:?}");
            assert_eq!(others.len() == 1, pinned_by_label, "it sprays over paths: {labels:?}");
        }
    }
}
