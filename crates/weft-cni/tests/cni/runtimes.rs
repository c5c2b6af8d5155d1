//! Programs that call plugins: cnitool, with a chain of two, and podman.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Hosts, Namespace, address, has, programs};

/// Returns the list of plugins in docs/kubernetes.md, for a host: this one, and one that sets a limit of the kernel.
pub(crate) fn list(hosts: &Hosts, host: usize, version: &str) -> Value {
    let page = include_str!("../../../../docs/kubernetes.md");
    let block = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let mut list: Value = serde_json::from_str(block).unwrap();
    let of_host = hosts.config(host, version);
    list["cniVersion"] = version.into();
    list["plugins"][0]["control"] = of_host["control"].clone();
    let ipam = &mut list["plugins"][0]["ipam"];
    ipam["dataDir"] = of_host["ipam"]["dataDir"].clone();
    for (key, last) in [("rangeStart", 2), ("rangeEnd", 254)] {
        ipam["ranges"][0][0][key] = format!("10.244.{host}.{last}").into();
    }
    list
}

#[test]
fn the_configuration_of_a_host_in_the_book_is_valid() {
    let page = include_str!("../../../../docs/kubernetes.md");
    let block = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let config: weft_vswitch::config::Config = toml::from_str(block).unwrap();
    config.check().unwrap();
}

/// Runs cnitool with the list of a host.
fn cnitool(hosts: &Hosts, host: usize, verb: &str, namespace: Option<&Namespace>) -> Output {
    let (own, built) = programs();
    let lists = hosts.folder.join(format!("net{host}"));
    let path = std::env::join_paths([own, built.clone()]).unwrap();
    let mut command = Command::new(built.join("cnitool"));
    command.args([verb, "pods"]).args(namespace.map(Namespace::path));
    command.env("CNI_PATH", path).env("NETCONFPATH", lists).output().unwrap()
}

#[test]
fn cnitool_connects_containers_through_a_chain_of_plugins() {
    let Some(hosts) = Hosts::up("tool") else { return };
    let namespaces = [hosts.namespace(0), hosts.namespace(1)];
    let mut results = vec![];
    for (host, namespace) in namespaces.iter().enumerate() {
        let folder = hosts.folder.join(format!("net{host}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("10-pods.conflist"), list(&hosts, host, "1.1.0").to_string())
            .unwrap();
        let status = cnitool(&hosts, host, "status", Some(namespace));
        assert!(status.status.success(), "{status:?}");
        let added = cnitool(&hosts, host, "add", Some(namespace));
        assert!(added.status.success(), "{added:?}");
        results.push(serde_json::from_slice::<Value>(&added.stdout).unwrap());
        let checked = cnitool(&hosts, host, "check", Some(namespace));
        assert!(checked.status.success(), "{checked:?}");
    }
    assert!(namespaces[0].ping(&address(&results[1]), 10) > 0);
    let limit = namespaces[0].run(&["cat", "/proc/sys/net/core/somaxconn"]);
    assert_eq!(String::from_utf8_lossy(&limit.stdout).trim(), "500");
    for (host, namespace) in namespaces.iter().enumerate() {
        let removed = cnitool(&hosts, host, "del", Some(namespace));
        assert!(removed.status.success(), "{removed:?}");
        assert!(!namespace.has("eth0") && hosts.reserved(host).is_empty());
    }
}

/// Podman with folders of its own, whose networks are configured for a host of the overlay.
struct Podman<'a> {
    hosts: &'a Hosts,
    host: usize,
}

impl Podman<'_> {
    fn folder(&self) -> std::path::PathBuf {
        self.hosts.folder.join(format!("podman{}", self.host))
    }

    fn command(&self) -> Command {
        let folder = self.folder();
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let mut command = Command::new("podman");
        command.args(["--root", &at("root"), "--runroot", &at("run"), "--tmpdir", &at("tmp")]);
        command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]);
        command.args(["--events-backend", "none"]).env("CONTAINERS_CONF", at("containers.conf"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Runs podman, which must succeed, and returns its output.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn set_up(&self) {
        let (own, built) = programs();
        let folder = self.folder();
        let networks = folder.join("net");
        fs::create_dir_all(&networks).unwrap();
        let list = list(self.hosts, self.host, "1.0.0").to_string();
        fs::write(networks.join("10-pods.conflist"), list).unwrap();
        let config = format!(
            "[network]\nnetwork_backend = 'cni'\nnetwork_config_dir = '{}'\ncni_plugin_dirs = ['{}', '{}']\n\
             [engine]\nlock_type = 'file'\n",
            networks.display(),
            own.display(),
            built.display()
        );
        fs::write(folder.join("containers.conf"), config).unwrap();
        let image = image(&folder);
        self.done(&["import", image.to_str().unwrap(), "weft.test/busybox:1"]);
    }

    /// Starts a container that sleeps, and returns its address.
    fn start(&self, name: &str) -> String {
        // Without CAP_SYS_RESOURCE root cannot raise limits to those that podman sets by itself.
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
        let start = [
            "run",
            "-d",
            "--name",
            name,
            "--network",
            "pods",
            "--pull",
            "never",
            "--security-opt",
            "seccomp=unconfined",
        ];
        let image = ["weft.test/busybox:1", "/bin/busybox", "sleep", "600"];
        self.done(&[&start[..], &limits, &image].concat());
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        self.done(&["inspect", "--format", format, name])
    }
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        // After a failure containers are left.
        let _ = self.run(&["rm", "-f", "-t", "0", "-a"]);
    }
}

/// Writes the file tree of an image: Debian's static busybox.
fn image(folder: &Path) -> std::path::PathBuf {
    let (tree, tar) = (folder.join("tree"), folder.join("image.tar"));
    for part in ["bin", "etc", "proc", "sys", "dev"] {
        fs::create_dir_all(tree.join(part)).unwrap();
    }
    fs::copy("/usr/bin/busybox", tree.join("bin/busybox")).unwrap();
    let packed = Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&tree).arg(".").status();
    assert!(packed.unwrap().success());
    tar
}

#[test]
fn containers_of_podman_on_two_hosts_reach_each_other() {
    let test = "containers of podman";
    if !has(test, "podman", "podman") {
        return;
    }
    let Some(hosts) = Hosts::up("podman") else { return };
    let podmen = [0, 1].map(|host| Podman { hosts: &hosts, host });
    podmen.iter().for_each(Podman::set_up);
    podmen[0].start("one");
    let two = podmen[1].start("two");
    let ping = ["exec", "one", "/bin/busybox", "ping", "-c", "5", "-w", "30", &two];
    podmen[0].done(&ping);
    for (host, podman) in podmen.iter().enumerate() {
        podman.done(&["rm", "-f", "-t", "0", "-a"]);
        assert!(hosts.reserved(host).is_empty() && hosts.ports(host).is_empty());
        podman.done(&["rmi", "-f", "-a"]);
    }
}
