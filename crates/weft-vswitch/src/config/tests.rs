use std::path::PathBuf;

use weft_udp::EncryptionMode;

use super::*;

const WHOLE: &str = r#"
[host]
address = "10.1.0.2"
mtu = 1500

[[network]]
vni = 100
peers = ["10.2.0.2"]
gateways = ["192.168.7.254/24", "2001:db8::fe/64"]

[[port]]
name = "web"
vni = 100
mac = "02:00:00:00:07:01"
addresses = ["192.168.7.1/24", "2001:db8::1/64"]
acl = "edge"
security-groups = ["servers"]
tap = { interface = "eth0", namespace = "web" }

[port.egress]
rate = "1Gbps"

[[port]]
name = "guest"
vni = 100
mac = "02:00:00:00:07:03"
vhost-user = { socket = "/run/weft/guest.sock" }

[[route]]
vni = 100
mac = "02:00:00:00:07:02"
peer = "10.2.0.2"
addresses = ["192.168.8.2"]

[[route]]
vni = 100
to = "10.9.0.0/16"
via = "192.168.8.2"

[[acl]]
name = "edge"
default = "allow"
rules = ["deny ingress tcp to any port 22"]

[[security-group]]
name = "servers"
rules = ["allow ingress tcp to any port 80", "allow egress any"]
"#;

fn parse(text: &str) -> Result<Config, String> {
    let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
    config.check().map(|()| config).map_err(|error| error.to_string())
}

#[test]
fn a_whole_configuration_is_read_and_written_the_same() {
    let config = parse(WHOLE).unwrap();
    assert_eq!(config.ports[0].policies.acl.as_deref(), Some("edge"));
    assert_eq!(config.ports[0].prefixes().unwrap()[1].1, 64);
    assert_eq!(config.host.control, PathBuf::from(CONTROL));
    assert_eq!(toml::from_str(&toml::to_string(&config).unwrap()), Ok(config));
}

/// Checks that an IP packet of 1500 bytes carries 20 of IP, 8 of UDP, 8 of VXLAN, 28 of encryption, 16 and 16 of
/// the transport; of the remaining bytes 12 are virtio's header and 14 Ethernet's.
#[test]
fn the_tenant_mtu_follows_from_the_hosts_mtu_and_headers() {
    let host = parse(WHOLE).unwrap().host;
    assert_eq!((host.payload(), host.tenant_mtu()), (1404, 1378));
    let host = Host { encryption: Encryption::of_mode("off"), ..host };
    assert_eq!((host.payload(), host.tenant_mtu()), (1432, 1406));
    let host = Host { address: "2001:db8::1".parse().unwrap(), ..host };
    assert_eq!(host.payload(), 1412);
}

#[test]
fn encryption_is_preferred_and_its_former_table_is_refused_by_name() {
    let encrypted = |table: &str| {
        let text = WHOLE.replacen("mtu = 1500", &format!("mtu = 1500\n{table}"), 1);
        parse(&text).unwrap().host.encryption.settings().unwrap().config().unwrap()
    };
    assert_eq!(encrypted("").mode, EncryptionMode::Preferred);
    assert_eq!(encrypted("encryption = { mode = 'required' }").mode, EncryptionMode::Required);
    let file = std::env::temp_dir().join(format!("weft-vpc-{}.toml", std::process::id()));
    let old = "mtu = 1500\nseal = { secret = '/etc/weft/secret' }";
    std::fs::write(&file, WHOLE.replacen("mtu = 1500", old, 1)).unwrap();
    let error = Config::read(&file).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    for words in ["[host.seal] was removed", "[host.encryption] with mode = \"required\""] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn invalid_values_are_named() {
    for (old, new, words) in [
        ("mtu = 1500", "mtus = 1500", &["mtus", "mtu"][..]),
        ("mtu = 1500", "congestion = \"swft\"", &["host.congestion", "swift"]),
        ("mtu = 1500", "congestion = \"hpcc\"", &["host.congestion", "mp-rdma, nscc, rccc"]),
        ("mtu = 1500", "encryption = { mode = 'on' }", &["host.encryption.mode = on", "preferred"]),
        (
            "mtu = 1500",
            "encryption = { cipher = 'aes' }",
            &["host.encryption.cipher", "aes-128-gcm"],
        ),
        ("mtu = 1500", "encryption = { key = 'a' }", &["key", "preshared-key"]),
        ("mtu = 1500", "threads = 0", &["host.threads", "1 to 64"]),
        ("mtu = 1500", "threads = 65", &["host.threads", "65"]),
        ("mtu = 1500", "threads = 64\npaths = 1024", &["host.paths", "1024"]),
        ("vni = 100\npeers", "vni = 16777216\npeers", &["network.vni", "16777215"]),
        ("\"10.2.0.2\"]", "\"10.1.0.2\"]", &["network.peers", "other hosts"]),
        ("name = \"guest\"", "name = \"web\"", &["port.name", "web"]),
        ("02:00:00:00:07:03", "02:00:00:00:07:01", &["port.mac", "02:00:00:00:07:01 in network"]),
        (
            "vhost-user = ",
            "addresses = ['2001:db8::1/128']\nvhost-user = ",
            &["port.addresses", "2001:db8::1 in network 100"],
        ),
        (
            "vhost-user = { socket = \"/run/weft/guest.sock\" }",
            "tap = { interface = \"eth0\", namespace = \"web\" }",
            &["port.tap", "interface eth0 of namespace web"],
        ),
        ("name = \"guest\"", "nmae = \"guest\"", &["name"]),
        ("name = \"guest\"", "name = \"guest\"\ncolour = 1", &["colour"]),
        ("07:03", "07", &["02:00:00:00:07", "02:00:00:00:00:01"]),
        ("02:00:00:00:07:03", "03:00:00:00:07:03", &["group"]),
        ("192.168.7.1/24", "192.168.7.1/33", &["port.addresses", "192.168.7.1/33"]),
        ("acl = \"edge\"", "acl = \"edgy\"", &["edgy", "edge"]),
        (
            "vhost-user = ",
            "tap = { interface = 'a' }\nvhost-user = ",
            &["guest", "tap", "vhost-user"],
        ),
        ("deny ingress tcp", "deny ingres tcp", &["ingres", "ingress"]),
        ("[[route]]", "[[rout]]", &["rout"]),
        ("192.168.7.254/24", "192.168.7.254", &["network.gateways", "192.168.7.254"]),
        ("02:00:00:00:07:03", "02:77:65:66:74:01", &["port.mac", "gateway"]),
        ("to = \"10.9.0.0/16\"\n", "", &["mac", "peer", "to", "via"]),
        ("to = \"10.9.0.0/16\"", "to = \"10.9.0.1/16\"", &["10.9.0.1/16", "10.9.0.0/16"]),
        ("to = \"10.9.0.0/16\"", "to = \"10.9.0.0/16\"\nmetric = 1", &["metric"]),
        (
            "[[acl]]",
            "[[route]]\nvni = 100\nto = \"10.9.0.0/16\"\nvia = \"192.168.8.3\"\n\n[[acl]]",
            &["route", "10.9.0.0/16", "one"],
        ),
    ] {
        assert!(WHOLE.contains(old), "{old}");
        let error = parse(&WHOLE.replacen(old, new, 1)).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{new}: {error}");
    }
}

#[test]
fn the_schema_has_the_names_that_are_read() {
    let schema = schemars::schema_for!(Config).to_value();
    let names_of = |table: &str, key: &str| -> Vec<String> {
        let names = &schema["$defs"][table]["properties"][key]["enum"];
        let names = names.as_array().unwrap_or_else(|| panic!("{table}.{key} has no names"));
        names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    for (table, key, section) in [
        ("Host", "policy", ""),
        ("Host", "congestion", ""),
        ("Encryption", "mode", "[host.encryption]\n"),
        ("Encryption", "cipher", "[host.encryption]\n"),
    ] {
        let names = names_of(table, key);
        assert!(names.len() > 1, "{key}: {names:?}");
        for name in names {
            let text = format!("[host]\naddress = '10.1.0.2'\n{section}{key} = '{name}'\n");
            let config: Config = toml::from_str(&text).unwrap();
            config.check().unwrap();
        }
    }
}

/// Keys of later versions are refused by the version before, so they are written only where they are used.
#[test]
fn a_port_of_defaults_is_written_without_the_keys_of_later_versions() {
    let port = |socket: &str| -> Port {
        let head = "name = 'web'\nvni = 100\nmac = '02:00:00:00:07:01'\n[vhost-user]\n";
        toml::from_str(&format!("{head}socket = '/run/web.sock'\n{socket}")).unwrap()
    };
    let plain = serde_json::to_value(port("")).unwrap();
    assert_eq!(plain.get("labels"), None);
    // The order of keys is that of serde_json's features in a build.
    let keys: BTreeSet<_> = plain["vhost-user"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["connect", "memory-regions", "socket"].map(str::to_owned).into());
    let used = port("queue-pairs = 2\nmay-move = true");
    let written = serde_json::to_value(&used).unwrap();
    assert_eq!(written["vhost-user"].as_object().unwrap().len(), 5);
    assert_eq!(serde_json::from_value::<Port>(written).unwrap(), used);
}
