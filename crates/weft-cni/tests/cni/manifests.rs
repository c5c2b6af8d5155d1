//! The files that the DaemonSet of dist/kubernetes writes on a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use weft_cni::{AddressKind, Config};

/// Runs the script of the first container for the node with an address, whose pods may choose kinds of addresses.
fn install(root: &Path, address: &str, allowed: &str) -> Output {
    install_with(root, address, &[("ALLOW_ADDRESSES", allowed)])
}

/// Runs the script with other variables.
fn install_with(root: &Path, address: &str, variables: &[(&str, &str)]) -> Output {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/kubernetes/chart/files/install.sh");
    let mut command = Command::new("sh");
    command.arg(script).env("ROOT", root).env("NODE_ADDRESS", address);
    command.env("HOSTS", "10.9.0.1 10.9.0.2 10.9.0.3").env("VNI", "100").env("NETWORK", "10.244");
    command.envs(variables.iter().copied());
    command.env("PLUGINS", env!("CARGO_BIN_EXE_weft-cni")).output().unwrap()
}

/// Returns the folder of a node that a test makes.
fn node(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("weft-cni-{test}-{}", std::process::id()))
}

/// Returns the configuration of the plugin in the list of a node, as a runtime passes it.
fn plugin(root: &Path) -> Value {
    let list = fs::read(root.join("etc/cni/net.d/10-weft.conflist")).unwrap();
    let list: Value = serde_json::from_slice(&list).unwrap();
    let mut plugin = list["plugins"][0].clone();
    for key in ["cniVersion", "name"] {
        plugin[key] = list[key].clone();
    }
    plugin
}

#[test]
fn a_node_gets_a_valid_configuration_and_the_plugin() {
    let root = node("node");
    // Again over what is there, as at an upgrade.
    for _ in 0..2 {
        let output = install(&root, "10.9.0.2", "");
        assert!(output.status.success(), "{output:?}");
    }
    let text = fs::read_to_string(root.join("etc/weft/vpc.toml")).unwrap();
    let config: weft_vswitch::config::Config = toml::from_str(&text).unwrap();
    config.check().unwrap();
    let peers: Vec<_> = config.networks[0].peers.iter().map(ToString::to_string).collect();
    assert_eq!(peers, ["10.9.0.1", "10.9.0.3"]);
    assert_eq!(config.ports[0].addresses, ["10.244.1.1/16"]);
    let plugin = Config::parse(plugin(&root).to_string().as_bytes()).unwrap();
    assert_eq!((plugin.name.as_str(), plugin.vni().unwrap()), ("pods", 100));
    let program = root.join("opt/cni/bin/weft-cni");
    let about = Command::new(program).env_clear().output().unwrap();
    assert!(String::from_utf8_lossy(&about.stdout).contains("1.1.0"), "{about:?}");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_node_of_a_fleet_has_its_network_from_etcd_and_its_pods_wait_for_policies() {
    let root = node("fleet");
    let etcd = [
        ("ETCD", "10.9.0.1:2379 10.9.0.2:2379"),
        ("ETCD_TLS", "/etc/weft/etcd"),
        ("NODE_NAME", "node-2"),
        ("AWAIT_POLICIES", "true"),
    ];
    let output = install_with(&root, "10.9.0.2", &etcd);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(root.join("etc/weft/vpc.toml")).unwrap();
    let config: weft_vswitch::config::Config = toml::from_str(&text).unwrap();
    config.check().unwrap();
    let fleet = config.fleet.unwrap();
    assert_eq!((fleet.name.as_str(), fleet.etcd.endpoints.len()), ("node-2", 2));
    assert!(fleet.etcd.tls.unwrap().key.unwrap().ends_with("tls.key"));
    assert_eq!((config.networks.len(), config.ports.len()), (0, 1));
    let plugin = Config::parse(plugin(&root).to_string().as_bytes()).unwrap();
    assert!(plugin.own.await_policies);
    fs::remove_dir_all(&root).unwrap();
    // Pods that wait for policies that nobody writes would never be reached.
    let output = install_with(&root, "10.9.0.2", &[("AWAIT_POLICIES", "true")]);
    assert!(!output.status.success() && !root.exists(), "{output:?}");
}

#[test]
fn a_node_that_is_not_listed_is_refused_by_its_address() {
    let root = node("unlisted");
    let output = install(&root, "10.9.0.9", "");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("10.9.0.9"), "{error}");
    assert!(!root.exists());
}

#[test]
fn pods_choose_no_address_unless_the_nodes_configuration_says_so() {
    let root = node("chosen");
    let cases = [
        ("", json!({}), vec![]),
        ("mac", json!({ "mac": true }), vec![AddressKind::Mac]),
        ("mac ips", json!({ "mac": true, "ips": true }), vec![AddressKind::Mac, AddressKind::Ips]),
    ];
    for (allowed, capabilities, kinds) in cases {
        let output = install(&root, "10.9.0.2", allowed);
        assert!(output.status.success(), "{output:?}");
        let plugin = plugin(&root);
        assert_eq!(plugin["capabilities"], capabilities);
        let config = Config::parse(plugin.to_string().as_bytes()).unwrap();
        assert_eq!(config.own.allow_addresses, kinds);
    }
    let output = install(&root, "10.9.0.2", "vni");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("ALLOW_ADDRESSES"), "{error}");
    fs::remove_dir_all(&root).unwrap();
}
