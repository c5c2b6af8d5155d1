//! The choice among a port's GIDs. A RoCE port has two rows for each address, one for each version of RoCE, and only the
//! second version leaves a subnet or carries a DSCP.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The folder of the kernel's RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// A row of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gid {
    pub(super) row: i32,
    pub(super) address: Ipv6Addr,
    pub(super) version: Version,
}

/// The version of RoCE of a row, the better one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// RoCE v2: UDP over IP.
    Second,
    /// The kernel does not say: the device is Weft's.
    Unknown,
    /// RoCE v1, which Ethernet bridges but no router forwards; or InfiniBand.
    First,
}

/// Returns the best row that has the wanted address, or any: RoCE v2 first, then IPv4, then addresses beyond the link,
/// then the first row.
pub(super) fn choose(rows: impl Iterator<Item = Gid>, wanted: Option<IpAddr>) -> Option<Gid> {
    let is_wanted = |gid: &Gid| wanted.is_none_or(|address| gid.address.to_canonical() == address);
    rows.filter(is_wanted).min_by_key(|gid| {
        let is_v6 = gid.address.to_ipv4_mapped().is_none();
        (gid.version, is_v6, gid.address.is_unicast_link_local(), gid.row)
    })
}

/// Returns the version of RoCE of a row, by sysfs.
pub(super) fn version_of(device: &str, port: u8, row: i32) -> Version {
    let file = port_folder(device, port).join(format!("gid_attrs/types/{row}"));
    match fs::read_to_string(file).as_deref().map(str::trim) {
        Ok("RoCE v2") => Version::Second,
        Ok("IB/RoCE v1") => Version::First,
        _ => Version::Unknown,
    }
}

/// Returns `false` if the link of a port is InfiniBand, by sysfs.
pub(super) fn is_ethernet(device: &str, port: u8) -> bool {
    let layer = fs::read_to_string(port_folder(device, port).join("link_layer"));
    !layer.is_ok_and(|layer| layer.trim() == "InfiniBand")
}

fn port_folder(device: &str, port: u8) -> PathBuf {
    Path::new(DEVICES).join(device).join(format!("ports/{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of a ConnectX port: each address once for each version.
    fn table() -> Vec<Gid> {
        use Version::{First, Second};
        let rows = [
            ("fe80::1", First),
            ("fe80::1", Second),
            ("fd00::1", First),
            ("fd00::1", Second),
            ("::ffff:10.0.0.1", First),
            ("::ffff:10.0.0.1", Second),
        ];
        let rows = (0..).zip(rows);
        rows.map(|(row, (address, version))| Gid {
            row,
            address: address.parse().unwrap(),
            version,
        })
        .collect()
    }

    fn chosen(rows: &[Gid], wanted: Option<&str>) -> Option<i32> {
        let wanted = wanted.map(|address| address.parse().unwrap());
        choose(rows.iter().copied(), wanted).map(|gid| gid.row)
    }

    #[test]
    fn roce_v2_is_first_and_then_ipv4_before_the_link_local_address() {
        let table = table();
        assert_eq!(chosen(&table, None), Some(5));
        assert_eq!(chosen(&table[..4], None), Some(3), "beyond the link");
        assert_eq!(chosen(&table[..2], None), Some(1));
        // RoCE v2 at the link's own address is better than RoCE v1 at any.
        assert_eq!(chosen(&[table[1], table[4]], None), Some(1));
        assert_eq!(chosen(&[], None), None);
    }

    #[test]
    fn a_wanted_address_has_its_row_of_roce_v2() {
        let table = table();
        assert_eq!(chosen(&table, Some("10.0.0.1")), Some(5));
        assert_eq!(chosen(&table, Some("fe80::1")), Some(1));
        assert_eq!(chosen(&table, Some("10.0.0.2")), None);
    }

    #[test]
    fn rows_that_the_kernel_does_not_describe_keep_their_order() {
        let unknown: Vec<Gid> =
            table().into_iter().map(|gid| Gid { version: Version::Unknown, ..gid }).collect();
        assert_eq!(chosen(&unknown, None), Some(4));
        assert_eq!(version_of("no such device", 1, 0), Version::Unknown);
        assert!(is_ethernet("no such device", 1));
    }
}
