//! A VXLAN router: FRR's zebra and bgpd in a namespace, with a kernel bridge and a VXLAN device for a network.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

/// The folder of the daemons in Debian's package.
const DAEMONS: &str = "/usr/lib/frr";

/// A running router; dropping it ends its daemons.
pub(super) struct Router {
    pub(super) namespace: String,
    folder: PathBuf,
}

impl Router {
    /// Starts a router of AS 65000 with the given lines below `router bgp`, whose network `vni` is bridged.
    pub(super) fn start(namespace: &str, address: IpAddr, vni: u32, bgp: &str) -> Self {
        let name = format!("weft-evpn-{}-{namespace}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let router = Self { namespace: namespace.into(), folder };
        fs::create_dir_all(&router.folder).unwrap();
        let (bridge, tunnel) = (format!("br{vni}"), format!("vxlan{vni}"));
        let (vni, address) = (vni.to_string(), address.to_string());
        router.ip(&["link", "add", &bridge, "type", "bridge"]);
        router.ip(&[
            "link",
            "add",
            &tunnel,
            "type",
            "vxlan",
            "id",
            &vni,
            "local",
            &address,
            "dstport",
            "4789",
            "nolearning",
        ]);
        router.ip(&["link", "set", &tunnel, "master", &bridge, "up"]);
        router.ip(&["link", "set", &bridge, "up"]);
        let write = |file: &str, text: &str| fs::write(router.folder.join(file), text).unwrap();
        // Hosts are reached over the default route.
        write("zebra.conf", "hostname router\nip nht resolve-via-default\n");
        write("bgpd.conf", &format!("hostname router\nrouter bgp 65000\n{bgp}\n"));
        run(Command::new("chown").args(["-R", "frr:frr"]).arg(&router.folder));
        for daemon in ["zebra", "bgpd"] {
            router.start_daemon(daemon);
        }
        router
    }

    pub(super) fn start_daemon(&self, name: &str) {
        let path = |file: String| self.folder.join(file).to_str().unwrap().to_owned();
        let mut command = Command::new(Path::new(DAEMONS).join(name));
        command.args(["--daemon", "--vty_port", "0"]);
        command.args(["--config_file".into(), path(format!("{name}.conf"))]);
        command.args(["--pid_file".into(), path(format!("{name}.pid"))]);
        command.args(["--vty_socket".into(), path(String::new())]);
        command.args(["--socket".into(), path("zserv.api".into())]);
        weft_lab::enter(&self.namespace, || run(&mut command)).unwrap();
    }

    /// Ends a daemon as a crash would, and waits until it has gone.
    pub(super) fn kill(&self, name: &str) {
        let file = self.folder.join(format!("{name}.pid"));
        let Ok(text) = fs::read_to_string(&file) else { return };
        let _ = fs::remove_file(&file);
        let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else { return };
        let _ = kill_process(pid, Signal::KILL);
        // It is no child of this process: it has gone when its folder in /proc has.
        while Path::new("/proc").join(text.trim()).join("exe").exists() {
            weft_testkit::pause();
        }
    }

    /// Runs a command of FRR's.
    pub(super) fn show(&self, command: &str) -> String {
        let mut vtysh = Command::new("vtysh");
        vtysh.arg("--vty_socket").arg(&self.folder).args(["-c", command]);
        said(vtysh.output().unwrap())
    }

    /// Runs `ip` in the router's namespace.
    pub(super) fn ip(&self, arguments: &[&str]) -> String {
        run(Command::new("ip").args(["-n", &self.namespace]).args(arguments))
    }

    /// Returns the kernel's entries of the VXLAN device.
    pub(super) fn entries(&self, device: &str) -> String {
        run(Command::new("bridge").args(["-n", &self.namespace, "fdb", "show", "dev", device]))
    }

    /// Joins a namespace to the bridge: its `eth0` has this address and MTU.
    pub(super) fn plug(&self, port: &str, machine: &Machine<'_>) {
        let Machine { namespace, mac, address, mtu } = *machine;
        let mtu = &mtu.to_string();
        self.ip(&["link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace]);
        self.ip(&["link", "set", port, "master", "br100", "up"]);
        let inside = |arguments: &[&str]| {
            run(Command::new("ip").args(["-n", namespace]).args(arguments));
        };
        inside(&["link", "set", "eth0", "address", mac, "mtu", mtu, "up"]);
        inside(&["address", "add", address, "dev", "eth0"]);
        // Between namespaces no network card fills in the checksums of frames in a tunnel.
        let offload = ["netns", "exec", namespace, "ethtool", "-K", "eth0", "tx", "off"];
        run(Command::new("ip").args(offload));
    }
}

/// A machine behind the router.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    pub(super) namespace: &'a str,
    pub(super) mac: &'a str,
    pub(super) address: &'a str,
    pub(super) mtu: u16,
}

impl Drop for Router {
    fn drop(&mut self) {
        for daemon in ["bgpd", "zebra"] {
            self.kill(daemon);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn said(output: Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must succeed, and returns what it prints.
pub(super) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    said(output)
}
