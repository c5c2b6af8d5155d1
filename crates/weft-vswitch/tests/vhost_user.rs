//! Two daemons whose tenants are DPDK programs on vhost-user, over paths that lose and reorder. Needs root
//! and dpdk-testpmd; without them the test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_lab::{Direction, Impairment};
use weft_trial::{Trial, TrialConfig};
use weft_units::Seed;
use weft_vswitch::Status;
use weft_vswitch::config::VhostUser;
use weft_vswitch::control::{Answer, Request, send_request};

const LIMIT: Duration = Duration::from_secs(60);

/// Number of datagrams that are compared.
const DATAGRAMS: usize = 1_000;

/// Number of datagrams in flight at a time: fewer than any ring or queue on the way holds.
const WINDOW: usize = 32;

const TESTPMD: &str = "/usr/bin/dpdk-testpmd";

/// A `dpdk-testpmd` process, which ends with the test.
struct Testpmd(Child);

impl Testpmd {
    /// Starts a program with these devices and this forwarding mode, as a tenant on a host.
    fn start(trial: &Trial, host: usize, forward: &str, devices: &[String]) -> Self {
        let mut command = trial.command("red", host, TESTPMD);
        command.args(["--no-huge", "-m", "128", "--no-pci", "--lcores"]);
        command.arg(format!("(0-1)@{host}"));
        let prefix = format!("wo{}-{}-{host}", std::process::id(), trial.lab.name());
        command.args(["--no-telemetry", "--file-prefix", &prefix]);
        command.args(devices.iter().flat_map(|device| ["--vdev", device]));
        command.args(["--", "-i", "--auto-start", "--rxd=256", "--txd=256"]);
        command.args(["--total-num-mbufs=4096", &format!("--forward-mode={forward}")]);
        // The program ends when its standard input does.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Repeats `attempt` until it succeeds.
fn until<T>(label: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(began.elapsed() < LIMIT, "{label}: not in {LIMIT:?}");
        weft_testkit::pause();
    }
}

fn ip(trial: &Trial, arguments: &str) -> bool {
    let mut ip = Command::new("ip");
    ip.args(["-n", &trial.namespace("red", 0)]).args(arguments.split_whitespace());
    ip.output().unwrap().status.success()
}

fn status(trial: &Trial, host: usize) -> Status {
    match send_request(&trial.control(host), &Request::Status).unwrap() {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// Returns a trial on which red has a vhost-user port on each host, and every packet takes another path than
/// the one before it; and the paths of the sockets.
fn trial(threads: u8) -> (Trial, [PathBuf; 2]) {
    let mut config = TrialConfig::named(format!("vs{threads}-vhost"));
    config.tenants = vec!["red".into()];
    config.host.policy = "round-robin".into();
    config.host.group = 1;
    config.host.threads = threads;
    let mut trial = Trial::up(&config).unwrap();
    let sockets = [0, 1].map(|host| {
        let name = format!("weft-vs{threads}-vhost-{}-h{host}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let port = &mut trial.config(host).ports[0];
        port.tap = None;
        port.vhost_user = Some(VhostUser::at(socket.clone()));
        socket
    });
    // Both daemons stop first: broadcasts of a kernel behind a TAP would find no port at the other host yet.
    (0..2).for_each(|host| trial.stop(host));
    (0..2).for_each(|host| trial.start(host).unwrap());
    for spine in 0..4 {
        // Packets that wait for the slow links are overtaken by packets on the others.
        let rate = (spine % 2 == 0).then(|| "20Mbps".parse().unwrap());
        let loss = "2%".parse().unwrap();
        let impairment = Impairment { loss, rate, ..Impairment::default() };
        trial.lab.impair(&format!("l1-s{spine}"), Direction::Both, &impairment).unwrap();
    }
    (trial, sockets)
}

/// Configures the interface in red's namespace on host 0, behind the program there.
fn set_up_interface(trial: &Trial) {
    until("the program's TAP interface", || ip(trial, "link set eth0 mtu 1400 up").then_some(()));
    assert!(ip(trial, &format!("address add {}/24 dev eth0", Trial::address(0))));
    let neighbour = format!("neigh add {} lladdr 02:00:00:00:07:02 dev eth0", Trial::address(1));
    assert!(ip(trial, &neighbour));
}

/// Returns datagram `number`: its number, and bytes and a length that differ from the others'.
fn datagram(number: usize) -> Vec<u8> {
    let mut rng = Seed(9).child("datagram", number as u64).rng();
    let mut bytes = (number as u64).to_be_bytes().to_vec();
    bytes.extend((0..37 * number % 1_300).map(|_| rng.next_u64().to_le_bytes()[0]));
    bytes
}

/// Sends datagrams to the program on host 1, which sends them back, and checks that all return unchanged and
/// in order.
fn echo_all(client: &UdpSocket) {
    let mut buffer = [0; 2_000];
    // Until both programs run everything is lost.
    until("the first echo", || {
        client.send(&datagram(0)).unwrap();
        client.recv(&mut buffer).ok()
    });
    while client.recv(&mut buffer).is_ok() {}
    let (mut expected, mut next) = (VecDeque::new(), 1);
    while next <= DATAGRAMS || !expected.is_empty() {
        while next <= DATAGRAMS && expected.len() < WINDOW {
            let bytes = datagram(next);
            client.send(&bytes).unwrap();
            expected.push_back((next, bytes));
            next += 1;
        }
        let (number, bytes) = expected.pop_front().unwrap();
        let len = until(&format!("echo {number}"), || client.recv(&mut buffer).ok());
        assert!(buffer[..len] == bytes, "not datagram {number}, or changed: {:?}", &buffer[..8]);
    }
}

#[test]
fn dpdk_tenants_on_both_hosts_exchange_datagrams_whole_and_in_order() {
    dpdk_tenants_exchange_datagrams(1);
}

#[test]
fn dpdk_tenants_exchange_datagrams_on_hosts_of_two_threads() {
    dpdk_tenants_exchange_datagrams(2);
}

fn dpdk_tenants_exchange_datagrams(threads: u8) {
    const TEST: &str = "vhost-user on both hosts";
    if !Path::new(TESTPMD).is_file() {
        return weft_testkit::skip(TEST, "no dpdk-testpmd (apt-get install dpdk-dev)");
    }
    if weft_testkit::lab_is_missing(TEST, &[]) {
        return;
    }
    let (trial, sockets) = trial(threads);
    let virtio = |host: usize| {
        let (path, last) = (sockets[host].display(), host + 1);
        format!("net_virtio_user0,path={path},queues=1,mac=02:00:00:00:07:0{last}")
    };
    // A kernel's packets to multicast addresses would come back from there.
    let quiet = ["-qw", "net.ipv6.conf.default.disable_ipv6=1"];
    assert!(trial.command("red", 0, "sysctl").args(quiet).status().unwrap().success());
    // On host 0 a program stands between the kernel's sockets and the port; on host 1 another one sends
    // everything back.
    let devices = ["net_tap0,iface=eth0,mac=02:00:00:00:07:01".to_owned(), virtio(0)];
    let _near = Testpmd::start(&trial, 0, "io", &devices);
    let _far = Testpmd::start(&trial, 1, "5tswap", &[virtio(1)]);
    set_up_interface(&trial);
    let bind = || UdpSocket::bind((Trial::address(0), 0)).unwrap();
    let client = weft_lab::enter(&trial.namespace("red", 0), bind).unwrap();
    client.connect(SocketAddr::from((Trial::address(1), 7))).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    echo_all(&client);
    for host in 0..2 {
        let status = status(&trial, host);
        let (port, transport) = (&status.ports[0], &status.transport);
        assert!(port.up && port.sent.0 >= DATAGRAMS as u64, "{port:?}");
        assert!(port.received.0 >= DATAGRAMS as u64, "{port:?}");
        assert_eq!(port.dropped, [].into(), "{port:?}");
        assert!(transport["out_of_order"] > 100, "{transport:?}");
        let retransmits = ["fast_retransmits", "timeout_retransmits", "tail_loss_probes"];
        assert!(retransmits.map(|kind| transport[kind]).iter().sum::<u64>() > 5, "{transport:?}");
    }
}
