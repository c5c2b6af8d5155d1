//! The settings of `weft plan ports --for`, on kernel routers that hash: each link carries the flows that the plan
//! predicts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::UdpSocket;
use std::process::Command;

use serde_json::Value;
use weft_lab::{Lab, LabSpec, LinkCounters};
use weft_testkit::{HASH_SEED, lab_is_missing};

/// Datagrams of a flow, and their bytes with IP, UDP and Ethernet headers.
const DATAGRAMS: u64 = 50;
const SIZE: u64 = 1000 + 42;
/// RoCEv2's port.
const PORT: u16 = 4791;

/// Returns the description of a lab for `weft plan`: each host is a server with one NIC.
fn cluster(lab: &Lab, spec: &LabSpec) -> String {
    let fabric = lab.fabric();
    let mut text =
        String::from("machine = { gpus = 1, nics = 1 }\nhash.algorithm = \"linux-l3l4-fields\"\n");
    let spines: Vec<String> = (0..spec.spines).map(|spine| format!("s{spine}")).collect();
    for leaf in 0..spec.leaves {
        let seed = fabric.leaf(leaf).hash_seed;
        writeln!(text, "[[switch]]\nname = \"l{leaf}\"\nup = {spines:?}\nseed = {seed}").unwrap();
    }
    for spine in &spines {
        writeln!(text, "[[switch]]\nname = {spine:?}").unwrap();
    }
    for host in 0..spec.leaves * spec.hosts_per_leaf {
        let (leaf, address) = (host / spec.hosts_per_leaf, fabric.address(host));
        let server = format!("name = \"h{host}\"\nnics = [[\"l{leaf}\"]]");
        writeln!(text, "[[server]]\n{server}\naddresses = [\"{address}\"]").unwrap();
    }
    text
}

/// Returns a plan for a program, of all hosts to all others.
fn plan(file: &str, stack: &str) -> Value {
    let words = ["plan", "ports", file, "--traffic", "all-to-all", "--for", stack, "--json"];
    let output = Command::new(env!("CARGO_BIN_EXE_weft")).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Sends every flow of the plan from its source port.
fn send(lab: &Lab, flows: &[Value]) {
    let word = |flow: &Value, key: &str| flow[key].as_str().unwrap().to_owned();
    for flow in flows {
        let [from, source, destination] =
            ["from", "source", "destination"].map(|key| word(flow, key));
        let port = u16::try_from(flow["source_port"].as_u64().unwrap()).unwrap();
        let sent = lab.enter(&from, || {
            let socket = UdpSocket::bind((source.as_str(), port))?;
            socket.connect((destination.as_str(), PORT))?;
            (0..DATAGRAMS).try_for_each(|_| socket.send(&[0; 1000]).map(|_| ()))
        });
        sent.unwrap().unwrap_or_else(|error| panic!("{flow}: {error}"));
    }
}

#[test]
fn kernel_routers_carry_the_flows_that_the_plan_for_a_program_predicts() {
    if lab_is_missing("planned settings in a lab", &[HASH_SEED]) {
        return;
    }
    let name = format!("wpp{}", std::process::id());
    let spec = LabSpec { hosts_per_leaf: 4, ..LabSpec::named(name) };
    let lab = Lab::up(&spec).unwrap();
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("planned-lab.toml");
    std::fs::write(&file, cluster(&lab, &spec)).unwrap();
    // Without receivers the hosts would answer with ICMP.
    let receiver = |host: usize| {
        let address = lab.fabric().address(host);
        lab.enter(&format!("h{host}"), || UdpSocket::bind((address, PORT)).unwrap()).unwrap()
    };
    let _receivers: Vec<UdpSocket> = (0..8).map(receiver).collect();
    for stack in ["mooncake", "mori", "uccl"] {
        let value = plan(file.to_str().unwrap(), stack);
        let flows = value["queue_pairs"].as_array().unwrap();
        let mut predicted: BTreeMap<String, u64> = BTreeMap::new();
        for flow in flows {
            let path: Vec<&str> = flow["path"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap())
                .collect();
            if let [leaf, spine, _] = path[..] {
                *predicted.entry(format!("{leaf}-{spine}")).or_default() += 1;
            }
        }
        let before = lab.counters().unwrap();
        send(&lab, flows);
        let after = lab.counters().unwrap();
        let mut busiest = 0;
        for (number, link) in lab.fabric().links.iter().enumerate().skip(8) {
            let bytes = |counters: &[LinkCounters]| counters[number].forward.bytes;
            // ARP takes less than half a flow.
            let counted =
                (bytes(&after) - bytes(&before) + DATAGRAMS * SIZE / 2) / (DATAGRAMS * SIZE);
            let flows = predicted.get(&link.name).copied().unwrap_or(0);
            assert_eq!(counted, flows, "{stack}: flows on {}", link.name);
            busiest = busiest.max(counted);
        }
        assert_eq!(value["busiest_planned"], busiest, "{stack}");
        assert!(value["busiest_random"].as_u64() > Some(busiest), "{stack}: {value}");
    }
}
