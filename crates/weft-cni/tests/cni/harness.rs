//! Two hosts with an overlay's daemon each, containers' namespaces, and calls of the plugin.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_testkit::can_run;
use weft_trial::{Trial, TrialConfig};
use weft_vswitch::Status;
use weft_vswitch::control::{Answer, Request, send_request};

/// The plugins of Debian, whose newest version is 1.0.0.
const DEBIAN: &str = "/usr/lib/cni";

/// Two hosts, and a folder for the reservations of each.
pub(crate) struct Hosts {
    pub(crate) trial: Trial,
    pub(crate) folder: PathBuf,
}

/// A container's network namespace. Dropping it removes it.
pub(crate) struct Namespace(String);

/// Returns the folder of the plugin, and of others that `scripts/setup.sh cni` builds.
pub(crate) fn programs() -> (PathBuf, PathBuf) {
    let plugin = Path::new(env!("CARGO_BIN_EXE_weft-cni"));
    let target = plugin.ancestors().nth(2).unwrap();
    (plugin.parent().unwrap().to_owned(), target.join("cni"))
}

impl Hosts {
    /// Returns two hosts; `None` if they cannot be built, after reporting the reason.
    pub(crate) fn up(name: &str) -> Option<Self> {
        let test = format!("the CNI plugin, {name}");
        if weft_testkit::lab_is_missing(&test, &[]) {
            return None;
        }
        let host_local = programs().1.join("host-local");
        if !Path::new(DEBIAN).join("host-local").exists() || !host_local.exists() {
            weft_testkit::skip(&test, "no plugins for addresses (scripts/setup.sh cni)");
            return None;
        }
        let trial = Trial::up(&TrialConfig::named(format!("cni-{name}"))).unwrap();
        let folder = std::env::temp_dir().join(format!("weft-cni-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Some(Self { trial, folder })
    }

    /// Adds a container's namespace.
    pub(crate) fn namespace(&self, index: usize) -> Namespace {
        let name = self.trial.namespace("pod", index);
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        Namespace(name)
    }

    /// Returns the configuration of network `pods` on a host: a quarter of 10.1.0.0/16.
    pub(crate) fn config(&self, host: usize, version: &str) -> Value {
        let third = 64 * host;
        json!({
            "cniVersion": version, "name": "pods", "type": "weft-cni", "vni": 100,
            "control": self.trial.control(host),
            "ipam": {
                "type": "host-local",
                "dataDir": self.folder.join(format!("host{host}")),
                "ranges": [[{
                    "subnet": "10.1.0.0/16", "gateway": "10.1.255.254",
                    "rangeStart": format!("10.1.{third}.1"), "rangeEnd": format!("10.1.{}.254", third + 63),
                }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        })
    }

    /// Returns the addresses that are reserved on a host.
    pub(crate) fn reserved(&self, host: usize) -> Vec<String> {
        let folder = self.folder.join(format!("host{host}/pods"));
        let Ok(entries) = fs::read_dir(folder) else { return vec![] };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with("10.")).collect();
        names.sort();
        names
    }

    pub(crate) fn status(&self, host: usize) -> Status {
        match send_request(&self.trial.control(host), &Request::Status).unwrap() {
            Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the names of the ports of containers on a host.
    pub(crate) fn ports(&self, host: usize) -> Vec<String> {
        let ports = self.status(host).ports.into_iter().map(|port| port.name);
        ports.filter(|name| name.starts_with("cni/")).collect()
    }

    /// Restarts the daemon of a host, which has this number of containers' ports then.
    pub(crate) fn restart(&mut self, host: usize, ports: usize) {
        let began = Instant::now();
        loop {
            self.trial.stop(host);
            self.trial.start(host).unwrap();
            // A child process that another test starts shares the interfaces of the former daemon for a moment, and a port
            // whose interface is taken is left out until the next start.
            if self.ports(host).len() == ports {
                return;
            }
            let is_late = began.elapsed() > Duration::from_secs(30);
            assert!(!is_late, "{ports} ports expected: {:?}", self.ports(host));
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Namespace {
    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    /// Runs a program in the namespace.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).args(arguments).output().unwrap()
    }

    /// Returns what `ip --json` prints about it.
    pub(crate) fn ip(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[&["ip", "--json"], arguments].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    pub(crate) fn has(&self, interface: &str) -> bool {
        self.run(&["ip", "link", "show", "dev", interface]).status.success()
    }

    /// Sends pings, and returns the number of the first `count` that were answered. `ping` ends with the last answer that it
    /// wants, so it sends more.
    pub(crate) fn ping(&self, to: &str, count: usize) -> usize {
        let sent = (count + 50).to_string();
        let output = self.run(&["ping", "-n", "-c", &sent, "-i", "0.005", "-w", "60", to]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |line: &str| {
            let (_, rest) = line.split_once("icmp_seq=")?;
            let number: usize = rest.split(' ').next()?.parse().ok()?;
            (line.contains(" bytes from ") && number <= count).then_some(number)
        };
        let answered: BTreeSet<_> = text.lines().filter_map(number).collect();
        answered.len()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// A call of the plugin.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) config: Value,
    pub(crate) container: String,
    pub(crate) interface: String,
    pub(crate) namespace: String,
    pub(crate) arguments: String,
    /// `true` for the plugins of Debian, `false` for newer ones.
    pub(crate) debian: bool,
}

impl Call {
    pub(crate) fn new(config: Value, container: &str, namespace: &Namespace) -> Self {
        Self {
            config,
            container: container.into(),
            interface: "eth0".into(),
            namespace: namespace.path(),
            arguments: String::new(),
            debian: false,
        }
    }

    /// Runs the plugin.
    pub(crate) fn run(&self, verb: &str) -> Output {
        self.run_with(verb, self.config.to_string().as_bytes(), &[])
    }

    /// Runs the plugin with any input and changed variables; one without a value is removed.
    pub(crate) fn run_with(&self, verb: &str, input: &[u8], change: &[(&str, &str)]) -> Output {
        let (own, built) = programs();
        let others = if self.debian { PathBuf::from(DEBIAN) } else { built };
        let path = std::env::join_paths([own, others]).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-cni"));
        command.env_clear().env("CNI_PATH", path).env("CNI_COMMAND", verb);
        command.env("CNI_CONTAINERID", &self.container).env("CNI_IFNAME", &self.interface);
        command.env("CNI_NETNS", &self.namespace).env("CNI_ARGS", &self.arguments);
        for (name, value) in change {
            if value.is_empty() {
                command.env_remove(name);
            } else {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Runs ADD and returns its result.
    pub(crate) fn add(&self) -> Value {
        let output = self.run("ADD");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the call with the result of ADD, as runtimes make the later ones.
    pub(crate) fn after(&self, result: &Value) -> Self {
        let mut call = self.clone();
        call.config["prevResult"] = result.clone();
        call
    }

    /// Runs a verb without a result.
    pub(crate) fn done(&self, verb: &str) {
        let output = self.run(verb);
        assert!(output.status.success() && output.stdout.is_empty(), "{verb}: {output:?}");
    }

    /// Runs a verb that fails, and returns its code.
    pub(crate) fn code(&self, verb: &str) -> u64 {
        code(&self.run(verb))
    }
}

/// Returns the code of an error, whose form is checked.
pub(crate) fn code(output: &Output) -> u64 {
    assert!(!output.status.success(), "{output:?}");
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        error["cniVersion"].is_string() && !error["msg"].as_str().unwrap().is_empty(),
        "{error}"
    );
    error["code"].as_u64().unwrap()
}

/// Returns the address of a result without its prefix length.
pub(crate) fn address(result: &Value) -> String {
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.split('/').next().unwrap().to_owned()
}

/// Returns `true` if a program of a container runtime is there.
pub(crate) fn has(test: &str, program: &str, package: &str) -> bool {
    can_run(test, program, &["--version"], package)
}
