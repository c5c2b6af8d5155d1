//! Two hosts with many ports each; every port of host 0 may send to every port of host 1.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use weft_trial::{Trial, TrialConfig};
use weft_vpc::PortPolicies;
use weft_vswitch::Status;
use weft_vswitch::config::{Encryption, Mac, Port, Route, Tap};
use weft_vswitch::control::{Answer, Request, send_request};
use weft_wire::MacAddr;

use super::packet::{self, PacketSocket};

const VNI: u32 = 100;

/// The EtherType of the frames: local experiments (IEEE 802, clause 9).
const EXPERIMENT: u16 = 0x88b5;

fn mac(host: usize, port: usize) -> MacAddr {
    let [low, high, ..] = port.to_le_bytes();
    MacAddr([2, 0, 1, u8::try_from(host).expect("two hosts"), high, low])
}

/// Returns the namespace of all tenants of a host.
fn namespace(trial: &Trial, host: usize) -> String {
    trial.namespace("red", host)
}

/// Returns two hosts with `ports` ports each that know all addresses of each other.
pub(crate) fn trial(name: &str, ports: usize, threads: u8) -> Trial {
    let mut config = TrialConfig::named(name);
    config.tenants = vec!["red".into()];
    config.host.threads = threads;
    config.host.encryption = Encryption::of_mode("off");
    let mut trial = Trial::up(&config).unwrap_or_else(|error| panic!("{error}"));
    for host in 0..2 {
        trial.stop(host);
        // The tenants' kernels must send nothing on their own.
        let namespace = namespace(&trial, host);
        for key in ["all", "default"] {
            let setting = format!("net.ipv6.conf.{key}.disable_ipv6=1");
            run(&["netns", "exec", &namespace, "sysctl", "-qw", &setting]);
        }
    }
    for host in 0..2 {
        let (own, peer) = (namespace(&trial, host), address(&mut trial, 1 - host));
        let config = trial.config(host);
        config.ports = (0..ports).map(|port| tap(&own, host, port)).collect();
        let route = |port| Route::to_machine(VNI, Mac(mac(1 - host, port)), peer);
        config.routes = (0..ports).map(route).collect();
        trial.start(host).unwrap_or_else(|error| panic!("{error}"));
    }
    trial
}

fn address(trial: &mut Trial, host: usize) -> IpAddr {
    trial.config(host).host.address
}

fn tap(namespace: &str, host: usize, port: usize) -> Port {
    Port {
        name: format!("p{port}"),
        vni: VNI,
        mac: Mac(mac(host, port)),
        addresses: vec![],
        labels: BTreeMap::new(),
        policies: PortPolicies::default(),
        tap: Some(Tap {
            interface: format!("t{port}"),
            namespace: Some(namespace.to_owned()),
            persistent: false,
            mtu: None,
        }),
        vhost_user: None,
        mirror: None,
        await_policies: false,
    }
}

fn run(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("iproute2 is there");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a daemon's status.
pub(crate) fn status(trial: &Trial, host: usize) -> Status {
    match send_request(&trial.control(host), &Request::Status).expect("the daemon is there") {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// The tenants: those of host 0 send, those of host 1 receive.
pub(crate) struct Tenants {
    socket: PacketSocket,
    interfaces: Vec<libc::c_int>,
    receiver: PacketSocket,
    /// Numbers of frames sent and received so far.
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Tenants {
    pub(crate) fn new(trial: &Trial, ports: usize) -> Self {
        let open = || {
            let interfaces = (0..ports).map(|port| packet::interface(&format!("t{port}")));
            Ok::<_, std::io::Error>((PacketSocket::open()?, interfaces.collect::<Result<_, _>>()?))
        };
        let senders = weft_lab::enter(&namespace(trial, 0), open);
        let (socket, interfaces) =
            senders.expect("a namespace of the trial").expect("its interfaces are up");
        let receiver =
            weft_lab::enter(&namespace(trial, 1), || PacketSocket::receiving(EXPERIMENT));
        let receiver =
            receiver.expect("a namespace of the trial").expect("the kernel has packet sockets");
        Self { socket, interfaces, receiver, sent: 0, received: 0 }
    }

    /// Sends a frame of `len` bytes from a port of host 0 to one of host 1, as soon as there is room.
    pub(crate) fn send(&mut self, from: usize, to: usize, len: usize) {
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&mac(1, to).0);
        frame[6..12].copy_from_slice(&mac(0, from).0);
        frame[12..14].copy_from_slice(&EXPERIMENT.to_be_bytes());
        while !self.socket.send(self.interfaces[from], &frame).expect("the interface is up") {
            std::thread::yield_now();
        }
        self.sent += 1;
    }

    /// Waits until at most `most` of the sent frames are in flight, or nothing has arrived for `timeout`.
    /// Returns the number in flight.
    pub(crate) fn wait_for(&mut self, most: u64, timeout: Duration) -> u64 {
        let mut since = Instant::now();
        loop {
            let more = self.receiver.received().expect("an open socket");
            self.received += more;
            if self.sent - self.received <= most || since.elapsed() > timeout {
                return self.sent - self.received;
            }
            if more > 0 {
                since = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}
