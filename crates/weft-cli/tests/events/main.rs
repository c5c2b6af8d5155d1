//! The events of the table (`weft-events`), each from the daemon that logs it, after the fault that it reports. Needs root and etcd.
#![allow(clippy::disallowed_methods, reason = "daemons are waited for in real time")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use weft_seal::PrivateKey;
use weft_testkit::etcd::{Etcd, etcd_is_missing};
use weft_testkit::{Authority, Validity, lab_is_missing};
use weft_trial::{Trial, TrialConfig};
use weft_vpc::{AclConfig, Action};
use weft_vswitch::Daemon;
use weft_vswitch::config::{Config, Encryption};
use weft_vswitch::control::{Answer, Request, send_request};
use weft_wire::{U24, VxlanHeader, VxlanNext};

mod device;
mod journal;
mod log;
mod monitor;
mod neighbour;

use log::{LIMIT, Log};

#[test]
fn every_event_of_the_table_is_logged_by_a_daemon_with_its_fields() {
    let test = "every event of the table";
    if lab_is_missing(test, &[]) || etcd_is_missing(test) {
        return;
    }
    let log = Log::start();
    let folder = Folder::new("table");
    std::thread::scope(|scope| {
        scope.spawn(|| Overlay::start(&log, &folder).run());
        scope.spawn(|| fleet(&log, &folder));
        scope.spawn(|| certificate(&log, &folder));
        scope.spawn(|| neighbour::session(&log, &folder));
        scope.spawn(|| device::daemon(&log, &folder));
        scope.spawn(|| monitor::agents(&log, &folder));
    });
    log.assert_complete();
}

/// A folder that is removed with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-ev-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that only its owner may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that is ended with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two hosts that know each other by their keys, and a ping between their tenants.
struct Overlay<'a> {
    log: &'a Log,
    trial: Trial,
    /// The public keys of both hosts and of a third one.
    public: [String; 3],
    /// The file of the accepted keys.
    peers: PathBuf,
    keys: Vec<PathBuf>,
}

impl<'a> Overlay<'a> {
    fn start(log: &'a Log, folder: &Folder) -> Self {
        let keys = [1, 2, 3].map(|number| PrivateKey::new([number; 32]));
        let public = keys.each_ref().map(|key| format!("{}\n", key.public()));
        let peers = folder.write("peers", &public[..2].concat());
        let write =
            |(host, key): (usize, &PrivateKey)| folder.write(&format!("key{host}"), &key.to_hex());
        let keys = keys.iter().enumerate().map(write).collect();
        let mut config = TrialConfig::named("events");
        // Of eight paths none may cross a given spine of four, once in ten runs.
        config.host.paths = 32;
        let trial = Trial::up(&config).unwrap();
        let mut overlay = Self { log, trial, public, peers, keys };
        (0..2).for_each(|host| overlay.restart(host, host));
        overlay
    }

    /// Restarts a host with one of the keys.
    fn restart(&mut self, host: usize, key: usize) {
        self.trial.stop(host);
        self.trial.config(host).host.encryption = Encryption {
            identity: Some(self.keys[key].clone()),
            peers: Some(self.peers.clone()),
            ..Encryption::default()
        };
        self.trial.start(host).unwrap();
    }

    fn ask(&self, host: usize, request: &Request) -> Answer {
        send_request(&self.trial.control(host), request).unwrap()
    }

    fn reload(&mut self, host: usize, change: impl FnOnce(&mut Config)) -> Answer {
        let mut config = Box::new(self.trial.config(host).clone());
        change(&mut config);
        self.ask(host, &Request::Reload { config, discard_changes: false })
    }

    /// Waits until host 0 has a connection with paths.
    fn until_connected(&self) {
        let is_connected = || match self.ask(0, &Request::Status) {
            Answer::Status(status) => status.pairs.iter().any(|it| it.up && !it.paths.is_empty()),
            other => panic!("{other:?}"),
        };
        let began = Instant::now();
        while !is_connected() {
            assert!(began.elapsed() < LIMIT, "no connection: {:?}", self.ask(0, &Request::Status));
            weft_testkit::pause();
        }
    }

    fn run(mut self) {
        let log = self.log;
        let mut ping = self.trial.command("red", 0, "ping");
        ping.args(["-i", "0.002", "-q", &Trial::address(1).to_string()]).stdout(Stdio::null());
        let _ping = Running(ping.spawn().unwrap());
        let peer = self.trial.config(1).host.address.to_string();

        // A connection that is not set up has no paths.
        self.until_connected();
        self.trial.lab.set_black_hole("l0-s1", true).unwrap();
        log.wait("paths-down", &[("peer", &peer)], || ());
        self.trial.lab.set_black_hole("l0-s1", false).unwrap();
        log.wait("paths-up", &[("peer", &peer)], || ());

        let acl = AclConfig { name: "nothing".into(), default: Action::Deny, rules: Vec::new() };
        self.ask(1, &Request::Acl { port: "red".into(), acl: Some(acl) });
        let denied = log.wait("frames-denied", &[("cause", "denied"), ("port", "red")], || ());
        let [count, seconds, rate] =
            ["count", "seconds", "per_second"].map(|name| denied[name].as_f64().unwrap());
        assert!(seconds >= 10.0 && count > 0.0, "{denied:?}");
        assert!((rate - count / seconds).abs() < 0.1, "{denied:?}");
        self.ask(1, &Request::Acl { port: "red".into(), acl: None });

        self.forge();
        self.rotate_keys();
        let refused = self.reload(0, |config| config.networks.push(config.networks[0].clone()));
        assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
        log.wait("reload-refused", &[("source", "file")], || ());

        self.trial.stop(1);
        log.wait("peer-lost", &[("peer", &peer)], || ());
        log.wait("frames-dropped", &[], || ());
        self.trial.start(1).unwrap();
        log.wait("peer-found", &[("peer", &peer)], || ());
    }

    /// Sends packets in the clear to a host that accepts encrypted ones alone.
    fn forge(&mut self) {
        let to = self.trial.config(1).host.socket();
        let mut datagram = vec![0; VxlanHeader::LEN];
        VxlanHeader { vni: U24::truncate(0), next: VxlanNext::Weft }.emit(&mut datagram);
        datagram.extend([weft_wire::DataHeader::PACKET_TYPE; 64]);
        let open = || UdpSocket::bind("0.0.0.0:0").unwrap();
        let socket = self.trial.lab.enter("h0", open).unwrap();
        self.log.wait("packets-refused", &[("cause", "in_clear")], || {
            socket.send_to(&datagram, to).unwrap();
        });
    }

    /// Gives host 0 another key, which host 1 accepts after a reload.
    fn rotate_keys(&mut self) {
        self.restart(0, 2);
        self.log.wait("keys-refused", &[("cause", "refused_exchanges")], || ());
        fs::write(&self.peers, self.public.concat()).unwrap();
        for host in 0..2 {
            let answer = self.reload(host, |_| ());
            assert!(matches!(answer, Answer::Reloaded(_)), "{answer:?}");
        }
        self.log.wait("reload-applied", &[("source", "file")], || ());
        self.log.wait("keys-rotated", &[("keys", "identities")], || ());
    }
}

/// A host registers in its fleet, and loses etcd.
fn fleet(log: &Log, folder: &Folder) {
    let mut etcd = Etcd::start_plain("events", 1);
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "[host]\naddress = '127.0.0.1'\nport = {port}\ncontrol = '{}'\n\
         [fleet]\nname = 'lonely'\nlease = '2s'\netcd = {{ endpoints = ['{}'] }}\n",
        folder.path("fleet.sock").display(),
        etcd.endpoints()[0],
    );
    let config: Config = toml::from_str(&text).unwrap();
    let mut daemon = Daemon::open(config).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        use std::sync::atomic::Ordering::Relaxed;
        scope.spawn(|| daemon.run(|| stop.load(Relaxed), |_| ()).unwrap());
        log.wait("lease-gained", &[("lease", "fleet"), ("holder", "lonely")], || ());
        etcd.kill(0);
        log.wait("lease-lost", &[("lease", "fleet"), ("holder", "lonely")], || ());
        stop.store(true, Relaxed);
    });
}

/// The certificate of a server is replaced, by a new one and by something that is none.
fn certificate(log: &Log, folder: &Folder) {
    let authority = Authority::new(&folder.path("tls"), "authority");
    let issue = |name: &str| authority.issue(name, &["127.0.0.1"], Validity::Current);
    let (in_use, next) = (issue("server"), issue("next"));
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    command.args(["monitor", "agent", "--listen", "127.0.0.1:0", "--log", "json"]);
    command.arg("--tls-certificate").arg(&in_use.certificate).arg("--tls-key").arg(&in_use.key);
    command.env("WEFT_STAT", folder.path("stat")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut agent = Running(command.spawn().unwrap());
    log.follow(agent.0.stderr.take().unwrap());
    let mut line = String::new();
    BufReader::new(agent.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim().rsplit("//").next().unwrap().to_owned();
    // The files are looked at when a client begins its handshake.
    let connect = || {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.write_all(&[0x16, 3, 1, 0, 0]).unwrap();
    };
    let source = in_use.certificate.display().to_string();
    let values = [("keys", "certificate"), ("source", source.as_str())];
    replace(&next.key, &in_use.key);
    replace(&next.certificate, &in_use.certificate);
    log.wait("keys-rotated", &values, connect);
    replace(&folder.write("none", "no certificate"), &in_use.certificate);
    log.wait("keys-unusable", &values, connect);
}

fn replace(new: &Path, old: &Path) {
    fs::rename(new, old).unwrap();
}
