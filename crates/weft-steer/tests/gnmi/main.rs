//! Routers that are read and steered by gNMI, on public servers: gnxi's with OpenConfig's models, openconfig/gnmi's fake server
//! for Subscribe. Their state is that of a configuration; no packets follow it. Without `scripts/setup.sh gnmi` the tests report
//! that they were skipped.
#![allow(
    clippy::disallowed_methods,
    reason = "servers are real: they are waited for, by a real clock"
)]

mod fabric;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fabric::{Folder, Sampler, Servers, gnmi_get, inventory, leaf_spine, program};
use weft_route::{AlarmRules, ControllerConfig, EventKind, Flow};
use weft_steer::{Change, Daemon, Inventory, Lease, MarksSource, RouterEntry, SteerConfig};

const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// The protocol number of UDP.
const UDP: u8 = 17;

/// A fabric of gnxi's servers, and gnxi's client, which asks them for what Weft has set.
struct Place {
    folder: Folder,
    servers: Servers,
    client: PathBuf,
}

impl Place {
    fn new(test: &str) -> Option<Self> {
        let (server, client) = (program(test, "gnmi-servers")?, program(test, "gnmi_get")?);
        let folder = Folder::new(test);
        let servers = Servers::gnxi(&server, &folder, &leaf_spine());
        Some(Self { folder, servers, client })
    }

    fn inventory(&self) -> String {
        inventory(&self.folder, &self.servers.addresses)
    }

    /// Returns the leaf l0.
    fn leaf(&self) -> RouterEntry {
        toml::from_str::<Inventory>(&self.inventory()).unwrap().routers.swap_remove(0)
    }

    /// Returns the static routes of the leaf l0, as gnxi's client prints them.
    fn routes(&self) -> String {
        gnmi_get(&self.client, &self.folder, &self.servers.addresses[0])
    }
}

fn lease(place: &Place) -> Lease {
    Lease::new(
        format!("test/{}/{}", std::process::id(), place.servers.addresses[0]),
        Duration::from_secs(60),
    )
}

#[test]
fn a_route_is_set_seen_by_another_client_and_deleted() {
    let Some(place) = Place::new("route") else { return };
    let (leaf, lease) = (place.leaf(), lease(&place));
    assert!(!place.routes().contains("10.2.0.2/32"));
    let change = Change::by(DESTINATION, ["e5"]);
    leaf.carry_out(&leaf.plan(&change).unwrap(), &lease).unwrap();
    let router = leaf.await_change(&change, Duration::from_secs(5)).unwrap();
    assert_eq!(router.routes.iter().filter(|route| route.steered).count(), 1);
    let routes = place.routes();
    assert!(routes.contains("10.2.0.2/32") && routes.contains(r#"set-tag\":200"#), "{routes}");
    // It is replaced as a whole: two next hops, then one.
    for ports in [&["e4", "e5"][..], &["e4"]] {
        let change = Change::by(DESTINATION, ports.iter().copied());
        leaf.carry_out(&leaf.plan(&change).unwrap(), &lease).unwrap();
        leaf.await_change(&change, Duration::from_secs(5)).unwrap();
    }
    let back = Change::back(DESTINATION);
    let plan = leaf.plan(&back).unwrap();
    assert!(plan.commands[0].starts_with("delete /network-instances/"), "{:?}", plan.commands);
    leaf.carry_out(&plan, &lease).unwrap();
    leaf.await_change(&back, Duration::from_secs(5)).unwrap();
    let routes = place.routes();
    assert!(!routes.contains("10.2.0.2/32") && routes.contains("10.2.0.0/24"), "{routes}");
    assert!(leaf.plan(&back).unwrap().commands.is_empty());
    // Another controller's lease prevents a change.
    let plan = leaf.plan(&change).unwrap();
    let other = Lease::new("other/1/1", Duration::from_secs(60));
    let error = leaf.carry_out(&plan, &other).unwrap_err().to_string();
    assert!(error.contains("steers this fabric"), "{error}");
    assert!(!place.routes().contains("10.2.0.2/32"));
    lease.release(&leaf).unwrap();
}

#[test]
fn a_server_that_refuses_is_named_with_the_path_and_the_fix() {
    let Some(place) = Place::new("refusal") else { return };
    let read = |change: &dyn Fn(&str) -> String| {
        let text = change(&place.inventory());
        let inventory: Inventory = toml::from_str(&text).unwrap();
        inventory.routers[0].read().unwrap_err().to_string()
    };
    let address = &place.servers.addresses[0];
    let start = format!("router \"l0\": gNMI at {address}: ");
    std::fs::write(place.folder.path.join("wrong"), "wrong").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(place.folder.path.join("wrong"), mode).unwrap();
    let error = read(&|text| text.replace("/password'", "/wrong'"));
    assert!(
        error.starts_with(&start) && error.contains("set `user` and `password_file`"),
        "{error}"
    );
    let error = read(&|text| text.replace("routes = 'static'", ""));
    assert!(
        error.contains("get /network-instances/network-instance[name=default]/afts: "),
        "{error}"
    );
    assert!(error.contains("set `routes = \"static\"` if it has no AFT"), "{error}");
    let error = read(&|text| text.replace("name = 'e4'", "name = 'e9'"));
    assert!(error.contains("get /interfaces/interface[name=e0] and 3 others: "), "{error}");
    // The same without a client's certificate, with another authority, without TLS, and where nothing listens.
    let (certificate, key) = (&place.folder.client.certificate, &place.folder.client.key);
    let identity =
        format!(", certificate = '{}', key = '{}'", certificate.display(), key.display());
    let error = read(&|text| text.replace(&identity, ""));
    assert!(error.contains("check `tls.certificate` and `tls.key`"), "{error}");
    let ca = place.folder.authority.certificate.display().to_string();
    let error = read(&|text| text.replace(&ca, &certificate.display().to_string()));
    assert!(error.contains("was not issued by an authority"), "{error}");
    let error = read(&|text| text.replace(address.as_str(), "127.0.0.1:1"));
    assert!(error.contains("cannot connect: ") && error.contains("correct `address`"), "{error}");
}

#[test]
fn marks_are_those_that_the_queues_of_a_server_count() {
    let test = "marks";
    let Some(program) = program(test, "fake_server") else { return };
    for (kind, queues) in [
        (
            "openconfig",
            r#"update { path { elem { name: "qos" } elem { name: "interfaces" }
            elem { name: "interface" key { key: "interface-id" value: "e0" } } elem { name: "output" } elem { name: "queues" }
            elem { name: "queue" key { key: "name" value: "UC3" } } elem { name: "state" } elem { name: "ecn-marked-pkts" } }
            val { uint_val: 600 } }"#,
        ),
        (
            "sonic",
            r#"update { path { elem { name: "COUNTERS" } elem { name: "e0" } elem { name: "Queues" } }
            val { json_ietf_val: "{\"e0:3\": {\"SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS\": \"600\"}}" } }"#,
        ),
    ] {
        let folder = Folder::new(&format!("{test}-{kind}"));
        let port = r#"update { path { elem { name: "interfaces" } elem { name: "interface" key { key: "name" value: "e0" } }
            elem { name: "state" } } val { json_ietf_val: "{\"openconfig-interfaces:ifindex\": 1, \"oper-status\": \"UP\", \"counters\": {\"out-octets\": \"9000\"}}" } }"#;
        let responses = format!("responses {{ update {{ {port} {queues} }} }}");
        let server = Servers::fake(&program, &folder, &responses);
        let config = format!(
            "listen = '127.0.0.1:0'\ncontroller.alarm.window = '1s'\n[[router]]\nname = 'l0'\nagent = '10.0.0.1'\n\
             port = [{{ name = 'e0', speed = '40Mbps', to.host = '10.1.0.2' }}]\n\
             [router.apply.gnmi]\naddress = '{}'\ntls = {}\nroutes = 'static'\nmarks = '{kind}'\ntimeout = '30s'\n",
            server.addresses[0],
            folder.tls()
        );
        let mut daemon =
            Daemon::open(SteerConfig::parse(&config).unwrap(), SteerConfig::inventory).unwrap();
        turn_until(&mut daemon, "exact marks", |daemon| {
            let view = daemon.view();
            let view = view.lock().unwrap();
            view.links.iter().any(|it| it.port == "e0" && it.marks_from == Some(MarksSource::Queue))
        });
        daemon.close().unwrap();
    }
}

/// Runs the daemon until a condition holds.
fn turn_until(daemon: &mut Daemon, what: &str, mut condition: impl FnMut(&Daemon) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition(daemon) {
        if Instant::now() > deadline {
            let events: Vec<_> = daemon.events().iter().map(|it| format!("{it:?}")).collect();
            panic!("{what} never came; {:?}\n{}", daemon.view(), events.join("\n"));
        }
        daemon.turn().unwrap();
    }
}

fn has(daemon: &Daemon, kind: EventKind) -> bool {
    daemon.events().iter().any(|event| event.kind == kind)
}

/// Two flows share a link whose marks sFlow shows. The controller moves one; as there are more marks afterwards, it undoes the
/// move.
#[test]
fn an_alarm_leads_to_a_set_and_a_move_that_does_not_help_to_a_delete() {
    let Some(place) = Place::new("loop") else { return };
    let mut config =
        SteerConfig::parse(&format!("listen = '127.0.0.1:0'\n{}", place.inventory())).unwrap();
    let window = weft_units::Duration::from_secs(1);
    let alarm = AlarmRules { window, marks: 100, ..AlarmRules::default() };
    config.controller = ControllerConfig { alarm, ..ControllerConfig::default() };
    let mut daemon = Daemon::open(config, SteerConfig::inventory).unwrap();
    turn_until(&mut daemon, "the lease", |it| it.view().lock().unwrap().steers);
    let fabric = daemon.controller().fabric().clone();
    let leaf = fabric.find("l0").unwrap();
    let busy = fabric.link_of_port(leaf, "e4").unwrap();
    let flows = [2, 3].map(|host| {
        let ends = |port| {
            let at = |network, port| SocketAddrV4::new([10, network, 0, host].into(), port);
            (at(1, port), at(2, 4791))
        };
        let is_on = |(from, to): &(SocketAddrV4, SocketAddrV4)| {
            let flow = Flow::new((*from).into(), (*to).into(), UDP).unwrap();
            fabric.path(&flow).links().contains(&busy)
        };
        (49_152..).map(ends).find(is_on).unwrap()
    });
    let mut sampler = Sampler::new([10, 0, 0, 1], daemon.listening().unwrap());
    let began = Instant::now();
    let mut sent = 0;
    // 16 samples of 1 in 100 packets a second and flow: 18 Mb/s each, on a link of 40 Mb/s. All are marked.
    let mut sample = |daemon: &Daemon| {
        while sent < began.elapsed().as_millis() * 16 / 1000 {
            sent += 1;
            let now = daemon.controller().fabric();
            for flow in flows {
                let tuple = Flow::new(flow.0.into(), flow.1.into(), UDP).unwrap();
                let output = if now.path(&tuple).links().contains(&busy) { 3 } else { 4 };
                sampler.sample(flow, output);
                // After the move each counts threefold.
                let more = if has(daemon, EventKind::Applied) { 2 } else { 0 };
                (0..more).for_each(|_| sampler.sample(flow, output));
            }
        }
    };
    turn_until(&mut daemon, "the move in the server", |it| {
        sample(it);
        has(it, EventKind::Applied)
    });
    let made = daemon.controller().moves().next().cloned().unwrap();
    let prefix = made.prefix.to_string();
    let routes = place.routes();
    assert!(made.router == "l0" && routes.contains(&prefix), "{made:?}\n{routes}");
    assert!(daemon.commands(made.id).unwrap()[0].starts_with("replace /network-instances/"));
    turn_until(&mut daemon, "the move undone", |it| {
        sample(it);
        has(it, EventKind::Undone)
    });
    let routes = place.routes();
    assert!(!routes.contains(&prefix) && routes.contains("10.2.0.0/24"), "{routes}");
    daemon.close().unwrap();
}
