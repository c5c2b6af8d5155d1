//! Two Weft hosts and an ordinary VXLAN router, FRR with a kernel bridge, that share a network by EVPN. Needs root; without it the
//! test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use weft_testkit::pause;
use weft_trial::{Trial, TrialConfig};
use weft_vswitch::Status;
use weft_vswitch::config::{Encryption, Port};
use weft_vswitch::control::{Answer, Request, send_request};
use weft_vswitch::evpn::EvpnSettings;

mod router;

use router::{Machine, Router, run};

const LIMIT: Duration = Duration::from_secs(60);
const VNI: u32 = 100;
/// The machine behind the router, and one that moves.
const BEHIND: (&str, &str) = ("02:00:00:00:07:03", "192.168.7.3/24");
const MOVING: (&str, &str) = ("02:00:00:00:07:09", "192.168.7.9/24");

/// Two Weft hosts, and a router on the third: the route reflector of the first host, and an external neighbour of the second.
struct World {
    router: Router,
    trial: Trial,
    at: Vec<IpAddr>,
}

impl World {
    fn up() -> Option<Self> {
        let installed = ["zebra", "bgpd"]
            .iter()
            .all(|it| std::path::Path::new("/usr/lib/frr").join(it).exists());
        if weft_testkit::lab_is_missing("EVPN", &[]) {
            return None;
        }
        if !installed {
            weft_testkit::skip("EVPN", "no FRR (sudo apt-get install frr)");
            return None;
        }
        let mut config = TrialConfig::named(format!("ev-{}", std::process::id()));
        (config.lab.leaves, config.lab.spines) = (3, 1);
        config.tenants = vec!["red".into()];
        config.host.encryption = Encryption::of_mode("required");
        let mut trial = Trial::up(&config).unwrap();
        let at: Vec<_> = (0..3).map(|host| IpAddr::V4(trial.lab.fabric().address(host))).collect();
        (0..3).for_each(|host| trial.stop(host));
        for host in 0..2 {
            let config = trial.config(host);
            config.routes.clear();
            let network = &mut config.networks[0];
            (network.evpn, network.peers) = (true, [at[1 - host]].into());
            let asn = 65_000 + host;
            let text = format!(
                "as = {asn}\n[[neighbour]]\naddress = '{}'\nas = 65000\nhold-time = '9s'\n",
                at[2]
            );
            config.evpn = Some(toml::from_str::<EvpnSettings>(&text).unwrap());
        }
        let node = trial.lab.fabric().node("h2").unwrap().namespace.clone();
        let bgp = format!(
            " bgp router-id {router}\n no bgp default ipv4-unicast\n no bgp ebgp-requires-policy\n \
             neighbor {first} remote-as 65000\n neighbor {first} passive\n neighbor {second} remote-as 65001\n \
             neighbor {second} passive\n neighbor {second} ebgp-multihop 8\n \
             neighbor {second} advertisement-interval 0\n address-family l2vpn evpn\n  \
             neighbor {first} activate\n  neighbor {first} route-reflector-client\n  \
             neighbor {second} activate\n  advertise-all-vni\n exit-address-family",
            router = at[2],
            first = at[0],
            second = at[1],
        );
        let router = Router::start(&node, at[2], VNI, &bgp);
        for host in 0..2 {
            trial.start(host).unwrap();
        }
        let world = Self { router, trial, at };
        let namespace = world.trial.namespace("red", 2);
        let (mac, address) = BEHIND;
        world
            .router
            .plug("red", &Machine { namespace: &namespace, mac, address, mtu: world.mtu() });
        for host in ["x0", "x2"] {
            let namespace = world.namespace(host);
            run(Command::new("ip").args(["netns", "add", &namespace]));
            // The machine is where it sends from, so that it sends nothing by itself.
            let disable = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            weft_lab::enter(&namespace, disable).unwrap().unwrap();
        }
        Some(world)
    }

    fn mtu(&self) -> u16 {
        self.status(0).tenant_mtu
    }

    /// Returns the name of a namespace that ends with the trial.
    fn namespace(&self, name: &str) -> String {
        format!("weft-{}.{name}", self.trial.lab.name())
    }

    fn status(&self, host: usize) -> Status {
        match self.ask(host, &Request::Status) {
            Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&self, host: usize, request: &Request) -> Answer {
        send_request(&self.trial.control(host), request).unwrap()
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
            let routes = || self.router.show("show bgp l2vpn evpn");
            assert!(Instant::now() < until, "{what}: {status:#?}\n{}", routes());
            pause();
        }
    }

    /// Waits until the router's kernel has an entry of a machine at a host, or none.
    #[track_caller]
    fn wait_for_entry(&self, mac: &str, host: Option<usize>) {
        let until = Instant::now() + LIMIT;
        loop {
            let entries = self.router.entries("vxlan100");
            let entry = entries.lines().find(|it| it.starts_with(mac) && it.contains(" dst "));
            let wanted = host.map(|host| format!(" dst {} ", self.at[host]));
            let is_there = match (entry, &wanted) {
                (Some(entry), Some(wanted)) => entry.contains(wanted.as_str()),
                (entry, wanted) => entry.is_none() && wanted.is_none(),
            };
            if is_there {
                return;
            }
            let routes = || self.router.show("show bgp l2vpn evpn");
            assert!(Instant::now() < until, "{mac} at {wanted:?}: {entries}\n{}", routes());
            pause();
        }
    }

    /// Waits until a host knows a machine at another one, or at a port of its own.
    #[track_caller]
    fn wait_for_place(&self, host: usize, mac: &str, place: Option<&str>) {
        let mac = mac.parse().unwrap();
        self.wait(host, &format!("{mac} at {place:?}"), |status| {
            status.networks[0].addresses.get(&mac).map(String::as_str) == place
        });
    }

    /// Checks that a machine answers another one.
    #[track_caller]
    fn ping(&self, from: &str, to: &str) {
        let to = to.split('/').next().unwrap();
        let mut ping = Command::new("ip");
        ping.args([
            "netns",
            "exec",
            &self.namespace(from),
            "ping",
            "-c",
            "3",
            "-i",
            "0.02",
            "-W",
            "5",
            "-q",
            to,
        ]);
        let output = ping.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(" 0% packet loss"), "{from} to {to}: {text}");
    }

    /// Sends bytes by TCP from one machine to another, which sends them back.
    fn echo(&self, from: &str, to: &str, address: IpAddr) {
        let bytes: Vec<u8> = (0..200_000u32).map(|index| (index % 251).to_le_bytes()[0]).collect();
        let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 7)).unwrap();
        let listener = weft_lab::enter(&self.namespace(to), listen).unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut back = stream.try_clone().unwrap();
            std::io::copy(&mut stream, &mut back).unwrap();
        });
        let connect = || TcpStream::connect_timeout(&SocketAddr::new(address, 7), LIMIT).unwrap();
        let mut stream = weft_lab::enter(&self.namespace(from), connect).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut out = stream.try_clone().unwrap();
        let sent = bytes.clone();
        let sender = thread::spawn(move || {
            out.write_all(&sent).unwrap();
            out.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = vec![];
        stream.read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        echo.join().unwrap();
        assert!(received == bytes, "{from} to {to}: {} of {} bytes", received.len(), bytes.len());
    }

    /// Checks that each of two broadcasts of a machine reaches all others once.
    fn broadcast(&self, from: &str, to: &[&str]) {
        let bind = |name: &str| {
            let open = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5005)).unwrap();
            let socket = weft_lab::enter(&self.namespace(name), open).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            socket
        };
        let (sender, receivers) = (bind(from), to.iter().map(|name| bind(name)));
        let receivers: Vec<_> = receivers.collect();
        for number in [1, 2] {
            sender.send_to(&[number], (Ipv4Addr::new(192, 168, 7, 255), 5005)).unwrap();
            for (receiver, name) in receivers.iter().zip(to) {
                let mut byte = [0];
                receiver
                    .recv(&mut byte)
                    .unwrap_or_else(|error| panic!("{from} to {name}: {error}"));
                assert_eq!(byte, [number], "{from} to {name}: a copy more or less");
            }
        }
    }
}

/// Returns an IP address without its prefix length.
fn address(text: &str) -> IpAddr {
    text.split('/').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "it waits for FRR: make evpn"]
fn weft_hosts_and_a_router_share_a_network() {
    let Some(mut world) = World::up() else { return };
    let router = world.at[2];
    // Routes of both sides.
    for host in 0..2 {
        world.wait(host, "the router is known", |status| {
            let evpn = status.evpn.as_ref().unwrap();
            evpn.neighbours[0].state == "established"
                && evpn.vteps.get(&VNI).and_then(|vteps| vteps.get(&router)) == Some(&true)
        });
        world.wait_for_place(host, BEHIND.0, Some(&router.to_string()));
        world.wait_for_entry(&format!("02:00:00:00:07:0{}", host + 1), Some(host));
    }
    // Machines of all three, in both directions. The two Weft hosts are peers, and encrypt to each other.
    for (from, to) in [("red0", 3), ("red2", 1), ("red1", 3), ("red2", 2), ("red0", 2)] {
        world.ping(from, &format!("192.168.7.{to}"));
    }
    world.echo("red0", "red2", address(BEHIND.1));
    world.echo("red2", "red0", Trial::address(0).into());
    world.broadcast("red0", &["red1", "red2"]);
    world.broadcast("red2", &["red0", "red1"]);
    let status = world.status(0);
    assert_eq!(status.encryption.connections.1, 0, "no connection in the clear");
    let neighbour = &status.evpn.as_ref().unwrap().neighbours[0];
    assert_eq!((neighbour.faulty, neighbour.sessions), (0, (1, 0)), "{neighbour:?}");

    moves(&world);

    // The port goes, and its routes with it.
    let remove = Request::RemovePort { name: "red".into() };
    assert_eq!(world.ask(1, &remove), Answer::Done);
    world.wait_for_entry("02:00:00:00:07:02", None);
    world.wait_for_place(0, "02:00:00:00:07:02", None);

    session_loss(&mut world);
}

/// A machine moves from behind the router to a Weft host, back, and to the Weft host again.
fn moves(world: &World) {
    let (mac, at) = MOVING;
    let router = world.at[2].to_string();
    let (here, there) = (world.namespace("x0"), world.namespace("x2"));
    world.router.plug("x", &Machine { namespace: &there, mac, address: at, mtu: world.mtu() });
    world.ping("x2", "192.168.7.1");
    world.wait_for_place(0, mac, Some(&router));
    // It appears at a port of the first host.
    world.router.ip(&["link", "set", "x", "down"]);
    let text = format!(
        "name = 'x'\nvni = {VNI}\nmac = '{mac}'\naddresses = ['{at}']\n\
         tap = {{ interface = 'eth0', namespace = '{here}' }}"
    );
    let port: Port = toml::from_str(&text).unwrap();
    assert_eq!(world.ask(0, &Request::AddPort { port: Box::new(port) }), Answer::Done);
    world.wait_for_entry(mac, Some(0));
    world.wait_for_place(0, mac, Some("x"));
    world.wait_for_place(1, mac, Some(&world.at[0].to_string()));
    world.ping("red2", at);
    world.ping("red1", at);
    // It is behind the router again, as its next frame shows; the port is still there.
    world.router.ip(&["link", "set", "x", "up"]);
    world.ping("x2", "192.168.7.3");
    world.wait_for_place(0, mac, Some(&router));
    world.wait_for_place(1, mac, Some(&router));
    world.ping("red0", at);
    world.ping("red1", at);
    // It sends from the port, and is there.
    world.router.ip(&["link", "set", "x", "down"]);
    let send =
        || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9)).unwrap().send_to(b"here", "192.168.7.3:9");
    weft_lab::enter(&here, send).unwrap().unwrap();
    world.wait_for_place(0, mac, Some("x"));
    world.wait_for_entry(mac, Some(0));
    world.ping("x0", "192.168.7.3");
    assert_eq!(world.ask(0, &Request::RemovePort { name: "x".into() }), Answer::Done);
    world.wait_for_entry(mac, None);
    world.wait_for_place(1, mac, None);
}

/// The router's bgpd dies, and comes back.
fn session_loss(world: &mut World) {
    world.router.kill("bgpd");
    world.wait_for_place(0, BEHIND.0, None);
    world.wait(0, "the session is lost", |status| {
        let evpn = status.evpn.as_ref().unwrap();
        let neighbour = &evpn.neighbours[0];
        neighbour.error.is_some() && neighbour.sessions == (1, 1) && evpn.vteps.is_empty()
    });
    world.router.start_daemon("bgpd");
    world.wait_for_place(0, BEHIND.0, Some(&world.at[2].to_string()));
    world.wait_for_entry("02:00:00:00:07:01", Some(0));
    world.ping("red0", BEHIND.1);
    let evpn = world.status(0).evpn.unwrap();
    assert_eq!(evpn.neighbours[0].sessions, (2, 1), "{evpn:?}");
}
