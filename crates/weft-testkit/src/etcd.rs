//! Clusters of real etcd for tests and measurements, in a folder of their own and on free ports.
#![allow(clippy::disallowed_methods, reason = "etcd is waited for in real time")]

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Authority, Issued, Validity, can_run, pause};

/// Maximum time until members serve their clients.
const STARTED: Duration = Duration::from_secs(60);

/// Number of clusters that this process has started.
static STARTS: AtomicU32 = AtomicU32::new(0);

/// The line that a member logs when it serves its clients.
const SERVES: &str = "ready to serve client requests";

/// A cluster that runs until this is dropped. Its members accept clients with a certificate of [`Self::authority`] only,
/// unless it was started by [`Self::start_plain`].
#[derive(Debug)]
pub struct Etcd {
    /// The authority of the members' certificates and of the clients'.
    pub authority: Authority,
    client: Option<Issued>,
    members: Vec<Member>,
    folder: PathBuf,
}

#[derive(Debug)]
struct Member {
    /// The program with its arguments.
    words: Vec<String>,
    endpoint: String,
    log: PathBuf,
    child: Option<Child>,
}

/// Returns `true`, and records the skip, if etcd is not installed.
///
/// # Panics
/// Panics as [`crate::skip`] does.
pub fn etcd_is_missing(test: &str) -> bool {
    !can_run(test, "etcd", &["--version"], "etcd-server")
}

impl Etcd {
    /// Starts members on this host's loopback, with mutual TLS.
    ///
    /// # Panics
    /// Panics if a member does not start.
    pub fn start(name: &str, members: usize) -> Self {
        Self::start_at(name, members, Ipv4Addr::LOCALHOST.into(), &[], true)
    }

    /// Starts members that anyone may use, in the clear.
    ///
    /// # Panics
    /// Panics if a member does not start.
    pub fn start_plain(name: &str, members: usize) -> Self {
        Self::start_at(name, members, Ipv4Addr::LOCALHOST.into(), &[], false)
    }

    /// Starts a member with mutual TLS in a network namespace, at one of its addresses.
    ///
    /// # Panics
    /// Panics if the member does not start.
    pub fn start_in(name: &str, namespace: &str, address: IpAddr) -> Self {
        Self::start_at(name, 1, address, &["ip", "netns", "exec", namespace], true)
    }

    fn start_at(name: &str, count: usize, address: IpAddr, before: &[&str], tls: bool) -> Self {
        // Tests of one process run side by side.
        let number = STARTS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("weft-etcd-{}-{number}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&folder);
        let authority = Authority::new(&folder, "authority");
        let server = authority.issue("server", &[&address.to_string()], Validity::Current);
        let client = tls.then(|| authority.issue("client", &[], Validity::Current));
        let scheme = if tls { "https" } else { "http" };
        let places: Vec<_> = free_ports(2 * count)
            .chunks(2)
            .map(|ports| (SocketAddr::new(address, ports[0]), SocketAddr::new(address, ports[1])))
            .collect();
        let cluster: Vec<_> =
            places.iter().enumerate().map(|(n, (_, peer))| format!("m{n}=http://{peer}")).collect();
        let member = |(n, (client, peer)): (usize, &(SocketAddr, SocketAddr))| {
            let mut words: Vec<String> = before.iter().map(|&it| it.to_owned()).collect();
            let data = folder.join(format!("m{n}"));
            let (client_url, peer_url) = (format!("{scheme}://{client}"), format!("http://{peer}"));
            for word in
                ["etcd", "--name", &format!("m{n}"), "--data-dir", &data.display().to_string()]
                    .into_iter()
                    .chain([
                        "--listen-client-urls",
                        &client_url,
                        "--advertise-client-urls",
                        &client_url,
                    ])
                    .chain([
                        "--listen-peer-urls",
                        &peer_url,
                        "--initial-advertise-peer-urls",
                        &peer_url,
                    ])
                    .chain([
                        "--initial-cluster",
                        &cluster.join(","),
                        "--initial-cluster-token",
                        name,
                    ])
            {
                words.push(word.to_owned());
            }
            if tls {
                words.push("--client-cert-auth".into());
                words.extend(files("--trusted-ca-file", &authority.certificate));
                words.extend(files("--cert-file", &server.certificate));
                words.extend(files("--key-file", &server.key));
            }
            let log = folder.join(format!("m{n}.log"));
            Member { words, endpoint: client.to_string(), log, child: None }
        };
        let mut members: Vec<_> = places.iter().enumerate().map(member).collect();
        members.iter_mut().for_each(Member::spawn);
        members.iter_mut().for_each(Member::await_clients);
        Self { authority, client, members, folder }
    }

    /// Returns the addresses and ports of the members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint.clone()).collect()
    }

    /// Returns the files of a client's certificate.
    ///
    /// # Panics
    /// Panics if the members use no TLS.
    pub fn client(&self) -> &Issued {
        self.client.as_ref().expect("the members use TLS")
    }

    /// Returns the cluster's settings for a client, as a table of TOML.
    pub fn toml(&self) -> String {
        let tls = self.client.as_ref().map(|client| {
            let shown = |path: &Path| path.display().to_string();
            let (ca, certificate) =
                (shown(&self.authority.certificate), shown(&client.certificate));
            let key = shown(&client.key);
            format!("tls = {{ ca = {ca:?}, certificate = {certificate:?}, key = {key:?} }}\n")
        });
        format!("endpoints = {:?}\n{}", self.endpoints(), tls.unwrap_or_default())
    }

    /// Returns a folder for the test's own files, removed with the cluster.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the process of a member.
    ///
    /// # Panics
    /// Panics if it does not run.
    pub fn pid(&self, member: usize) -> u32 {
        self.members[member].child.as_ref().expect("it runs").id()
    }

    /// Kills a member at once (SIGKILL).
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member again that was killed, with what it has on its disk.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn start_again(&mut self, member: usize) {
        self.members[member].kill();
        self.members[member].spawn();
        self.members[member].await_clients();
    }

    /// Starts a member again with an empty disk: all keys are gone, and its revisions begin anew.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn start_empty(&mut self, member: usize) {
        self.members[member].kill();
        let _ = fs::remove_dir_all(self.folder.join(format!("m{member}")));
        self.start_again(member);
    }

    /// Stops a member without ending its connections, as a hung machine would (SIGSTOP).
    ///
    /// # Panics
    /// Panics if it does not run.
    pub fn pause(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    /// Lets a paused member go on.
    ///
    /// # Panics
    /// Panics if it does not run.
    pub fn resume(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    fn signal(&self, member: usize, signal: Signal) {
        let pid = i32::try_from(self.pid(member)).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("it is our child");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Member {
    fn spawn(&mut self) {
        let log = File::create(&self.log).expect("the log can be written");
        let copy = log.try_clone().expect("a descriptor");
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(log).stderr(copy);
        self.child = Some(command.spawn().expect("etcd starts"));
    }

    /// Waits until the member serves its clients.
    fn await_clients(&mut self) {
        let until = Instant::now() + STARTED;
        loop {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            if log.contains(SERVES) {
                return;
            }
            let child = self.child.as_mut().expect("it was started");
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none() && Instant::now() < until, "etcd ({ended:?}):\n{log}");
            pause();
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A member is killed also if another one of its cluster does not start.
impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

fn files(option: &str, path: &Path) -> [String; 2] {
    [option.into(), path.display().to_string()]
}

/// Returns ports that no program of this host uses now.
fn free_ports(count: usize) -> Vec<u16> {
    // All are open at the same time, so that each is returned once.
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let open: Vec<_> = (0..count).map(bind).collect();
    open.iter().map(|socket| socket.local_addr().expect("bound").port()).collect()
}
