//! Addresses: binding an identifier, resolving the other end, and listening.

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use libc::sockaddr;

use super::complete;
use crate::abi::*;
use crate::address::{self, Sockaddr};
use crate::errno::{EINVAL, Errno, Outcome, status};
use crate::id::Id;
use crate::service::{State, source_for, with};

/// The default limit of requests that wait for the program's answer.
const BACKLOG: u32 = 1024;

/// Binds a port; a wildcard address stands for every address of the devices.
fn bind(state: &mut State, id: &Id, to: SocketAddr) -> Outcome<()> {
    if id.port().is_some() {
        return Err(EINVAL);
    }
    let only_ipv6 = id.details().only_ipv6;
    let ips: Vec<IpAddr> = if to.ip().is_unspecified() {
        let fits = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4() || (ip.is_ipv4() && !only_ipv6);
        let all = state.devices.iter().flat_map(|device| &device.addresses);
        all.copied().filter(fits).collect()
    } else {
        vec![to.ip()]
    };
    if ips.is_empty() || ips.iter().any(|ip| state.device_with(*ip).is_none()) {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    let bound = state.sockets.bind(id.space(), &ips, to.port())?;
    let local = SocketAddr::new(to.ip(), bound.port());
    // SAFETY: the program reads it only after the call has returned.
    unsafe { (*id.public()).route.addr.src_addr = Sockaddr::from(local).0 };
    id.details().bound = Some(bound);
    // As in Linux, a loopback address gets no device before something is sent from it: a program that finds a device
    // takes its address for one that other hosts can reach, as libfabric does.
    if let Some((device, row)) = state.device_with(to.ip()).filter(|_| !to.ip().is_loopback()) {
        id.attach(device, row, local);
    }
    Ok(())
}

/// # Safety
/// `id` is a live identifier, and `to` points to an address of the family in its `sa_family`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, to: *mut sockaddr) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let (id, to) = unsafe { (Id::of(id), address::of(to)?) };
        with(|state| bind(state, id, to))
    })
}

/// Finds the local address and the device that lead to the other end.
fn resolve(state: &mut State, id: &Id, wanted: Option<SocketAddr>, to: SocketAddr) -> Outcome<()> {
    if let Some(wanted) = wanted.filter(|_| id.port().is_none()) {
        bind(state, id, wanted)?;
    }
    // SAFETY: a program does not change it.
    let local = unsafe { address::of_storage(&(*id.public()).route.addr.src_addr) };
    let ip = match local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified()) {
        Some(ip) => ip,
        None => source_for(to)?,
    };
    if ip.is_ipv4() != to.is_ipv4() {
        return Err(EINVAL);
    }
    if state.device_with(ip).is_none() {
        return Err(Errno(libc::ENODEV));
    }
    if id.port().is_none() {
        bind(state, id, SocketAddr::new(ip, 0))?;
    }
    // The identifier may be bound to every address, or to loopback.
    if let (Some(port), Some((device, row))) = (id.port(), state.device_with(ip)) {
        id.attach(device, row, SocketAddr::new(ip, port));
    }
    id.set_peer(to);
    Ok(())
}

/// # Safety
/// `id` is a live identifier; `from` is null or an address of the family in its `sa_family`; `to` is such an address.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    from: *mut sockaddr,
    to: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let (this, to) = unsafe { (Id::of(id), address::of(to)?) };
        let from = if from.is_null() {
            None
        } else {
            // SAFETY: guaranteed by the caller.
            Some(unsafe { address::of(from)? })
        };
        match with(|state| resolve(state, this, from, to)) {
            Ok(()) => this.announce_kind(cm_event::ADDR_RESOLVED, 0),
            // There is no route: an event reports that.
            Err(errno @ Errno(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODEV)) => {
                this.announce_kind(cm_event::ADDR_ERROR, errno.negative());
            }
            Err(errno) => return Err(errno),
        }
        // SAFETY: guaranteed by the caller.
        unsafe { complete(id) }
    })
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    _timeout_ms: c_int,
) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let this = unsafe { Id::of(id) };
        if this.addresses().is_none() {
            return Err(EINVAL);
        }
        // The network routes each packet by itself.
        this.announce_kind(cm_event::ROUTE_RESOLVED, 0);
        // SAFETY: guaranteed by the caller.
        unsafe { complete(id) }
    })
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let id = unsafe { Id::of(id) };
        let backlog = u32::try_from(backlog).ok().filter(|backlog| *backlog > 0);
        with(|state| {
            if id.port().is_none() {
                bind(state, id, SocketAddr::from(([0; 4], 0)))?;
            }
            let bound = id.details().bound.clone().ok_or(EINVAL)?;
            for address in bound.addresses {
                let backlog = backlog.map_or(BACKLOG, |backlog| backlog.min(BACKLOG));
                state.manager.listen(bound.space, address, id.owner(), backlog);
            }
            Ok(())
        })
    })
}
