//! A control plane on this host's loopback: etcd and kube-apiserver, and controllers of it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use weft_etcd::EtcdSettings;
use weft_testkit::etcd::{Etcd, etcd_is_missing};
use weft_testkit::{Validity, pause};

/// Maximum time until something happens.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The seconds of a leader's Lease.
pub(crate) const LEASE: u64 = 3;

/// A control plane.
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    server: Server,
    controllers: Vec<Server>,
    port: u16,
    arguments: Vec<String>,
    program: PathBuf,
}

/// A program that is killed at the end.
struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    fn start(command: &mut Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("the log can be written");
        let copy = file.try_clone().expect("a descriptor");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(copy).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")), log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("it is our child");
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the API server that `scripts/setup.sh apiserver` has built.
fn program() -> PathBuf {
    // TARGET/PROFILE/deps/TEST
    let own = std::env::current_exe().expect("the test has a path");
    own.ancestors().nth(3).expect("it is in a build folder").join("apiserver/kube-apiserver")
}

impl Cluster {
    /// Starts a control plane; `None`, after reporting the reason, if a program is missing.
    pub(crate) fn start(name: &str) -> Option<Self> {
        let test = format!("apiserver, {name}");
        let program = program();
        if !program.exists() {
            let reason = format!("no {} (scripts/setup.sh apiserver)", program.display());
            weft_testkit::skip(&test, &reason);
            return None;
        }
        if etcd_is_missing(&test) {
            return None;
        }
        let etcd = Etcd::start_plain(name, 1);
        let folder = etcd.folder().to_owned();
        let certificate = etcd.authority.issue("apiserver", &["127.0.0.1"], Validity::Current);
        let accounts = etcd.authority.issue("accounts", &["accounts"], Validity::Current);
        let tokens = folder.join("tokens.csv");
        let users = "admin-token,admin,1,system:masters\ncontroller-token,weft-kube,2,\n";
        std::fs::write(&tokens, users).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let shown = |path: &Path| path.display().to_string();
        let arguments = vec![
            format!("--etcd-servers=http://{}", etcd.endpoints()[0]),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            format!("--tls-cert-file={}", shown(&certificate.certificate)),
            format!("--tls-private-key-file={}", shown(&certificate.key)),
            format!("--token-auth-file={}", shown(&tokens)),
            "--authorization-mode=RBAC".into(),
            "--disable-admission-plugins=ServiceAccount".into(),
            "--service-account-issuer=https://weft.test".into(),
            format!("--service-account-key-file={}", shown(&accounts.certificate)),
            format!("--service-account-signing-key-file={}", shown(&accounts.key)),
            "--service-cluster-ip-range=10.96.0.0/24".into(),
            "--endpoint-reconciler-type=none".into(),
        ];
        let server = serve(&program, &arguments, &folder);
        let cluster = Self { etcd, server, controllers: vec![], port, arguments, program };
        cluster.write_kubeconfig("admin");
        cluster.write_kubeconfig("controller");
        Some(cluster)
    }

    fn write_kubeconfig(&self, user: &str) {
        let ca = self.etcd.authority.certificate.display();
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"a",
               "clusters":[{{"name":"a","cluster":{{"server":"https://127.0.0.1:{}","certificate-authority":"{ca}"}}}}],
               "users":[{{"name":"a","user":{{"token":"{user}-token"}}}}],
               "contexts":[{{"name":"a","context":{{"cluster":"a","user":"a"}}}}]}}"#,
            self.port
        );
        std::fs::write(self.kubeconfig(user), text).unwrap();
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.etcd.folder().join(format!("{user}.kubeconfig"))
    }

    /// Returns a client that may do everything.
    pub(crate) async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(self.kubeconfig("admin")).unwrap();
        let config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Returns a client of etcd.
    pub(crate) fn etcd_client(&self) -> weft_etcd::Client {
        let settings: EtcdSettings = toml::from_str(&self.etcd.toml()).unwrap();
        weft_etcd::Client::new(&settings).unwrap()
    }

    /// Starts a controller. Returns its number.
    pub(crate) fn start_controller(&mut self) -> usize {
        let number = self.controllers.len();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-kube"));
        command
            .args([
                "run",
                "--cluster",
                "test",
                "--pod-network",
                "100",
                "--node-addresses",
                "10.244.0.1",
            ])
            .args(["--etcd", &self.etcd.endpoints()[0], "--lease-seconds", &LEASE.to_string()])
            .args(["--listen", "127.0.0.1:0"])
            .env("KUBECONFIG", self.kubeconfig("controller"))
            .env("HOSTNAME", format!("controller-{number}"));
        let log = self.etcd.folder().join(format!("controller-{number}.log"));
        self.controllers.push(Server::start(&mut command, log));
        number
    }

    /// Returns the body of a controller's answer to `/readyz`; `None` if the page is not served yet.
    pub(crate) fn readiness(&self, controller: usize) -> Option<String> {
        let log = self.log(controller);
        let line = log.lines().find(|line| line.contains("the page is served"))?;
        let address = line.rsplit_once("address=").expect("the line has the address").1;
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.rsplit_once("\r\n\r\n")?.1.trim_end().to_owned())
    }

    /// Returns the log of a controller.
    pub(crate) fn log(&self, controller: usize) -> String {
        self.controllers[controller].log()
    }

    /// Pauses a controller (SIGSTOP).
    pub(crate) fn pause(&self, controller: usize) {
        self.controllers[controller].signal(Signal::STOP);
    }

    /// Lets a paused controller go on.
    pub(crate) fn resume(&self, controller: usize) {
        self.controllers[controller].signal(Signal::CONT);
    }

    /// Stops the API server at once, and runs `act` before it starts again.
    pub(crate) fn without_server(&mut self, act: impl FnOnce(&Self)) {
        self.server.kill();
        act(self);
        self.server = serve(&self.program, &self.arguments, self.etcd.folder());
    }

    /// Returns the logs of everything, for a failure.
    pub(crate) fn logs(&self) -> String {
        let controllers: Vec<_> = self.controllers.iter().map(Server::log).collect();
        let server = self.server.log();
        let end: Vec<_> = server.lines().rev().take(20).collect();
        format!("{}\n{}", controllers.join("\n--\n"), end.join("\n"))
    }
}

fn serve(program: &Path, arguments: &[String], folder: &Path) -> Server {
    let mut server =
        Server::start(Command::new(program).args(arguments), folder.join("apiserver.log"));
    let port = arguments.iter().find_map(|it| it.strip_prefix("--secure-port=")).unwrap();
    let until = Instant::now() + LIMIT;
    // The port is open when the server has read its objects; requests wait for what is left.
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        let ended = server.child.try_wait().expect("a child");
        assert!(ended.is_none() && Instant::now() < until, "kube-apiserver: {}", server.log());
        pause();
    }
    server
}
