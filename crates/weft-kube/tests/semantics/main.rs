//! Network policies of random clusters, translated and judged by Weft's own security groups, against an evaluator that follows
//! the text of the API (networking.k8s.io/v1, NetworkPolicy).

mod oracle;
mod worlds;

use std::net::IpAddr;

use weft_kube::{Owner, Settings, Translation, World, translate};
use weft_units::Seed;
use weft_vpc::{
    Action, ConnectionsConfig, Direction, Frame, Icmp, Ip, Network, Policies, PortPolicies, Tcp,
    TcpFlags, Transport, Udp, protocol,
};
use weft_vswitch::fleet::{Key, Object};
use weft_wire::{EtherType, MacAddr};

/// Number of clusters, and of packets in each.
const WORLDS: u64 = 400;
const PACKETS: u64 = 100;

/// The node's own address in the pods' network.
const NODE: &str = "10.0.0.250";

/// A packet that begins a connection.
#[derive(Clone, Copy, Debug)]
struct Packet {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    port: u16,
}

impl Packet {
    fn frame(&self) -> Frame {
        let (source, destination) = (40_000, self.port);
        let transport = match self.protocol {
            protocol::TCP => Transport::Tcp(Tcp {
                source,
                destination,
                sequence: 0,
                acknowledgement: 0,
                flags: TcpFlags::default(),
                header_len: 20,
            }),
            protocol::UDP => Transport::Udp(Udp { source, destination, len: 8 }),
            protocol::ICMP => Transport::Icmp(Icmp { kind: 8, code: 0, identifier: 7 }),
            _ => Transport::Other,
        };
        let ip = Ip {
            source: self.source,
            destination: self.destination,
            protocol: self.protocol,
            hop_limit: 64,
            fragment: None,
            transport_offset: 34,
            transport_len: 20,
            transport,
        };
        Frame {
            destination: MacAddr([2, 0, 0, 0, 0, 2]),
            source: MacAddr([2, 0, 0, 0, 0, 1]),
            vlan: None,
            ethertype: EtherType::IPV4,
            network_offset: 14,
            len: 54,
            network: Network::Ip(ip),
        }
    }
}

fn settings() -> Settings {
    let owner = Owner::new("test").unwrap();
    Settings { owner, pod_network: Some(100), node_addresses: vec![NODE.parse().unwrap()] }
}

/// Returns the policies of all hosts.
fn policies(translation: &Translation) -> Policies {
    let mut policies = Policies::default();
    for (key, object) in &translation.objects {
        match (key, object) {
            (Key::Set(name), Object::Set(set)) => {
                drop(policies.sets.insert(name.clone(), set.clone()))
            }
            (_, Object::SecurityGroup(group)) => policies.security_groups.push(group.clone()),
            _ => {}
        }
    }
    policies.connections = ConnectionsConfig::default();
    policies.check().unwrap();
    policies
}

/// Returns `true` if the groups of the pod with an address let a packet pass; packets of other addresses have no port here.
fn passes(
    world: &World,
    translation: &Translation,
    policies: &Policies,
    direction: Direction,
    packet: &Packet,
) -> bool {
    let own = match direction {
        Direction::Ingress => packet.destination,
        Direction::Egress => packet.source,
    };
    let Some(pod) = world.pods.iter().find(|pod| pod.addresses.contains(&own)) else { return true };
    let key = Key::PortPolicies(pod.node.clone().unwrap(), format!("k8s.test.{}", pod.uid));
    let Object::PortPolicies(object) = &translation.objects[&key] else { panic!("{key}") };
    assert_eq!((object.vni, &object.labels["uid"]), (100, &pod.uid));
    let port =
        PortPolicies { security_groups: object.security_groups.clone(), ..PortPolicies::default() };
    match policies.security_groups_of(&port, (1, 2)).unwrap() {
        Some(groups) => groups.explain(direction, &packet.frame()).action == Action::Allow,
        None => true,
    }
}

#[test]
fn weft_decides_as_the_api_says() {
    let (mut allowed, mut denied) = (0, 0);
    for index in 0..WORLDS {
        let mut rng = Seed(31).child("world", index).rng();
        let world = worlds::draw(&mut rng);
        let translation = translate(&settings(), &world);
        assert_eq!(translation.objects, translate(&settings(), &world).objects);
        let policies = policies(&translation);
        for _ in 0..PACKETS {
            let packet = worlds::packet(&world, &mut rng);
            for direction in [Direction::Ingress, Direction::Egress] {
                let expected = oracle::allows(&world, direction, &packet);
                let got = passes(&world, &translation, &policies, direction, &packet);
                assert_eq!(
                    got, expected,
                    "world {index}, {direction}: {packet:?}\n{:#?}\n{:#?}",
                    world.pods, world.policies
                );
                *if expected { &mut allowed } else { &mut denied } += 1;
            }
        }
    }
    // Worlds in which everything or nothing passes would show little.
    assert!(allowed > 10_000 && denied > 10_000, "{allowed} allowed, {denied} denied");
}
