//! Opens the device and finds the address by which peers reach it.

use core::ffi::CStr;
use std::net::{IpAddr, Ipv6Addr};

use super::gids::{Gid, choose, version_of};
use super::{IbVerbs, PORT};
use crate::library::{Verbs, VerbsLibraryError, check_pointer, check_result};
use weft_verbs_abi::*;

/// Opens a device by its name, or the first one. Returns the context and the device's name.
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
        let devices: Vec<_> = (0..usize::try_from(count).unwrap_or(0))
            .map(|index| *list.add(index))
            .map(|device| (device, (verbs.ibv_get_device_name)(device)))
            .map(|(device, name)| (device, CStr::from_ptr(name).to_string_lossy().into_owned()))
            .collect();
        let found = devices.iter().find(|(_, name)| wanted.is_none_or(|wanted| wanted == name));
        let opened = match (found, wanted) {
            (Some((device, name)), _) => {
                check_pointer("ibv_open_device", (verbs.ibv_open_device)(*device))
                    .map(|context| (context, name.clone()))
            }
            (None, Some(name)) if !devices.is_empty() => {
                let known: Vec<_> = devices.iter().map(|(_, name)| name.as_str()).collect();
                Err(VerbsLibraryError::NoSuchDevice { name: name.into(), known: known.join(", ") })
            }
            (None, _) => Err(VerbsLibraryError::NoDevice),
        };
        (verbs.ibv_free_device_list)(list);
        opened
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
