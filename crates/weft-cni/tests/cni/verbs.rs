//! Every verb in every version of the specification, and each error by its code.

use serde_json::{Value, json};

use crate::harness::{Call, Hosts, address, code};

const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

#[test]
fn every_verb_does_in_every_version_what_the_specification_demands() {
    let Some(hosts) = Hosts::up("verbs") else { return };
    let one = hosts.namespace(0);
    for (index, version) in VERSIONS.into_iter().enumerate() {
        for debian in [false, true] {
            let mut call = Call::new(hosts.config(0, version), "4f2c", &one);
            call.debian = debian;
            let versions: Value = serde_json::from_slice(&call.run("VERSION").stdout).unwrap();
            assert_eq!(versions, json!({ "cniVersion": version, "supportedVersions": VERSIONS }));
            let result = call.add();
            assert_eq!(result["cniVersion"], version);
            check_form(&result, index, &one.path());
            assert_eq!(call.code("ADD"), 101, "the interface is there");
            assert_eq!(hosts.reserved(0).len(), 1, "the failed attempt frees no address of others");
            let after = call.after(&result);
            // CHECK came with 0.4.0, STATUS and GC with 1.1.0.
            if index >= 4 {
                after.done("CHECK")
            } else {
                assert_eq!(after.code("CHECK"), 1)
            }
            let mut gc = call.clone();
            gc.config["cni.dev/valid-attachments"] =
                json!([{ "containerID": "4f2c", "ifname": "eth0" }]);
            for (verb, call) in [("STATUS", &call), ("GC", &gc)] {
                if version == "1.1.0" { call.done(verb) } else { assert_eq!(call.code(verb), 1) }
            }
            assert!(one.has("eth0"));
            after.done("DEL");
            assert!(!one.has("eth0") && hosts.reserved(0).is_empty() && hosts.ports(0).is_empty());
        }
    }
}

/// Checks the form of a result against the version with this index.
fn check_form(result: &Value, version: usize, sandbox: &str) {
    if version < 2 {
        let ip4 = &result["ip4"];
        assert!(ip4["ip"].as_str().unwrap().starts_with("10.1.0."), "{result}");
        assert_eq!(ip4["routes"][0]["dst"], "0.0.0.0/0");
        return;
    }
    let (interface, ip) = (&result["interfaces"][0], &result["ips"][0]);
    assert_eq!((&interface["name"], &interface["sandbox"]), (&json!("eth0"), &json!(sandbox)));
    assert_eq!(interface["mac"].as_str().unwrap().len(), 17);
    assert_eq!((&ip["interface"], &ip["gateway"]), (&json!(0), &json!("10.1.255.254")));
    assert_eq!(ip.get("version").is_some(), version < 5, "{result}");
    assert_eq!(interface.get("mtu").is_some(), version == 6, "{result}");
    assert_eq!(result["routes"][0]["dst"], "0.0.0.0/0");
}

#[test]
fn a_wrong_call_is_an_error_with_the_code_of_its_cause() {
    let Some(hosts) = Hosts::up("wrong") else { return };
    let one = hosts.namespace(0);
    let call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    let text = call.config.to_string();
    let variables = [
        ("CNI_COMMAND", "REMOVE"),
        ("CNI_CONTAINERID", ""),
        ("CNI_CONTAINERID", "../4f2c"),
        ("CNI_IFNAME", ""),
        ("CNI_IFNAME", "sixteen-letters-"),
        ("CNI_IFNAME", "a/b"),
        ("CNI_NETNS", ""),
        ("CNI_ARGS", "K8S_POD_NAME"),
        ("CNI_ARGS", "MAC=02:00:00:00:00:07"),
        ("CNI_ARGS", "IP=10.1.0.7/16"),
    ];
    for change in variables {
        assert_eq!(code(&call.run_with("ADD", text.as_bytes(), &[change])), 4, "{change:?}");
    }
    let gone = [("CNI_NETNS", "/run/netns/weft-there-is-none")];
    assert_eq!(code(&call.run_with("ADD", text.as_bytes(), &gone)), 3);
    let with = |key: &str, value: Value| {
        let mut config = call.config.clone();
        config[key] = value;
        config.to_string()
    };
    let configs = [
        (1, with("cniVersion", "1.2.0".into())),
        (2, with("ipMasq", true.into())),
        (6, "{".into()),
        (6, "[]".into()),
        (6, String::new()),
        (6, with("vni", "100".into())),
        (6, with("policies", json!({ "acl": 7 }))),
        (7, with("vni", (1 << 24).into())),
        (7, with("name", "a/b".into())),
        (7, with("name", Value::Null)),
        (7, with("ipam", json!({ "type": "no-such-program" }))),
        (7, with("ipam", json!({ "type": "../host-local" }))),
        (7, with("runtimeConfig", json!({ "mac": "02:00:00:00:00:07" }))),
        (7, with("runtimeConfig", json!({ "ips": ["10.1.0.7/16"] }))),
        (7, with("args", json!({ "cni": { "IPS": ["10.1.0.7/16"] } }))),
        (6, with("allowAddresses", json!(["vni"]))),
    ];
    for (expected, config) in &configs {
        assert_eq!(code(&call.run_with("ADD", config.as_bytes(), &[])), *expected, "{config}");
    }
    let mut allowed = call.clone();
    allowed.config["allowAddresses"] = json!(["mac", "ips"]);
    let text = allowed.config.to_string();
    let group = [("CNI_ARGS", "MAC=01:00:00:00:00:01")];
    assert_eq!(code(&allowed.run_with("ADD", text.as_bytes(), &group)), 4);
    for (key, value) in [("mac", json!("pod")), ("ips", json!(["10.1.0.7"]))] {
        allowed.config["runtimeConfig"] = json!({ key: value });
        assert_eq!(allowed.code("ADD"), 7, "{key}");
    }
    assert_eq!(call.code("GC"), 7, "without the list of the runtime nothing is removed");
    assert_eq!(call.code("CHECK"), 7, "there is nothing to compare with");
    assert!(!one.has("eth0") && hosts.reserved(0).is_empty() && hosts.ports(0).is_empty());
    // An error of the plugin for addresses keeps its code: the range has one address.
    let mut full = call.clone();
    full.config["ipam"]["ranges"][0][0]["rangeEnd"] = "10.1.0.1".into();
    full.add();
    let two = hosts.namespace(1);
    let next = Call { container: "9a1b".into(), namespace: two.path(), ..full.clone() };
    let output = next.run("ADD");
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(error["msg"].as_str().unwrap().starts_with("host-local: "), "{error}");
    full.done("DEL");
}

#[test]
fn a_difference_from_the_result_of_add_is_found() {
    let Some(hosts) = Hosts::up("differs") else { return };
    let one = hosts.namespace(0);
    let call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    let result = call.add();
    let check = call.after(&result);
    check.done("CHECK");
    let address = format!("{}/16", address(&result));
    let changes: [(&[&str], &[&str]); 3] = [
        (
            &["ip", "route", "del", "default"],
            &["ip", "route", "add", "default", "via", "10.1.255.254"],
        ),
        (
            &["ip", "link", "set", "eth0", "mtu", "1000"],
            &["ip", "link", "set", "eth0", "mtu", "1378"],
        ),
        (&["ip", "address", "add", "10.7.0.1/16", "dev", "eth0"], &["ip", "link", "show"]),
    ];
    for (index, (change, back)) in changes.into_iter().enumerate() {
        assert!(one.run(change).status.success());
        // Addresses that others have added do not matter.
        if index < 2 {
            assert_eq!(check.code("CHECK"), 102, "{change:?}")
        } else {
            check.done("CHECK")
        }
        assert!(one.run(back).status.success());
        check.done("CHECK");
    }
    assert!(one.run(&["ip", "address", "del", &address, "dev", "eth0"]).status.success());
    assert_eq!(check.code("CHECK"), 102);
    check.done("DEL");
    assert_eq!(check.code("CHECK"), 102);
    // An interface that is not the plugin's is not removed.
    assert!(one.run(&["ip", "link", "add", "eth0", "type", "veth"]).status.success());
    assert_eq!(call.code("ADD"), 101);
    check.done("DEL");
    assert!(one.has("eth0"));
}

#[test]
fn without_the_daemon_a_call_is_to_be_tried_again_and_nothing_is_reserved() {
    let Some(mut hosts) = Hosts::up("silent") else { return };
    let (one, two) = (hosts.namespace(0), hosts.namespace(1));
    let call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    let mut unknown = call.clone();
    unknown.config["vni"] = 555.into();
    assert_eq!(unknown.code("STATUS"), 50);
    call.done("STATUS");
    call.add();
    hosts.trial.stop(0);
    let next = Call { container: "9a1b".into(), namespace: two.path(), ..call.clone() };
    assert_eq!((next.code("ADD"), next.code("STATUS")), (11, 51));
    // The address is its tenant's as long as the port is in the daemon's state.
    assert_eq!((call.code("DEL"), hosts.reserved(0).len()), (11, 1));
    hosts.trial.start(0).unwrap();
    call.done("DEL");
    assert!(!one.has("eth0") && hosts.reserved(0).is_empty());
    next.add();
    next.done("DEL");
}
