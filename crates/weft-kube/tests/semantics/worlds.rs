//! Random clusters and packets, small enough that most rules concern some packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use weft_kube::{Labels, Pod, Protocol, World};
use weft_units::Rng;
use weft_vpc::protocol;

use crate::{NODE, Packet};

const NAMESPACES: [&str; 3] = ["shop", "bank", "web"];
const KEYS: [&str; 2] = ["app", "tier"];
const VALUES: [&str; 3] = ["a", "b", "c"];
const PORTS: [u16; 5] = [53, 80, 443, 8080, 8090];
const NAMED: [&str; 2] = ["http", "dns"];
const OUTSIDE: [&str; 4] = [NODE, "192.0.2.7", "10.0.200.1", "2001:db8:1::7"];

/// Returns a cluster.
pub(crate) fn draw(rng: &mut Rng) -> World {
    let namespaces = NAMESPACES.map(|name| (name.to_owned(), labels(rng)));
    let pods = (0..4 + rng.below(8)).map(|number| pod(number, rng)).collect();
    let policies = (0..rng.below(6)).map(|number| {
        let value = json!({
            "metadata": { "name": format!("p{number}"), "namespace": pick(rng, &NAMESPACES) },
            "spec": spec(rng),
        });
        serde_json::from_value(value).unwrap()
    });
    World { policies: policies.collect(), namespaces: namespaces.into(), pods, networks: vec![] }
}

/// Returns a packet between pods, or between a pod and others.
pub(crate) fn packet(world: &World, rng: &mut Rng) -> Packet {
    let address = |rng: &mut Rng| -> IpAddr {
        let pod = &world.pods[rng.index(world.pods.len())];
        let own = pod.addresses.iter().nth(rng.index(pod.addresses.len().max(1)));
        match own {
            Some(own) if !rng.chance(1, 4) => *own,
            _ => pick(rng, &OUTSIDE).parse().unwrap(),
        }
    };
    let (source, mut destination) = (address(rng), address(rng));
    // A packet has addresses of one version, and two of them.
    while destination == source || destination.is_ipv4() != source.is_ipv4() {
        destination = if rng.chance(1, 8) {
            if source.is_ipv4() {
                "192.0.2.8".parse().unwrap()
            } else {
                "2001:db8:1::8".parse().unwrap()
            }
        } else {
            address(rng)
        };
    }
    let protocol = [protocol::TCP, protocol::TCP, protocol::UDP, 132, protocol::ICMP];
    Packet { source, destination, protocol: protocol[rng.index(5)], port: PORTS[rng.index(5)] }
}

fn pick<'a>(rng: &mut Rng, list: &[&'a str]) -> &'a str {
    list[rng.index(list.len())]
}

fn labels(rng: &mut Rng) -> Labels {
    let mut labels = Labels::new();
    for key in KEYS {
        if rng.chance(2, 3) {
            labels.insert(key.into(), pick(rng, &VALUES).into());
        }
    }
    labels
}

fn pod(number: u64, rng: &mut Rng) -> Pod {
    let mut addresses =
        BTreeSet::from([format!("10.0.{}.{number}", rng.below(3)).parse().unwrap()]);
    if rng.chance(1, 3) {
        addresses.insert(format!("2001:db8::{number}").parse().unwrap());
    }
    let mut ports = BTreeMap::<_, BTreeSet<u16>>::new();
    for name in NAMED {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            if rng.chance(1, 2) {
                ports.entry((protocol, name.to_owned())).or_default().insert(PORTS[rng.index(5)]);
            }
        }
    }
    Pod {
        namespace: pick(rng, &NAMESPACES).into(),
        name: format!("pod-{number}"),
        uid: format!("uid-{number}"),
        node: Some(format!("node-{}", rng.below(2))),
        labels: labels(rng),
        addresses,
        ports,
    }
}

fn spec(rng: &mut Rng) -> Value {
    let mut spec = json!({ "podSelector": selector(rng) });
    let types: &[Value] =
        &[json!([]), json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])];
    match rng.index(5) {
        4 => {}
        index => spec["policyTypes"] = types[index].clone(),
    }
    if rng.chance(3, 4) {
        spec["ingress"] = (0..rng.below(4)).map(|_| rule("from", rng)).collect();
    }
    if rng.chance(2, 3) {
        spec["egress"] = (0..rng.below(4)).map(|_| rule("to", rng)).collect();
    }
    spec
}

fn rule(peers: &str, rng: &mut Rng) -> Value {
    let mut rule = json!({});
    if rng.chance(4, 5) {
        rule[peers] = (0..1 + rng.below(2)).map(|_| peer(rng)).collect();
    }
    if rng.chance(3, 5) {
        rule["ports"] = (0..1 + rng.below(3)).map(|_| port(rng)).collect();
    }
    rule
}

fn peer(rng: &mut Rng) -> Value {
    match rng.below(4) {
        0 => json!({ "podSelector": selector(rng) }),
        1 => json!({ "namespaceSelector": selector(rng) }),
        2 => json!({ "namespaceSelector": selector(rng), "podSelector": selector(rng) }),
        _ => {
            let blocks = [
                ("10.0.0.0/16", vec!["10.0.1.0/24", "10.0.2.4/30"]),
                ("0.0.0.0/0", vec!["10.0.0.0/8"]),
                ("192.0.2.0/24", vec!["192.0.2.7/32"]),
                ("10.0.0.0/23", vec![]),
                ("2001:db8::/32", vec!["2001:db8:1::/48"]),
                ("::/0", vec!["2001:db8::4/126", "2001:db8::2/127"]),
            ];
            let (cidr, except) = &blocks[rng.index(blocks.len())];
            json!({ "ipBlock": { "cidr": cidr, "except": except } })
        }
    }
}

fn port(rng: &mut Rng) -> Value {
    let (protocol, number) = (pick(rng, &["TCP", "TCP", "UDP"]), PORTS[rng.index(5)]);
    match rng.below(6) {
        0 => json!({ "protocol": protocol }),
        1 => json!({ "port": number }),
        2 => json!({ "protocol": protocol, "port": number, "endPort": number + 30 }),
        3 => json!({ "protocol": "SCTP" }),
        4 => json!({ "protocol": protocol, "port": number }),
        _ => json!({ "protocol": protocol, "port": pick(rng, &NAMED) }),
    }
}

fn selector(rng: &mut Rng) -> Value {
    let (key, value) = (pick(rng, &KEYS), pick(rng, &VALUES));
    match rng.below(7) {
        0 | 1 => json!({}),
        2 | 3 => json!({ "matchLabels": { key: value } }),
        4 => {
            json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [value, "a"] }] })
        }
        5 => {
            json!({ "matchExpressions": [{ "key": key, "operator": "NotIn", "values": [value] }] })
        }
        _ => {
            let operator = pick(rng, &["Exists", "DoesNotExist"]);
            json!({ "matchExpressions": [{ "key": key, "operator": operator }] })
        }
    }
}
