//! The machines of a host's ports that are not of the fleet: those of its file, and those added by command, such as pods'. The
//! host writes their places by itself, into networks that the fleet has, so that the other hosts need not flood.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use weft_etcd::{Client, Compare, EtcdError, Transaction};

use super::object::Machine;
use super::view::Machines;
use super::{Key, Object, View};
use crate::config::Port;

/// The machines of a host's ports that are not of the fleet, as the daemon has them now; `None` until it has said so. A daemon that
/// starts again would delete the places of all of them otherwise.
#[derive(Debug, Default)]
pub struct LocalMachines(Mutex<Option<Machines>>);

/// The reason that the place of a machine is not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocalError {
    /// A request failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Others have the machine.
    #[error(
        "{0} is a machine of others already: the port with this address is not known to other hosts"
    )]
    Taken(Key),
}

impl LocalMachines {
    /// Replaces the machines by those of ports. A guest that may move is on two hosts at times: it announces itself.
    pub fn set<'a>(&self, ports: impl Iterator<Item = &'a Port>) {
        let machine = |port: &Port| {
            let addresses = port.prefixes().unwrap_or_default();
            let addresses = addresses.into_iter().map(|(address, _)| address).collect();
            ((port.vni, port.mac), addresses)
        };
        let machines = ports.filter(|port| !port.may_move()).map(machine).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(machines);
    }

    pub(super) fn get(&self) -> Option<Machines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the changes that a host has to make: the places of its machines, and `None` for those that are no more.
pub(super) fn missing(view: &View, name: &str) -> BTreeMap<Key, Option<Machine>> {
    let mut changes = BTreeMap::new();
    for (&(vni, mac), addresses) in view.local() {
        // The other hosts know nothing of a network of files.
        if view.get(&Key::Network(vni)).is_none() {
            continue;
        }
        let (key, host) = (Key::Machine(vni, mac), Some(name.to_owned()));
        let wanted = Machine { host, addresses: addresses.clone(), by_host: true, peer: None };
        if view.get(&key) != Some(&Object::Machine(wanted.clone())) {
            changes.insert(key, Some(wanted));
        }
    }
    let gone = view.written_by_host().filter(|it| !view.local().contains_key(it));
    changes.extend(gone.map(|(vni, mac)| (Key::Machine(vni, mac), None)));
    changes
}

/// Writes the place of a machine, or deletes it, if it is the host's own.
///
/// # Errors
/// See [`LocalError`].
pub(super) fn write(
    client: &Client,
    prefix: &str,
    name: &str,
    key: &Key,
    wanted: Option<&Machine>,
) -> Result<(), LocalError> {
    let path = key.path(prefix);
    let pair = client.get(&path)?;
    let known = pair.as_ref().map(|pair| Object::parse(key, &pair.value));
    let is_own = |it: &Machine| it.by_host && it.host.as_deref() == Some(name);
    match (&known, wanted) {
        (None, None) => return Ok(()),
        (Some(Ok(Object::Machine(known))), Some(wanted)) if known == wanted => return Ok(()),
        (None, _) => {}
        (Some(Ok(Object::Machine(known))), _) if is_own(known) => {}
        // Others have taken it over.
        (Some(_), None) => return Ok(()),
        (Some(_), Some(_)) => return Err(LocalError::Taken(key.clone())),
    }
    let modified = pair.map_or_else(Default::default, |pair| pair.modified);
    let write = Transaction::new().when(Compare::modified(&path, modified));
    let write = match wanted {
        Some(machine) => write.put(&path, &Object::Machine(machine.clone()).json()),
        None => write.delete(&path),
    };
    // Where others were faster, the watch brings their change, and this is tried again.
    client.transact(&write).map(drop).map_err(LocalError::from)
}
