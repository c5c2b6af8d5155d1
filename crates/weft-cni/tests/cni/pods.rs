//! Containers of two hosts: their traffic through losses, a restart of the daemon, and what is left after them.

use std::time::{Duration, Instant};

use serde_json::json;
use weft_lab::{Direction, Impairment};

use crate::harness::{Call, Hosts, address};

#[test]
fn containers_of_two_hosts_reach_each_other_over_paths_that_lose_packets() {
    let Some(mut hosts) = Hosts::up("loss") else { return };
    let (one, two) = (hosts.namespace(0), hosts.namespace(1));
    let mut first = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    first.arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0".into();
    let second = Call::new(hosts.config(1, "1.1.0"), "9a1b", &two);
    let (first_result, second_result) = (first.add(), second.add());
    for spine in 0..4 {
        let impairment = Impairment { loss: "2%".parse().unwrap(), ..Impairment::default() };
        hosts.trial.lab.impair(&format!("l1-s{spine}"), Direction::Both, &impairment).unwrap();
    }
    // Broadcasts are not retransmitted: the containers know each other before packets count.
    assert!(one.ping(&address(&second_result), 20) > 0);
    assert_eq!(one.ping(&address(&second_result), 400), 400);
    let status = hosts.status(0);
    // A ping has a packet in flight at a time, so its losses show by time-out as well.
    let retransmits = ["fast_retransmits", "timeout_retransmits"].map(|way| status.transport[way]);
    assert!(retransmits.iter().sum::<u64>() > 0, "{:?}", status.transport);
    let port = status.ports.iter().find(|port| port.name == "cni/pods/4f2c/eth0").unwrap();
    assert_eq!(port.labels["pod"], "cart-0");
    assert_eq!(port.labels["namespace"], "shop");
    // What was added by the plugin is there after a restart, with its routes.
    hosts.restart(0, 1);
    assert_eq!(one.ping(&address(&second_result), 100), 100);
    first.after(&first_result).done("CHECK");
    second.after(&second_result).done("CHECK");
    first.after(&first_result).done("DEL");
    assert!(!one.has("eth0") && hosts.reserved(0).is_empty() && hosts.ports(0).is_empty());
}

#[test]
fn a_container_is_removed_twice_and_after_its_namespace() {
    let Some(hosts) = Hosts::up("twice") else { return };
    let one = hosts.namespace(0);
    let call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    let result = call.add();
    call.after(&result).done("DEL");
    call.after(&result).done("DEL");
    call.done("DEL");
    assert!(!one.has("eth0") && hosts.reserved(0).is_empty() && hosts.ports(0).is_empty());
    call.add();
    drop(one);
    call.done("DEL");
    // As runtimes call it when they have no name of the namespace.
    call.run_with("DEL", call.config.to_string().as_bytes(), &[("CNI_NETNS", "")]);
    assert!(hosts.reserved(0).is_empty() && hosts.ports(0).is_empty());
}

#[test]
fn what_the_runtime_does_not_list_is_removed() {
    let Some(mut hosts) = Hosts::up("gc") else { return };
    let namespaces = [0, 1, 2].map(|index| hosts.namespace(index));
    let calls = [("a1", 0), ("b2", 1), ("c3", 2)]
        .map(|(id, index)| Call::new(hosts.config(0, "1.1.0"), id, &namespaces[index]));
    let results = calls.clone().map(|call| call.add());
    assert_eq!((hosts.reserved(0).len(), hosts.ports(0).len()), (3, 3));
    let [_, _, third] = namespaces;
    drop(third);
    // The port of the namespace that ended is left out now, and is not forgotten.
    hosts.restart(0, 2);
    let mut gc = calls[0].clone();
    gc.config["cni.dev/valid-attachments"] = json!([{ "containerID": "a1", "ifname": "eth0" }]);
    gc.done("GC");
    assert_eq!(hosts.ports(0), ["cni/pods/a1/eth0"]);
    assert_eq!(hosts.reserved(0), [address(&results[0])]);
    gc.done("GC");
    // A plugin for addresses without GC is called with DEL for each container.
    gc.config["cni.dev/valid-attachments"] = json!([]);
    gc.debian = true;
    gc.done("GC");
    assert!(hosts.reserved(0).is_empty() && hosts.ports(0).is_empty());
}

#[test]
fn an_address_that_another_container_had_is_reached_at_once() {
    let Some(hosts) = Hosts::up("again") else { return };
    let namespaces = [0, 1, 2].map(|index| hosts.namespace(index));
    let mut call = Call::new(hosts.config(0, "1.1.0"), "a1", &namespaces[0]);
    call.config["ipam"]["ranges"][0][0]["rangeEnd"] = "10.1.0.1".into();
    let before = call.add();
    Call::new(hosts.config(1, "1.1.0"), "b2", &namespaces[1]).add();
    let mac = || {
        let neighbours = namespaces[1].ip(&["neighbour", "show", "to", "10.1.0.1"]);
        neighbours[0]["lladdr"].clone()
    };
    assert!(namespaces[1].ping("10.1.0.1", 10) > 0);
    assert_eq!(mac(), before["interfaces"][0]["mac"]);
    call.done("DEL");
    let next = Call { container: "c3".into(), namespace: namespaces[2].path(), ..call };
    let after = next.add();
    assert_eq!(address(&after), "10.1.0.1");
    // Without an announcement the entry would be valid for at least 15 s more.
    let began = Instant::now();
    while mac() != after["interfaces"][0]["mac"] {
        assert!(began.elapsed() < Duration::from_secs(10), "{} is still used", mac());
    }
    assert_eq!(namespaces[1].ping("10.1.0.1", 10), 10);
}

#[test]
fn a_container_has_several_interfaces() {
    let Some(hosts) = Hosts::up("several") else { return };
    let (one, two) = (hosts.namespace(0), hosts.namespace(1));
    let networks = [("pods", 100, "eth0"), ("storage", 101, "net1")];
    let call = |host: usize, namespace, (name, vni, interface): (&str, u32, &str)| {
        let mut call = Call::new(hosts.config(host, "1.1.0"), "4f2c", namespace);
        call.config["name"] = name.into();
        call.config["vni"] = vni.into();
        let subnet = call.config["ipam"].to_string().replace("10.1.", &format!("10.{vni}."));
        call.config["ipam"] = serde_json::from_str(&subnet).unwrap();
        call.interface = interface.into();
        call
    };
    for network in networks {
        call(0, &one, network).add();
        let result = call(1, &two, network).add();
        assert!(one.ping(&address(&result), 10) > 0, "{network:?}");
    }
    // The second default route is left to the first interface.
    let routes = one.ip(&["route", "show", "default"]);
    assert_eq!((routes.as_array().unwrap().len(), &routes[0]["dev"]), (1, &json!("eth0")));
    call(0, &one, networks[1]).done("DEL");
    assert!(one.has("eth0") && !one.has("net1"));
}

#[test]
fn a_container_has_two_addresses_whatever_the_length_of_its_interfaces_name() {
    let Some(mut hosts) = Hosts::up("long") else { return };
    let one = hosts.namespace(0);
    for name in ["thirteen-byte", "fourteen-bytes", "fifteen-letters"] {
        let mut call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
        call.interface = name.into();
        call.config["allowAddresses"] = json!(["ips"]);
        call.config["runtimeConfig"] =
            json!({ "ips": ["10.1.9.9/16", "10.1.9.10/24", "10.1.9.11/32"] });
        call.config.as_object_mut().unwrap().remove("ipam");
        let result = call.add();
        call.after(&result).done("CHECK");
        // A daemon that starts again finds the interface with its addresses, and gives it them once.
        hosts.restart(0, 1);
        call.after(&result).done("CHECK");
        let addresses = one.ip(&["-4", "address", "show", "dev", name]);
        assert_eq!(addresses[0]["addr_info"].as_array().unwrap().len(), 3, "{addresses:?}");
        call.after(&result).done("DEL");
    }
}

#[test]
fn a_container_has_the_address_and_the_policies_that_it_is_configured_with() {
    let Some(mut hosts) = Hosts::up("chosen") else { return };
    let (one, two) = (hosts.namespace(0), hosts.namespace(1));
    let mut call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    call.config["runtimeConfig"] =
        json!({ "mac": "02:00:00:00:00:77", "ips": ["10.1.9.9/16", "10.1.9.10/16", "fd00::9/64"] });
    call.config["allowAddresses"] = json!(["mac", "ips"]);
    call.config.as_object_mut().unwrap().remove("ipam");
    call.config["mtu"] = 1300.into();
    call.config["policies"] = json!({ "sources": ["10.1.9.9/32"] });
    let result = call.add();
    assert_eq!(result["interfaces"][0]["mac"], "02:00:00:00:00:77");
    assert_eq!(result["interfaces"][0]["mtu"], 1300);
    assert_eq!(result["ips"].as_array().unwrap().len(), 3);
    call.after(&result).done("CHECK");
    let other = Call::new(hosts.config(1, "1.1.0"), "9a1b", &two).add();
    assert!(one.ping(&address(&other), 10) > 0);
    // A daemon that starts again finds the interface with its addresses, and gives it them once.
    hosts.restart(0, 1);
    assert_eq!(hosts.ports(0), ["cni/pods/4f2c/eth0"]);
    call.after(&result).done("CHECK");
    let addresses = one.ip(&["address", "show", "dev", "eth0"]);
    let addresses = addresses[0]["addr_info"].as_array().unwrap();
    let global = addresses.iter().filter(|it| it["scope"] == "global");
    assert_eq!(global.count(), 3, "{addresses:?}");
    call.after(&result).done("DEL");
    assert!(!one.has("eth0"));
    // The name of a policy that the daemon does not have.
    call.config["policies"] = json!({ "security-groups": ["none"] });
    assert_eq!(call.code("ADD"), 100);
    assert!(!one.has("eth0") && hosts.ports(0).is_empty());
}
