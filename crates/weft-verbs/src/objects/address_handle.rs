//! The resolution of GIDs to hosts, and address handles.

use core::ffi::c_int;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use weft_wire::{Ipv4Header, Ipv6Header};

use super::domain::Domain;
use super::{Object, Shared};
use crate::context::Opened;
use crate::device::{self, DEVICE};
use crate::errno::{EINVAL, Outcome, count, number, pointer};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct AddressHandle {
    public: Shared<ibv_ah>,
    pub(super) ip: IpAddr,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
unsafe impl Object for AddressHandle {
    type Public = ibv_ah;
}

/// Returns the host that an address vector names, and makes the context send to it from the vector's source address.
/// RoCE has no address without a GID.
pub(super) fn resolve(opened: &Opened, address: &ibv_ah_attr) -> Outcome<IpAddr> {
    if address.port_num != 1 || address.is_global == 0 {
        return Err(EINVAL);
    }
    let (ip, row) = (device::ip_of(&address.grh.dgid), usize::from(address.grh.sgid_index));
    let own = DEVICE.addresses.get(row).ok_or(EINVAL)?;
    if own.ip.is_ipv4() != ip.is_ipv4() || ip.is_unspecified() {
        return Err(EINVAL);
    }
    opened.engine.route(opened.number, ip, row)?;
    Ok(ip)
}

/// # Safety
/// `pd` is allocated, and `attributes` is a valid address vector.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attributes: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer(|| {
        // SAFETY: guaranteed by the caller.
        let (domain, context, attributes) =
            unsafe { (Domain::of(pd), (*pd).context, &*attributes) };
        let ip = resolve(&domain.opened, attributes)?;
        domain.handles.fetch_add(1, Ordering::Relaxed);
        Ok(AddressHandle { public: Shared::new(ibv_ah { context, pd, handle: 0 }), ip }.publish())
    })
}

/// # Safety
/// `ah` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller; a domain outlives the objects in it.
        unsafe {
            Domain::of((*ah).pd).handles.fetch_sub(1, Ordering::Relaxed);
            drop(AddressHandle::take(ah));
        }
        Ok(())
    })
}

/// Returns a datagram's source and destination, from the header before it (IBTA annex A17).
fn addresses_of(header: &[u8; 40]) -> Option<(IpAddr, IpAddr)> {
    // The buffer has only the headers, whose length fields include the payload.
    let with_payload = |header: &[u8]| [header, &[0; 1 << 16]].concat();
    if let Ok((header, _)) = Ipv4Header::parse(&with_payload(&header[20..])) {
        return Some((header.source.into(), header.destination.into()));
    }
    let parsed = Ipv6Header::parse(&with_payload(header)).ok()?.0;
    Some((parsed.source.into(), parsed.destination.into()))
}

/// # Safety
/// `grh` is the start of a datagram's buffer.
unsafe fn sender_of(port: u8, wc: &ibv_wc, grh: *const ibv_grh) -> Outcome<ibv_ah_attr> {
    if wc.wc_flags & wc_flag::GRH == 0 {
        return Err(EINVAL);
    }
    // SAFETY: guaranteed by the caller; the structure has 40 bytes.
    let header = unsafe { *grh.cast::<[u8; 40]>() };
    let (source, destination) = addresses_of(&header).ok_or(EINVAL)?;
    let row = DEVICE.addresses.iter().position(|address| address.ip == destination);
    let row = row.and_then(|row| u8::try_from(row).ok()).ok_or(EINVAL)?;
    let grh = ibv_global_route {
        dgid: device::gid_of(source),
        sgid_index: row,
        hop_limit: u8::MAX,
        ..ibv_global_route::default()
    };
    Ok(ibv_ah_attr { grh, is_global: 1, port_num: port, ..ibv_ah_attr::default() })
}

/// # Safety
/// The completion and the header belong to a datagram, and `to` has room for attributes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    to: *mut ibv_ah_attr,
) -> c_int {
    count(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { to.write(sender_of(port, &*wc, grh)?) };
        Ok(0)
    })
}

/// # Safety
/// `pd` is allocated; the completion and the header belong to a datagram.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: guaranteed by the caller.
    match unsafe { sender_of(port, &*wc, grh) } {
        // SAFETY: guaranteed by the caller.
        Ok(mut attributes) => unsafe { ibv_create_ah(pd, &raw mut attributes) },
        Err(errno) => pointer(|| Err(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_header_is_no_address() {
        assert_eq!(addresses_of(&[0; 40]), None);
    }
}
