//! The devices that NCCL sees: one for each network interface on which Weft's device has an address.

use core::ffi::{CStr, c_int};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::failure::Failure;
use crate::interfaces::{self, Selection};
use crate::verbs::Domain;

/// The speed of an interface that does not report one, Mbit/s: that of NCCL's own sockets.
const DEFAULT_SPEED: c_int = 10_000;

/// A local address, and its row in the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) gid: u8,
    pub(crate) address: IpAddr,
}

/// A device of NCCL's: a network interface.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) port: Port,
    /// Its name, which NCCL's log shows.
    pub(crate) name: CString,
    /// The folder of its PCI device in sysfs; `None` for a virtual interface.
    pub(crate) pci_path: Option<CString>,
    /// A number that no other interface of this host has.
    pub(crate) guid: u64,
    /// Mbit/s.
    pub(crate) speed: c_int,
}

/// The opened device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) domain: Arc<Domain>,
    pub(crate) interfaces: Vec<Interface>,
}

impl Device {
    /// Returns the device of this process, which the first call opens. It stays open: its thread runs until the process ends.
    ///
    /// # Errors
    /// There is no device, or no interface that NCCL may use. A later call tries again.
    pub(crate) fn current() -> Result<&'static Self, Failure> {
        static DEVICE: Mutex<Option<&'static Device>> = Mutex::new(None);
        let mut device =
            DEVICE.lock().map_err(|_| Failure::internal("the device's lock is poisoned"))?;
        if let Some(device) = *device {
            return Ok(device);
        }
        let opened: &'static Self = Box::leak(Box::new(Self::open()?));
        *device = Some(opened);
        Ok(opened)
    }

    fn open() -> Result<Self, Failure> {
        let domain =
            Domain::open().map_err(|error| Failure::system("opening Weft's device", &error))?;
        let addresses = domain.addresses();
        let wanted = std::env::var("NCCL_SOCKET_IFNAME").unwrap_or_default();
        let interfaces = select(&addresses, &interfaces::names(), &Selection::parse(&wanted));
        if interfaces.is_empty() {
            let known: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            return Err(Failure::argument(format!(
                "no interface to use: NCCL_SOCKET_IFNAME={wanted:?}, and Weft's device has the addresses {}",
                known.join(", ")
            )));
        }
        Ok(Self { domain: Arc::new(domain), interfaces })
    }

    /// Returns one of NCCL's devices.
    ///
    /// # Errors
    /// There is no device of this number.
    pub(crate) fn interface(&self, number: c_int) -> Result<&Interface, Failure> {
        let index = usize::try_from(number).ok();
        index.and_then(|index| self.interfaces.get(index)).ok_or_else(|| {
            Failure::argument(format!("device {number}: there are {}", self.interfaces.len()))
        })
    }
}

/// Returns the interfaces to use: of each the first address, IPv4 before IPv6. Loopback is used only if it is named or there is
/// nothing else. An address that this host does not have, because the device is a daemon's, is an interface of its own.
fn select(
    addresses: &[IpAddr],
    names: &BTreeMap<IpAddr, CString>,
    selection: &Selection,
) -> Vec<Interface> {
    let mut order: Vec<Port> = Vec::new();
    for (gid, &address) in (0_u8..).zip(addresses) {
        order.push(Port { gid, address });
    }
    order.sort_by_key(|port| port.address.is_ipv6());
    let mut found: BTreeMap<CString, Port> = BTreeMap::new();
    for port in order {
        let name = names.get(&port.address).cloned().unwrap_or_else(|| {
            CString::new(port.address.to_string()).expect("an address has no zero byte")
        });
        if selection.allows(&name) {
            found.entry(name).or_insert(port);
        }
    }
    if !selection.names_interfaces() && found.values().any(|port| !port.address.is_loopback()) {
        found.retain(|_, port| !port.address.is_loopback());
    }
    found.into_iter().map(|(name, port)| describe(name, port)).collect()
}

fn describe(name: CString, port: Port) -> Interface {
    let folder = Path::new("/sys/class/net").join(text(&name));
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let speed =
        read("speed").and_then(|speed| speed.trim().parse().ok()).filter(|&speed| speed > 0);
    let pci_path = fs::canonicalize(folder.join("device")).ok();
    Interface {
        port,
        guid: read("address")
            .and_then(|mac| number_of(&mac))
            .unwrap_or_else(|| number_of_ip(port.address)),
        speed: speed.unwrap_or(DEFAULT_SPEED),
        pci_path: pci_path
            .and_then(|path| CString::new(path.into_os_string().into_encoded_bytes()).ok()),
        name,
    }
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Returns the number of a MAC address; `None` if it is zero, like loopback's, or not one.
fn number_of(mac: &str) -> Option<u64> {
    let bytes: Option<Vec<u64>> =
        mac.trim().split(':').map(|byte| u64::from_str_radix(byte, 16).ok()).collect();
    let number = bytes?.into_iter().fold(0, |number, byte| number << 8 | byte);
    (number != 0).then_some(number)
}

fn number_of_ip(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            let half =
                |from: usize| <[u8; 8]>::try_from(&ip.octets()[from..from + 8]).expect("8 bytes");
            u64::from_be_bytes(half(0)) ^ u64::from_be_bytes(half(8))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn names_of(wanted: &str) -> Vec<String> {
        let rows = [
            ("127.0.0.1", c"lo"),
            ("::1", c"lo"),
            ("10.0.0.1", c"eth0"),
            ("2001:db8::1", c"eth0"),
            ("10.1.0.1", c"eth1"),
            ("172.17.0.1", c"docker0"),
        ];
        let names: BTreeMap<IpAddr, CString> =
            rows.iter().map(|(ip, name)| (ip.parse().unwrap(), (*name).into())).collect();
        let mut addresses: Vec<IpAddr> = rows.iter().map(|(ip, _)| ip.parse().unwrap()).collect();
        addresses.reverse();
        let found = select(&addresses, &names, &Selection::parse(wanted));
        for interface in &found {
            assert_eq!(addresses[usize::from(interface.port.gid)], interface.port.address);
            assert!(interface.port.address.is_ipv4(), "{interface:?}");
        }
        found.iter().map(|interface| text(&interface.name)).collect()
    }

    #[test]
    fn the_interfaces_are_those_that_nccl_s_variable_selects() {
        assert_eq!(names_of(""), ["eth0", "eth1"]);
        assert_eq!(names_of("eth"), ["eth0", "eth1"]);
        assert_eq!(names_of("=eth1"), ["eth1"]);
        assert_eq!(names_of("^eth0,lo"), ["docker0", "eth1"]);
        assert_eq!(names_of("lo"), ["lo"]);
        assert_eq!(names_of("ib"), [""; 0]);
    }

    #[test]
    fn loopback_is_used_where_there_is_nothing_else() {
        let address: IpAddr = Ipv4Addr::LOCALHOST.into();
        let names = BTreeMap::from([(address, CString::from(c"lo"))]);
        let found = select(&[address], &names, &Selection::parse(""));
        assert_eq!(found.len(), 1);
        assert!(found[0].guid != 0 && found[0].speed > 0, "{found:?}");
    }

    #[test]
    fn a_mac_address_is_a_number() {
        assert_eq!(number_of("02:00:00:00:01:ff\n"), Some(0x0200_0000_01ff));
        assert_eq!(number_of("00:00:00:00:00:00"), None);
        assert_eq!(number_of("a veth"), None);
    }
}
