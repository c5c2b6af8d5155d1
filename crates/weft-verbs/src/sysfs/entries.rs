//! The files and links that describe the device: those of a device with a driver (Linux,
//! Documentation/ABI/stable/sysfs-class-infiniband and Documentation/PCI/sysfs-pci.rst), as far as programs read them.
//! Counters are left out; `weft stat` has the true ones.

use core::fmt::Write as _;

use super::host::Host;
use crate::device::{Device, RATE, gid_of};

/// The bus and the device on it. No machine has this domain, "WE": programs compare these addresses with those of GPUs.
const BUS: &str = "5745:00";
const SLOT: &str = "5745:00:00.0";

/// A file or a link, with its path below the root.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) content: Content,
}

/// The content of an entry.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    /// The text of a file.
    Text(String),
    /// The target of a link.
    Link(String),
}

/// Collects entries below one folder.
struct Below<'a> {
    folder: String,
    entries: &'a mut Vec<Entry>,
}

impl Below<'_> {
    /// Adds a file with one line.
    fn file(&mut self, name: &str, line: impl core::fmt::Display) {
        let content = Content::Text(format!("{line}\n"));
        self.entries.push(Entry { path: format!("{}/{name}", self.folder), content });
    }

    fn link(&mut self, name: &str, target: impl Into<String>) {
        let content = Content::Link(target.into());
        self.entries.push(Entry { path: format!("{}/{name}", self.folder), content });
    }
}

/// Returns everything that describes a device of this host.
pub(super) fn of(device: &Device, host: &Host) -> Vec<Entry> {
    let mut entries = Vec::new();
    let name = device.name();
    let slot = format!("sys/devices/pci{BUS}/{SLOT}");
    let mut below = |folder: String, fill: &dyn Fn(&mut Below<'_>)| {
        fill(&mut Below { folder, entries: &mut entries });
    };
    below("dev/infiniband".into(), &|at| at.link(name, "/dev/null"));
    below("sys/class".into(), &|at| {
        let target = |rest: &str| format!("../../devices/pci{BUS}/{rest}");
        at.link(&format!("infiniband/{name}"), target(&format!("{SLOT}/infiniband/{name}")));
        let verbs = format!("infiniband_verbs/{name}");
        at.link(&verbs, target(&format!("{SLOT}/{verbs}")));
        at.file("infiniband_verbs/abi_version", 6);
        at.link(&format!("pci_bus/{BUS}"), target(&format!("pci_bus/{BUS}")));
    });
    below("sys/bus/pci/devices".into(), &|at| {
        at.link(SLOT, format!("../../../devices/pci{BUS}/{SLOT}"));
    });
    below(format!("sys/devices/pci{BUS}/pci_bus/{BUS}"), &|at| {
        at.file("cpuaffinity", &host.local_cpus);
        at.file("cpulistaffinity", &host.local_cpulist);
    });
    below(slot.clone(), &|at| function(at, device, host));
    below(format!("{slot}/infiniband_verbs/{name}"), &|at| {
        at.file("ibdev", name);
        at.file("abi_version", 1);
        at.link("device", format!("../../../{SLOT}"));
    });
    below(format!("{slot}/infiniband/{name}"), &|at| adapter(at, device));
    below(format!("{slot}/infiniband/{name}/ports/1"), &|at| port(at, device, host));
    entries
}

/// The function on the PCI bus, whose link is faster than the port.
fn function(at: &mut Below<'_>, device: &Device, host: &Host) {
    let attributes = device.attributes();
    at.file("class", "0x020000");
    at.file("vendor", format_args!("{:#06x}", attributes.vendor_id & 0xffff));
    at.file("device", format_args!("{:#06x}", attributes.vendor_part_id));
    at.file("subsystem_vendor", format_args!("{:#06x}", attributes.vendor_id & 0xffff));
    at.file("subsystem_device", format_args!("{:#06x}", attributes.vendor_part_id));
    at.file("revision", "0x00");
    at.file("uevent", format_args!("PCI_CLASS=20000\nPCI_SLOT_NAME={SLOT}"));
    for end in ["current", "max"] {
        at.file(&format!("{end}_link_speed"), "16.0 GT/s PCIe");
        at.file(&format!("{end}_link_width"), 16);
    }
    at.file("numa_node", host.numa_node);
    at.file("local_cpus", &host.local_cpus);
    at.file("local_cpulist", &host.local_cpulist);
    for name in host.interface_names() {
        for file in ["address", "ifindex", "mtu", "operstate", "speed", "type", "dev_port"] {
            at.link(&format!("net/{name}/{file}"), format!("/sys/class/net/{name}/{file}"));
        }
    }
}

/// The adapter, without its port.
fn adapter(at: &mut Below<'_>, device: &Device) {
    let guid = words(&device.guid);
    at.file("node_type", "1: CA");
    at.file("node_guid", &guid);
    at.file("sys_image_guid", &guid);
    at.file("node_desc", format_args!("{} of Weft", device.name()));
    at.file("fw_ver", env!("CARGO_PKG_VERSION"));
    at.file("hw_rev", 0);
    at.file("hca_type", "Weft");
    at.file("board_id", "Weft");
    at.link("device", format!("../../../{SLOT}"));
}

fn port(at: &mut Below<'_>, device: &Device, host: &Host) {
    at.file("state", "4: ACTIVE");
    at.file("phys_state", "5: LinkUp");
    at.file("link_layer", "Ethernet");
    at.file("rate", RATE.text);
    at.file("cap_mask", format_args!("{:#010x}", device.port().port_cap_flags));
    at.file("lid", "0x0");
    at.file("lid_mask_count", 0);
    at.file("sm_lid", "0x0");
    at.file("sm_sl", 0);
    at.file("pkeys/0", "0xffff");
    for (row, address) in device.addresses.iter().enumerate() {
        at.file(&format!("gids/{row}"), words(&gid_of(address.ip).raw));
        at.file(&format!("gid_attrs/types/{row}"), "RoCE v2");
        if let Some(name) = host.interfaces.get(&address.interface) {
            at.file(&format!("gid_attrs/ndevs/{row}"), name);
        }
    }
}

/// Returns bytes as sysfs writes GUIDs and GIDs: groups of four digits.
fn words(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, pair) in bytes.chunks(2).enumerate() {
        let separator = if index > 0 { ":" } else { "" };
        let number = pair.iter().fold(0, |number, &byte| number << 8 | u16::from(byte));
        let _ = write!(text, "{separator}{number:04x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use super::*;
    use crate::interfaces::Address;

    fn text<'a>(entries: &'a [Entry], path: &str) -> &'a str {
        let found = entries.iter().find(|entry| entry.path == path);
        match found.map(|entry| &entry.content) {
            Some(Content::Text(text) | Content::Link(text)) => text.trim_end(),
            None => panic!("no {path}"),
        }
    }

    fn entries() -> Vec<Entry> {
        let ip = Ipv4Addr::new(192, 0, 2, 7).into();
        let device = Device::embedded(vec![Address { ip, interface: 3, mtu: 1_500 }]);
        let interfaces = BTreeMap::from([(3, "eth0".to_owned())]);
        let (local_cpus, local_cpulist) = ("3".into(), "0-1".into());
        of(&device, &Host { numa_node: -1, local_cpus, local_cpulist, interfaces })
    }

    /// As NCCL, UCX and perftest read them.
    #[test]
    fn a_gid_has_its_address_its_type_and_its_interface() {
        let entries = entries();
        let port = format!("sys/devices/pci{BUS}/{SLOT}/infiniband/weft0/ports/1");
        let read = |name: &str| text(&entries, &format!("{port}/{name}"));
        assert_eq!(read("gids/0"), "0000:0000:0000:0000:0000:ffff:c000:0207");
        assert_eq!(read("gid_attrs/types/0"), "RoCE v2");
        assert_eq!(read("gid_attrs/ndevs/0"), "eth0");
        assert_eq!(read("cap_mask"), "0x04010000");
    }

    /// Every path lies where the preloaded library sends programs to this folder; others would never be read.
    #[test]
    fn the_preloaded_library_knows_every_folder() {
        let source = include_str!("../../preload/paths.c");
        let known = |folder: &str| source.contains(&format!("\"{folder}\","));
        for entry in entries() {
            let path = format!("/{}", entry.path);
            let mut folders = path.match_indices('/').map(|(end, _)| &path[..end]);
            assert!(folders.any(known) || known(&path), "{path}");
        }
    }
}
