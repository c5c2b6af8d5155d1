//! The facts of this host that a device in sysfs shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::interfaces::{self, Address};

/// The place of a device in this host.
#[derive(Debug)]
pub(super) struct Host {
    /// The memory node near the device, -1 if no node is nearer than others.
    pub(super) numa_node: i32,
    /// The processors near the device, as a mask.
    pub(super) local_cpus: String,
    /// The same as a list.
    pub(super) local_cpulist: String,
    /// The interfaces of this network namespace that have addresses, by number.
    pub(super) interfaces: BTreeMap<u32, String>,
}

impl Host {
    /// Reads them for a device with these addresses: it is near what the interface of the first one is near, as all of
    /// its packets pass there.
    pub(super) fn read(addresses: &[Address]) -> Self {
        // Those of a daemon may be in another namespace, such as a pod's node, where the numbers are other interfaces'.
        let here = interfaces::addresses();
        let is_here =
            |it: &&Address| here.iter().any(|own| (own.ip, own.interface) == (it.ip, it.interface));
        let named =
            |address: &Address| Some((address.interface, interfaces::name(address.interface)?));
        let interfaces: BTreeMap<u32, String> =
            addresses.iter().filter(is_here).filter_map(named).collect();
        let first = addresses.first().and_then(|address| interfaces.get(&address.interface));
        let slot = first.map(|name| Path::new("/sys/class/net").join(name).join("device"));
        let near = |file: &str| slot.as_ref().and_then(|slot| line(&slot.join(file)));
        let all =
            || line(Path::new("/sys/devices/system/cpu/online")).unwrap_or_else(|| "0".into());
        let local_cpulist = near("local_cpulist").unwrap_or_else(all);
        Self {
            numa_node: near("numa_node").and_then(|node| node.parse().ok()).unwrap_or(-1),
            local_cpus: mask(&local_cpulist),
            local_cpulist,
            interfaces,
        }
    }

    /// Returns the names of the interfaces that have addresses, without the loopback interface.
    pub(super) fn interface_names(&self) -> impl Iterator<Item = &str> {
        self.interfaces.values().map(String::as_str).filter(|&name| name != "lo")
    }
}

/// Returns the only line of a file; `None` if it is empty.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Returns a list of processors, such as `0-3,8`, as the kernel's mask: words of 32 bits, the highest first.
fn mask(list: &str) -> String {
    let mut words = vec![0_u32];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            continue;
        };
        // The kernel is built for at most 8,192.
        for cpu in first..=last.min(8_191) {
            words.resize(words.len().max(cpu / 32 + 1), 0);
            words[cpu / 32] |= 1 << (cpu % 32);
        }
    }
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_another_namespace_have_no_name() {
        let address = |ip: [u8; 4]| Address { ip: ip.into(), interface: 1, mtu: 1_500 };
        let named = |ip| Host::read(&[address(ip)]).interfaces;
        assert_eq!(named([127, 0, 0, 1]), BTreeMap::from([(1, "lo".to_owned())]));
        // RFC 5737: no host has this address.
        assert_eq!(named([192, 0, 2, 1]), BTreeMap::new());
    }

    #[test]
    fn a_list_of_processors_becomes_a_mask() {
        assert_eq!(mask("0-1"), "00000003");
        assert_eq!(mask("0-3,8,33"), "00000002,0000010f");
        assert_eq!(mask("none"), "00000000");
    }
}
