//! Opens the device and finds the address by which peers reach it.

use core::ffi::CStr;
use std::net::{IpAddr, Ipv6Addr};

use super::gids::{Gid, choose, version_of};
use super::{IbVerbs, PORT};
use crate::library::{Verbs, VerbsLibraryError, check_pointer, check_result};
use weft_verbs_abi::*;

/// A device of the library's list.
struct Listed {
    device: *mut ibv_device,
    name: String,
    is_iwarp: bool,
}

/// Opens a device by its name, or the first one of RoCE or InfiniBand. Returns the context and the device's name.
pub(super) fn open_device(
    verbs: &Verbs,
    wanted: Option<&str>,
) -> Result<(*mut ibv_context, String), VerbsLibraryError> {
    let mut count = 0;
    // SAFETY: the list has `count` devices, with names, until it is freed.
    unsafe {
        let list = (verbs.ibv_get_device_list)(&raw mut count);
        // Without RDMA in the kernel the library returns no list.
        let list = check_pointer("ibv_get_device_list", list).map_err(|error| match error {
            VerbsLibraryError::Failed { error, .. }
                if error.raw_os_error() == Some(libc::ENOSYS) =>
            {
                VerbsLibraryError::NoDevice
            }
            other => other,
        })?;
        let devices = (0..usize::try_from(count).unwrap_or(0)).map(|index| *list.add(index));
        let devices = devices.map(|device| {
            let name = CStr::from_ptr((verbs.ibv_get_device_name)(device));
            let is_iwarp = (*device).transport_type == IBV_TRANSPORT_IWARP;
            Listed { device, name: name.to_string_lossy().into_owned(), is_iwarp }
        });
        let opened =
            choose_device(devices.collect(), wanted).and_then(|Listed { device, name, .. }| {
                check_pointer("ibv_open_device", (verbs.ibv_open_device)(device))
                    .map(|context| (context, name))
            });
        (verbs.ibv_free_device_list)(list);
        opened
    }
}

/// Returns the device of a name, or the first one of RoCE or InfiniBand.
fn choose_device(devices: Vec<Listed>, wanted: Option<&str>) -> Result<Listed, VerbsLibraryError> {
    let names: Vec<_> = devices.iter().map(|listed| listed.name.clone()).collect();
    let is_wanted = |listed: &Listed| wanted.is_none_or(|wanted| wanted == listed.name);
    // Without a name, a device of iWARP is taken only where there is no other, and then refused.
    let found = devices.into_iter().filter(is_wanted).min_by_key(|listed| listed.is_iwarp);
    match (found, wanted) {
        (Some(Listed { name, is_iwarp: true, .. }), _) => {
            Err(VerbsLibraryError::Iwarp { device: name })
        }
        (Some(found), _) => Ok(found),
        (None, Some(name)) if !names.is_empty() => {
            Err(VerbsLibraryError::NoSuchDevice { name: name.into(), known: names.join(", ") })
        }
        (None, _) => Err(VerbsLibraryError::NoDevice),
    }
}

/// Returns the device's attributes.
pub(super) fn query_device(
    verbs: &Verbs,
    context: *mut ibv_context,
) -> Result<ibv_device_attr, VerbsLibraryError> {
    // SAFETY: a device's attributes are numbers, of which zero is one.
    let mut device: ibv_device_attr = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open and `device` has room.
    let result = unsafe { (verbs.ibv_query_device)(context, &raw mut device) };
    check_result("ibv_query_device", result)?;
    Ok(device)
}

impl IbVerbs {
    /// Selects the row of the port's GID table that has the wanted address; see [`choose`] for the order.
    ///
    /// # Errors
    /// The port has no such row, or cannot be queried.
    pub(super) fn find_address(
        &mut self,
        name: &str,
        wanted: Option<IpAddr>,
    ) -> Result<(), VerbsLibraryError> {
        // SAFETY: a port's attributes are numbers, of which zero is one.
        let mut port: ibv_port_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open and `port` has room.
        let result = unsafe { (self.verbs.ibv_query_port)(self.context, PORT, &raw mut port) };
        check_result("ibv_query_port", result)?;
        self.mtu = port.active_mtu;
        // A queue pair names its row in a byte, and rxe's table has 1024.
        let rows = (0..port.gid_tbl_len.min(1 << u8::BITS)).filter_map(|row| {
            let mut gid = ibv_gid::default();
            // SAFETY: likewise.
            let result =
                unsafe { (self.verbs.ibv_query_gid)(self.context, PORT, row, &raw mut gid) };
            let address = Ipv6Addr::from(gid.raw);
            let used = result == 0 && !address.is_unspecified();
            used.then(|| Gid { row, address, version: version_of(name, PORT, row) })
        });
        let found = choose(rows, wanted).ok_or_else(|| VerbsLibraryError::NoAddress {
            device: name.into(),
            of: wanted.map(|address| format!(" {address}")).unwrap_or_default(),
        })?;
        (self.gid, self.gid_index) = (found.address, u8::try_from(found.row).unwrap_or(0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name of the device that is chosen among devices with these names, or the error.
    fn chosen(names: &[&str], wanted: Option<&str>) -> Result<String, String> {
        let listed = |name: &&str| Listed {
            device: core::ptr::null_mut(),
            name: (*name).into(),
            is_iwarp: name.starts_with("siw"),
        };
        choose_device(names.iter().map(listed).collect(), wanted)
            .map(|found| found.name)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_device_that_is_not_iwarp_is_chosen_or_the_named_one() {
        assert_eq!(chosen(&["siw0", "rxe0", "rxe1"], None).unwrap(), "rxe0");
        assert_eq!(chosen(&["rxe0", "rxe1"], Some("rxe1")).unwrap(), "rxe1");
        for wanted in [None, Some("siw0")] {
            let error = chosen(&["siw0"], wanted).unwrap_err();
            assert!(error.starts_with("RDMA device siw0 is iWARP"), "{error}");
        }
        let error = chosen(&["siw0", "rxe0"], Some("mlx5_0")).unwrap_err();
        assert_eq!(error, "no RDMA device \"mlx5_0\" (there are: siw0, rxe0)");
        assert!(chosen(&[], None).unwrap_err().starts_with("no RDMA device:"));
    }
}
