//! Hosts in namespaces that find each other through real etcd: their ports, networks and peers come from there. Needs root;
//! without it each test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use weft_etcd::{Client, EtcdSettings};
use weft_testkit::etcd::{Etcd, etcd_is_missing};
use weft_testkit::{Validity, pause};
use weft_trial::{Trial, TrialConfig};
use weft_vswitch::Status;
use weft_vswitch::config::{Encryption, Tap};
use weft_vswitch::control::{Answer, Request, send_request};
use weft_vswitch::fleet::{
    FleetFile, FleetPort, FleetSettings, FleetStatus, Key, Store, StoreError,
};

const LIMIT: Duration = Duration::from_secs(60);
const PREFIX: &str = "/weft";

/// Hosts without a network in their files, and etcd on the first of them.
struct Fleet {
    trial: Trial,
    etcd: Etcd,
    settings: EtcdSettings,
    /// The objects of each host, which nobody has put yet.
    files: Vec<FleetFile>,
}

impl Fleet {
    /// Returns running hosts; `None` if they cannot be built, after reporting the reason.
    fn start(name: &str, hosts: usize) -> Option<Self> {
        let test = format!("fleet, {name}");
        if weft_testkit::lab_is_missing(&test, &[]) || etcd_is_missing(&test) {
            return None;
        }
        let mut config = TrialConfig::named(format!("vf-{name}"));
        config.lab.leaves = hosts;
        let mut trial = Trial::up(&config).unwrap();
        let node = trial.lab.fabric().node("h0").unwrap().namespace.clone();
        let address = IpAddr::V4(trial.lab.fabric().address(0));
        let etcd = Etcd::start_in(name, &node, address);
        let settings: EtcdSettings = toml::from_str(&etcd.toml()).unwrap();
        let mut files = vec![];
        for host in 0..hosts {
            trial.stop(host);
            let config = trial.config(host);
            files.push(FleetFile::import(config, &host_name(host)));
            (config.networks, config.ports, config.routes) = (vec![], vec![], vec![]);
            let fleet = FleetSettings::new(&host_name(host), settings.clone());
            let lease = weft_units::Duration::from_secs(2);
            config.fleet = Some(FleetSettings { lease, ..fleet });
            let _ = std::fs::remove_file(config.host.state_file().with_extension("fleet.json"));
            trial.start(host).unwrap();
        }
        Some(Self { trial, etcd, settings, files })
    }

    /// Runs `act` on the first host, as `weft fleet` would there.
    fn store<T: Send>(&self, act: impl FnOnce(&Store) -> T + Send) -> T {
        let open = || act(&Store::new(Client::new(&self.settings).unwrap(), PREFIX));
        self.trial.lab.enter("h0", open).unwrap()
    }

    /// Sets a key to a value, whatever it is.
    fn put_raw(&self, key: &Key, value: &str) {
        let put = || Client::new(&self.settings).unwrap().put(&key.path(PREFIX), value.as_bytes());
        self.trial.lab.enter("h0", put).unwrap().unwrap();
    }

    /// Puts the objects of some hosts.
    fn put(&self, hosts: &[usize]) {
        for &host in hosts {
            let written = self.store(|store| store.put(&self.files[host], false)).unwrap();
            assert!(written.set > 0, "{written:?}");
        }
    }

    fn status(&self, host: usize) -> Status {
        match send_request(&self.trial.control(host), &Request::Status).unwrap() {
            Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn fleet(&self, host: usize) -> FleetStatus {
        self.status(host).fleet.unwrap()
    }

    /// Waits until a host's status is as wanted.
    #[track_caller]
    fn wait(&self, host: usize, what: &str, is_true: impl Fn(&Status) -> bool) {
        let until = Instant::now() + LIMIT;
        loop {
            let status = self.status(host);
            if is_true(&status) {
                return;
            }
            assert!(Instant::now() < until, "not within {LIMIT:?}: {what}: {status:#?}");
            pause();
        }
    }

    /// Waits until a host has this number of ports, and of other hosts in each of its networks.
    #[track_caller]
    fn wait_for_peers(&self, host: usize, ports: usize, peers: usize) {
        self.wait(host, &format!("{ports} ports, {peers} peers"), |status| {
            let mut networks = status.networks.iter();
            status.ports.len() == ports && networks.all(|it| it.network.peers.len() == peers)
        });
    }

    /// Waits until a host has its part on its disk.
    #[track_caller]
    fn wait_until_kept(&mut self, host: usize) {
        let cache = self.trial.config(host).host.state_file().with_extension("fleet.json");
        let until = Instant::now() + LIMIT;
        while !std::fs::read_to_string(&cache).is_ok_and(|text| text.contains("machines")) {
            assert!(Instant::now() < until, "{} is not written", cache.display());
            pause();
        }
    }

    /// Pings from a tenant to itself on another host.
    fn pings(&self, tenant: &str, from: usize, to: usize) -> bool {
        self.pings_address(tenant, from, Trial::address(to))
    }

    fn pings_address(&self, tenant: &str, from: usize, to: Ipv4Addr) -> bool {
        let to = to.to_string();
        let mut ping = self.trial.command(tenant, from, "ping");
        let output = ping.args(["-c", "3", "-i", "0.1", "-W", "2", "-q", &to]).output().unwrap();
        output.status.success()
    }
}

fn host_name(host: usize) -> String {
    format!("host-{host}")
}

fn port(host: usize, name: &str) -> Key {
    Key::Port(host_name(host), name.into())
}

#[test]
fn three_hosts_find_each_other_and_unknown_machines_are_not_flooded() {
    let Some(fleet) = Fleet::start("find", 3) else { return };
    fleet.put(&[0, 1, 2]);
    for host in 0..3 {
        fleet.wait_for_peers(host, 2, 2);
        let status = fleet.fleet(host);
        assert!(
            status.registered && status.etcd.is_some() && status.faults.is_empty(),
            "{status:?}"
        );
    }
    for (tenant, from, to) in [("red", 0, 1), ("blue", 0, 1), ("red", 2, 0), ("blue", 2, 1)] {
        assert!(fleet.pings(tenant, from, to), "{tenant} from {from} to {to}");
    }
    let status = fleet.status(0);
    assert!(status.networks.iter().all(|it| !it.network.flood), "{:?}", status.networks);
    // A machine that no host has: its address is known to the tenant, and to nobody else.
    let neighbour = ["neigh", "add", "192.168.7.99", "lladdr", "02:00:00:00:99:99", "dev", "eth0"];
    let output = fleet.trial.command("red", 0, "ip").args(neighbour).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!fleet.pings_address("red", 0, Ipv4Addr::new(192, 168, 7, 99)));
    let red = |status: &Status| status.ports.iter().find(|it| it.name == "red").unwrap().clone();
    let after = red(&fleet.status(0));
    assert!(after.dropped["unknown_machine"] >= 3, "{after:?}");
    assert!(fleet.store(Store::check).unwrap().is_empty());
}

/// The life of two pods: ports that only their hosts know of, and whose policies come from etcd.
#[test]
fn ports_added_by_command_are_known_to_other_hosts_and_wait_for_their_policies() {
    let Some(mut fleet) = Fleet::start("pods", 2) else { return };
    let networks = FleetFile { networks: fleet.files[0].networks.clone(), ..FleetFile::default() };
    fleet.store(|store| store.put(&networks, false)).unwrap();
    let red = |fleet: &Fleet, host: usize| {
        let mut ports = fleet.files[host].ports.iter().map(|it| it.port.clone());
        ports.find(|port| port.name == "red").unwrap()
    };
    let vni = red(&fleet, 0).vni;
    for host in 0..2 {
        let mut port = red(&fleet, host);
        port.name = format!("cni/pods/{host}/eth0");
        port.labels = [("uid".to_owned(), format!("uid-{host}"))].into();
        port.await_policies = true;
        let answer =
            send_request(&fleet.trial.control(host), &Request::AddPort { port: port.into() });
        assert!(matches!(answer, Ok(Answer::Done)), "{answer:?}");
    }
    (0..2).for_each(|host| fleet.wait_for_peers(host, 1, 1));
    assert!(fleet.fleet(0).faults.is_empty(), "{:?}", fleet.fleet(0).faults);
    assert!(!fleet.pings("red", 0, 1), "no policies yet");

    let policies = |host: usize| Key::PortPolicies(host_name(host), format!("pod-{host}"));
    let own = |host: usize, groups: &str| {
        format!(r#"{{"vni":{vni},"labels":{{"uid":"uid-{host}"}},"security-groups":[{groups}]}}"#)
    };
    fleet.put_raw(&policies(0), &own(0, ""));
    fleet.put_raw(&policies(1), &own(1, r#""web""#));
    fleet
        .wait(1, "the group is missing", |status| status.fleet.as_ref().unwrap().faults.len() == 1);
    assert!(!fleet.pings("red", 0, 1), "a group that is missing allows nothing");
    let web = r#"{"name":"web","rules":["allow ingress icmp"]}"#;
    fleet.put_raw(&Key::SecurityGroup("web".into()), web);
    let until = Instant::now() + LIMIT;
    while !fleet.pings("red", 0, 1) {
        assert!(Instant::now() < until, "the policies are not in force");
    }
    assert!(!fleet.pings("red", 1, 0), "the group allows no egress");

    // The revisions at which the places of machines were made.
    let machines = |fleet: &Fleet| {
        let list = || Client::new(&fleet.settings).unwrap().list(&Key::network(PREFIX, vni));
        let entries = fleet.trial.lab.enter("h0", list).unwrap().unwrap().entries;
        let is_machine = |key: &[u8]| key.windows(8).any(|part| part == b"machines");
        entries.iter().filter(|it| is_machine(&it.key)).map(|it| it.created).collect::<Vec<_>>()
    };
    let before = machines(&fleet);
    assert_eq!(before.len(), 2);
    fleet.trial.stop(0);
    fleet.trial.start(0).unwrap();
    fleet.wait_for_peers(0, 1, 1);
    let until = Instant::now() + LIMIT;
    while !fleet.pings("red", 0, 1) {
        assert!(Instant::now() < until, "the policies are not in force again");
    }
    assert_eq!(machines(&fleet), before, "a start deletes no place");
    let name = "cni/pods/1/eth0".to_owned();
    let answer = send_request(&fleet.trial.control(1), &Request::RemovePort { name });
    assert!(matches!(answer, Ok(Answer::Done)), "{answer:?}");
    fleet.wait_for_peers(0, 1, 0);
    assert_eq!(machines(&fleet).len(), 1);
}

#[test]
fn a_host_without_etcd_goes_on_and_follows_again() {
    let Some(mut fleet) = Fleet::start("lost", 3) else { return };
    fleet.put(&[0, 1, 2]);
    (0..3).for_each(|host| fleet.wait_for_peers(host, 2, 2));
    assert!(fleet.pings("red", 0, 1));
    fleet.wait_until_kept(1);
    fleet.etcd.kill(0);
    for host in 0..3 {
        fleet.wait(host, "etcd is lost", |status| {
            let fleet = status.fleet.as_ref().unwrap();
            fleet.etcd.is_none() && !fleet.registered && fleet.error.is_some()
        });
    }
    assert!(fleet.pings("red", 0, 1), "an open connection");
    assert!(fleet.pings("blue", 2, 1), "a new one");
    // A daemon that starts without etcd has what it knew.
    fleet.trial.stop(1);
    fleet.trial.start(1).unwrap();
    fleet.wait_for_peers(1, 2, 2);
    assert!(fleet.pings("red", 1, 2));

    fleet.etcd.start_again(0);
    for host in 0..3 {
        fleet.wait(host, "etcd is back", |status| {
            let fleet = status.fleet.as_ref().unwrap();
            fleet.etcd.is_some() && fleet.registered && fleet.error.is_none()
        });
    }
    fleet.store(|store| store.delete(&port(2, "blue"))).unwrap();
    fleet.wait(2, "the port is gone", |status| status.ports.len() == 1);
    fleet.wait(0, "its host is no peer of blue", |status| {
        status.networks.iter().any(|it| it.network.peers.len() == 1)
    });
    // History that is gone is listed again.
    fleet.etcd.kill(0);
    fleet.wait(1, "etcd is lost", |status| status.fleet.as_ref().unwrap().etcd.is_none());
    fleet.etcd.start_again(0);
    let compacted = || {
        let client = Client::new(&fleet.settings).unwrap();
        let now = client.put("/other", b"").unwrap();
        client.compact(now)
    };
    fleet.trial.lab.enter("h0", compacted).unwrap().unwrap();
    fleet.put(&[2]);
    fleet.wait_for_peers(0, 2, 2);
    fleet.wait_for_peers(2, 2, 2);
    assert!(fleet.pings("blue", 0, 2));
}

#[test]
fn a_port_that_moves_is_followed_and_a_lease_that_ended_renewed() {
    let Some(fleet) = Fleet::start("move", 3) else { return };
    fleet.put(&[0, 1]);
    (0..2).for_each(|host| fleet.wait_for_peers(host, 2, 1));
    fleet.wait(2, "no ports", |status| status.ports.is_empty() && status.networks.is_empty());
    assert!(fleet.pings("red", 0, 1));
    // All on one machine: the other host opens the interface in the same namespace.
    let moved = fleet.store(|store| store.move_port("host-1", "red", "host-2")).unwrap();
    assert_eq!((moved.set, moved.deleted), (2, 1));
    fleet.wait(2, "the port is here", |status| status.ports.len() == 1);
    fleet.wait(1, "the port has left", |status| status.ports.len() == 1);
    let until = Instant::now() + LIMIT;
    while !fleet.pings("red", 0, 1) {
        assert!(Instant::now() < until, "the port is not followed");
    }
    assert!(fleet.pings("blue", 0, 1));
    // A place that is taken, and a host that still has ports or lives.
    let mut taken = fleet.files[1].clone();
    taken.ports.iter_mut().for_each(|port| port.host = host_name(2));
    let error = fleet.store(|store| store.put(&taken, false)).unwrap_err();
    assert!(matches!(error, StoreError::Contradiction { .. }), "{error}");
    assert!(error.to_string().contains("weft fleet move"), "{error}");
    let removed = fleet.store(|store| store.delete(&Key::Host(host_name(1))));
    assert!(removed.unwrap_err().to_string().contains("stop its daemon"));

    // A pause longer than the lease: etcd deletes the host, which registers again.
    fleet.etcd.pause(0);
    fleet.wait(2, "the lease ran out", |status| !status.fleet.as_ref().unwrap().registered);
    fleet.etcd.resume(0);
    fleet.wait(2, "registered again", |status| status.fleet.as_ref().unwrap().registered);
    let alive = Key::Alive(host_name(2)).path(PREFIX);
    let is_alive = || Client::new(&fleet.settings).unwrap().get(&alive).unwrap().is_some();
    assert!(fleet.trial.lab.enter("h0", is_alive).unwrap());
}

#[test]
fn bad_values_are_named_and_change_nothing() {
    let Some(mut fleet) = Fleet::start("bad", 2) else { return };
    fleet.put(&[0, 1]);
    (0..2).for_each(|host| fleet.wait_for_peers(host, 2, 1));
    let before = fleet.status(0);
    let network = Key::Network(100);
    fleet.put_raw(&port(0, "red"), r#"{"name":"red","vni":100,"mac":"03:00:00:00:07:01"}"#);
    fleet.put_raw(&network, r#"{"reliable":"perhaps"}"#);
    fleet.put_raw(&port(0, "other"), r#"{"name":"another"}"#);
    fleet.wait(0, "three faults", |status| status.fleet.as_ref().unwrap().faults.len() == 3);
    let faults = fleet.fleet(0).faults;
    assert!(faults[&port(0, "red").path(PREFIX)].contains("group"), "{faults:?}");
    assert!(faults[&network.path(PREFIX)].contains("perhaps"), "{faults:?}");
    assert!(faults[&port(0, "other").path(PREFIX)].contains("vni"), "{faults:?}");
    assert!(fleet.pings("red", 0, 1));
    let names = |status: &Status| status.ports.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&fleet.status(0)), names(&before));
    let checked = fleet.store(Store::check).unwrap();
    for key in [port(0, "red"), network, port(0, "other")] {
        assert!(checked.contains_key(&key.to_string()), "{checked:?}");
    }
    // A port whose namespace is missing is left out, and the others are not.
    fleet.store(|store| store.delete(&port(0, "other"))).unwrap();
    let mut file = fleet.files[0].clone();
    let mut lost = file.ports[0].port.clone();
    lost.mac = "02:00:00:00:07:77".parse().unwrap();
    (lost.name, lost.addresses) = ("lost".into(), vec![]);
    let tap = Tap {
        interface: "eth9".into(),
        namespace: Some("weft-nowhere".into()),
        persistent: false,
        mtu: None,
    };
    lost.tap = Some(tap);
    file.ports.push(FleetPort { host: host_name(0), port: lost });
    fleet.store(|store| store.put(&file, false)).unwrap();
    fleet.wait(0, "the port is left out", |status| {
        let faults = &status.fleet.as_ref().unwrap().faults;
        faults.len() == 1 && faults.get("port lost").is_some_and(|it| it.contains("weft-nowhere"))
    });
    assert!(fleet.pings("red", 0, 1));

    // A host that goes: its ports first, then its name.
    fleet.trial.stop(1);
    let kept = fleet.store(|store| store.delete(&Key::Host(host_name(1))));
    assert!(kept.unwrap_err().to_string().contains("has ports"));
    for name in ["red", "blue"] {
        fleet.store(|store| store.delete(&port(1, name))).unwrap();
    }
    fleet.store(|store| store.delete(&Key::Host(host_name(1)))).unwrap();
    fleet
        .wait(0, "no peers", |status| status.networks.iter().all(|it| it.network.peers.is_empty()));
    // A name that another host has.
    fleet.trial.config(1).fleet.as_mut().unwrap().name = host_name(0);
    fleet.trial.start(1).unwrap();
    fleet.wait(1, "the name is taken", |status| {
        let fleet = status.fleet.as_ref().unwrap();
        fleet.error.as_ref().is_some_and(|it| it.contains("that lives")) && !fleet.registered
    });
}

#[test]
fn only_hosts_whose_keys_are_in_etcd_are_accepted() {
    let Some(mut fleet) = Fleet::start("keys", 2) else { return };
    for host in 0..2 {
        fleet.trial.stop(host);
        let identity = fleet.etcd.folder().join(format!("identity-{host}"));
        let key = weft_seal::PrivateKey::new([7 + u8::try_from(host).unwrap(); 32]);
        std::fs::write(&identity, key.to_hex()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&identity, mode).unwrap();
        let config = fleet.trial.config(host);
        config.host.encryption =
            Encryption { identity: Some(identity), ..Encryption::of_mode("required") };
        config.fleet.as_mut().unwrap().identities = true;
        // It was registered without a key, and is now with one.
        fleet.trial.start(host).unwrap();
    }
    fleet.put(&[0, 1]);
    (0..2).for_each(|host| fleet.wait_for_peers(host, 2, 1));
    let until = Instant::now() + LIMIT;
    while !fleet.pings("red", 0, 1) {
        assert!(Instant::now() < until, "{:#?}", fleet.status(0));
    }
    let encryption = fleet.status(0).encryption;
    assert!(encryption.authenticates && encryption.connections.0 > 0, "{encryption:?}");
}

/// Runs etcdctl on etcd's host, with the certificate of the test's own client.
fn etcdctl(fleet: &Fleet, words: &[&str]) {
    let node = fleet.trial.lab.fabric().node("h0").unwrap().namespace.clone();
    let client = fleet.etcd.client();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &node, "etcdctl"]).env("ETCDCTL_API", "3");
    command.arg("--endpoints").arg(&fleet.etcd.endpoints()[0]);
    command.arg("--cacert").arg(&fleet.etcd.authority.certificate);
    command.arg("--cert").arg(&client.certificate).arg("--key").arg(&client.key).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

#[test]
fn a_host_with_a_role_of_its_own_registers_and_follows_and_writes_nothing_else() {
    if !weft_testkit::can_run("fleet, roles", "etcdctl", &["version"], "etcd-client") {
        return;
    }
    let Some(mut fleet) = Fleet::start("roles", 2) else { return };
    // The commands of docs/fleet.md.
    for host in ["host-0", "host-1"] {
        etcdctl(&fleet, &["role", "add", host]);
        let grant = ["role", "grant-permission", host];
        let granted =
            |rights: &str, key: &str| etcdctl(&fleet, &[&grant[..], &[rights, key]].concat());
        etcdctl(&fleet, &[&grant[..], &["read", "/weft/v1/", "--prefix"]].concat());
        granted("readwrite", &format!("/weft/v1/hosts/{host}"));
        granted("readwrite", &format!("/weft/v1/alive/{host}"));
        etcdctl(&fleet, &["user", "add", host, "--no-password"]);
        etcdctl(&fleet, &["user", "grant-role", host, host]);
    }
    for operator in ["root", "client"] {
        etcdctl(&fleet, &["user", "add", operator, "--no-password"]);
        etcdctl(&fleet, &["user", "grant-role", operator, "root"]);
    }
    etcdctl(&fleet, &["auth", "enable"]);
    let mut settings = vec![];
    for host in 0..2 {
        fleet.trial.stop(host);
        let issued = fleet.etcd.authority.issue(&host_name(host), &[], Validity::Current);
        let mut own = fleet.settings.clone();
        let tls = own.tls.as_mut().unwrap();
        (tls.certificate, tls.key) = (Some(issued.certificate), Some(issued.key));
        fleet.trial.config(host).fleet.as_mut().unwrap().etcd = own.clone();
        settings.push(own);
        fleet.trial.start(host).unwrap();
    }
    fleet.put(&[0, 1]);
    (0..2).for_each(|host| fleet.wait_for_peers(host, 2, 1));
    for host in 0..2 {
        let status = fleet.fleet(host);
        assert!(status.registered && status.faults.is_empty(), "{status:?}");
    }
    assert!(fleet.pings("red", 0, 1));

    // With a host's certificate, nothing of the others and no tenant's port can be written.
    let as_host = |key: &Key| {
        let put = || Client::new(&settings[1]).unwrap().put(&key.path(PREFIX), b"{}");
        fleet.trial.lab.enter("h0", put).unwrap().unwrap_err().to_string()
    };
    let others = [
        Key::Host(host_name(0)),
        Key::Alive(host_name(0)),
        port(0, "red"),
        port(1, "red"),
        Key::Network(100),
    ];
    for key in others {
        let error = as_host(&key);
        assert!(error.contains("PermissionDenied") && error.contains("a role"), "{key}: {error}");
    }
    // A host without a role says so, and goes on with what it has.
    fleet.wait_until_kept(1);
    etcdctl(&fleet, &["user", "revoke-role", "host-1", "host-1"]);
    fleet.trial.stop(1);
    fleet.trial.start(1).unwrap();
    fleet.wait(1, "it is refused", |status| {
        let fleet = status.fleet.as_ref().unwrap();
        let error = fleet.error.as_deref().unwrap_or_default();
        !fleet.registered && error.contains("PermissionDenied") && error.contains("a role")
    });
    fleet.wait_for_peers(1, 2, 1);
    assert!(fleet.pings("red", 0, 1));
    etcdctl(&fleet, &["user", "grant-role", "host-1", "host-1"]);
    fleet.wait(1, "it is registered", |status| status.fleet.as_ref().unwrap().registered);
}
