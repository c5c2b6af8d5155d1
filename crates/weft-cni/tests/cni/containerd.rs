//! Containers of containerd 2, which calls the plugin with version 1.1.0 of the specification (`make containerd`).

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Hosts, programs};
use crate::runtimes::list;

/// The time limit for containerd to answer.
const LIMIT: Duration = Duration::from_secs(60);

const IMAGE: &str = "weft.test/busybox:1";

/// containerd with folders of its own, whose network is configured for a host of the overlay.
struct Containerd<'a> {
    hosts: &'a Hosts,
    host: usize,
    folder: PathBuf,
    daemon: Child,
}

/// Returns a program that `scripts/setup.sh containerd` builds.
fn program(name: &str) -> PathBuf {
    programs().1.with_file_name("containerd").join(name)
}

impl<'a> Containerd<'a> {
    fn start(hosts: &'a Hosts, host: usize) -> Self {
        let folder = hosts.folder.join(format!("containerd{host}"));
        let (own, built) = programs();
        for part in ["etc/cni/net.d", "opt/cni/bin"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let plugins = [own.join("weft-cni"), built.join("host-local"), built.join("tuning")];
        for plugin in plugins {
            let name = plugin.file_name().unwrap();
            fs::copy(&plugin, folder.join("opt/cni/bin").join(name)).unwrap();
        }
        let network = list(hosts, host, "1.1.0").to_string();
        fs::write(folder.join("etc/cni/net.d/10-pods.conflist"), network).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "version = 3\nroot = '{}'\nstate = '{}'\n\
             disabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri']\n\
             [grpc]\naddress = '{}'\n[ttrpc]\naddress = '{}'\n",
            at("root"),
            at("state"),
            at("sock"),
            at("sock.ttrpc")
        );
        fs::write(folder.join("config.toml"), config).unwrap();
        let path = format!("{}:{}", program("").display(), std::env::var("PATH").unwrap());
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(program("containerd"));
        command.arg("--config").arg(folder.join("config.toml")).env("PATH", path);
        command.stdout(Stdio::null()).stderr(log).process_group(0);
        let daemon = command.spawn().unwrap();
        let containerd = Self { hosts, host, folder, daemon };
        let began = Instant::now();
        while !containerd.ctr(&["version"]).status.success() {
            assert!(began.elapsed() < LIMIT, "{:?}", containerd.ctr(&["version"]));
        }
        containerd
    }

    /// Runs `ctr`, which calls plugins itself, from folders that it does not let one choose.
    fn ctr(&self, arguments: &[&str]) -> Output {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let script = "mount --bind \"$1\" /etc; mount --bind \"$2\" /opt; shift 2; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]);
        command.args([at("etc"), at("opt")]).arg(program("ctr"));
        command.args(["--address", &at("sock")]).args(arguments).output().unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.ctr(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a container that sleeps, and returns its address.
    fn run(&self, name: &str) -> String {
        let limit = ["--rlimit-nofile", "1024", "--cni"];
        let program = [IMAGE, name, "/bin/busybox", "sleep", "600"];
        self.done(&[&["run", "-d"], &limit[..], &program].concat());
        let reserved = self.hosts.reserved(self.host);
        assert_eq!(reserved.len(), 1, "{reserved:?}");
        reserved[0].clone()
    }

    fn remove(&self, name: &str) {
        // The network is removed with the signal, while the namespace is there.
        self.done(&["task", "kill", "--signal", "KILL", name]);
        self.done(&["task", "delete", "--force", name]);
        self.done(&["container", "delete", name]);
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        // After a failure containers are left, which outlive the daemon.
        let left = self.ctr(&["task", "list", "--quiet"]).stdout;
        for name in String::from_utf8_lossy(&left).lines() {
            let _ = self.ctr(&["task", "kill", "--signal", "KILL", name]);
            let _ = self.ctr(&["task", "delete", "--force", name]);
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Writes an image with Debian's static busybox.
fn image(folder: &Path) -> PathBuf {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kubernetes");
    let archive = folder.join("busybox.tar");
    let script = "import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True\n\
                  import images; images.write(sys.argv[2], 'busybox')";
    let mut python = Command::new("python3");
    let written = python.args(["-c", script]).arg(scripts).arg(&archive).status().unwrap();
    assert!(written.success());
    archive
}

#[test]
#[ignore = "containerd takes a minute of a processor to build: make containerd"]
fn containers_of_containerd_on_two_hosts_reach_each_other() {
    let Some(hosts) = Hosts::up("ctrd") else { return };
    let archive = image(&hosts.folder);
    let containerds = [0, 1].map(|host| Containerd::start(&hosts, host));
    // runc has one folder of containers for all daemons.
    let names = ["one", "two"].map(|name| format!("weft-{}-{name}", std::process::id()));
    let mut addresses = vec![];
    for (containerd, name) in containerds.iter().zip(&names) {
        containerd.done(&["images", "import", archive.to_str().unwrap()]);
        addresses.push(containerd.run(name));
    }
    let ping = ["/bin/busybox", "ping", "-c", "5", "-w", "30", &addresses[1]];
    containerds[0].done(&[&["task", "exec", "--exec-id", "ping", &names[0]][..], &ping].concat());
    for ((host, containerd), name) in containerds.iter().enumerate().zip(&names) {
        containerd.remove(name);
        assert!(hosts.reserved(host).is_empty() && hosts.ports(host).is_empty());
    }
}
