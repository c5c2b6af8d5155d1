//! The stage of a soak: three hosts behind a leaf each, four spines, a management network with etcd, tenants' namespaces, and a
//! folder and a small disk for each host's daemons. [`Shared`] is what others know of it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use weft_lab::{Lab, LabSpec};
use weft_testkit::etcd::Etcd;

use crate::shared::{Shared, manager_of, tenant_of};
use crate::{HOSTS, SPINES};

/// The tenants of the overlay: name, number of the network, in-order delivery. All have the same addresses.
pub(crate) const TENANTS: [(&str, u32, bool); 2] = [("red", 100, true), ("blue", 200, false)];
/// The address of the management host: etcd, controllers, monitor.
pub(crate) const MANAGER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// The size of a host's disk for state files.
const DISK: &str = "size=4m";
/// The stage. Dropping it removes everything.
#[derive(Debug)]
pub(crate) struct Stage {
    /// etcd ends before its namespace.
    pub(crate) etcd: Etcd,
    pub(crate) lab: Lab,
    pub(crate) shared: Arc<Shared>,
    /// The folder is removed last.
    _folder: Folder,
}

/// The folder of the run with its mounts.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        for host in 0..HOSTS {
            // One that is not mounted has nothing to unmount.
            let _ = unmount(self.0.join(format!("h{host}/disk")), UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Stage {
    /// Builds everything but the daemons.
    ///
    /// # Errors
    /// Returns an error if a part cannot be built, with the missing permission or program.
    pub(crate) fn up(weft: PathBuf, cgroups: PathBuf, slack: u32) -> Result<Self> {
        let id = std::process::id();
        let folder = Folder(PathBuf::from(format!("/run/weft-soak-{id}")));
        for host in 0..HOSTS {
            let disk = folder.0.join(format!("h{host}/disk"));
            fs::create_dir_all(&disk).with_context(|| format!("cannot make {}", disk.display()))?;
            fs::create_dir_all(folder.0.join(format!("h{host}/stat")))?;
            let options = std::ffi::CString::new(DISK)?;
            mount("tmpfs", &disk, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))
                .with_context(|| format!("cannot mount {} (run it as root)", disk.display()))?;
        }
        let spec = LabSpec {
            leaves: HOSTS,
            spines: SPINES,
            offloads: false,
            ..LabSpec::named(format!("soak{id}"))
        };
        let lab = Lab::up(&spec)?;
        manage(&lab)?;
        for (tenant, _, _) in TENANTS.iter().chain([&EXTRA]) {
            (0..HOSTS).try_for_each(|host| add_namespace(&tenant_of(lab.name(), tenant, host)))?;
        }
        let etcd = Etcd::start_in("soak", &manager_of(lab.name()), IpAddr::V4(MANAGER));
        let shared = Shared {
            weft,
            folder: folder.0.clone(),
            lab: lab.name().to_owned(),
            hosts: lab.fabric().nodes[..HOSTS].iter().map(|node| node.namespace.clone()).collect(),
            addresses: (0..HOSTS).map(|host| lab.fabric().address(host)).collect(),
            etcd: etcd.toml(),
            cgroups,
            slack,
        };
        shared.write_secret("token", "the-token-of-this-soak")?;
        Ok(Self { etcd, lab, shared: Arc::new(shared), _folder: folder })
    }
}

/// The tenant whose ports come and go.
pub(crate) const EXTRA: (&str, u32, bool) = ("extra", 100, true);

/// Returns the address of a tenant on a host.
pub(crate) fn tenant_address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 7, u8::try_from(host + 1).expect("a few hosts"))
}

/// Returns the address of a host in the management network.
pub(crate) fn management_address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, u8::try_from(host + 11).expect("a few hosts"))
}

/// Builds the management network: a bridge in a namespace of its own, with a port for each host.
fn manage(lab: &Lab) -> Result<()> {
    let manager = manager_of(lab.name());
    add_namespace(&manager)?;
    ip(&["-n", &manager, "link", "add", "manage", "type", "bridge"])?;
    ip(&["-n", &manager, "addr", "add", &format!("{MANAGER}/24"), "dev", "manage"])?;
    ip(&["-n", &manager, "link", "set", "manage", "up"])?;
    for host in 0..HOSTS {
        let (namespace, port) = (&lab.fabric().nodes[host].namespace, format!("h{host}"));
        let address = format!("{}/24", management_address(host));
        let veth = ["type", "veth", "peer", "name", "manage", "netns", namespace];
        ip(&[&["-n", &manager, "link", "add", &port][..], &veth].concat())?;
        ip(&["-n", &manager, "link", "set", &port, "master", "manage", "up"])?;
        ip(&["-n", namespace, "addr", "add", &address, "dev", "manage"])?;
        ip(&["-n", namespace, "link", "set", "manage", "up"])?;
    }
    Ok(())
}

fn add_namespace(name: &str) -> Result<()> {
    ip(&["netns", "add", name])?;
    ip(&["-n", name, "link", "set", "lo", "up"])
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).output().context("cannot run ip (iproute2)")?;
    if !output.status.success() {
        bail!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
