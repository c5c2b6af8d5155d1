//! The ports of this host that belong to other threads.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use weft_wire::MacAddr;

use super::hello::service_of;
use super::{Handover, HandoverCounters, PortId, Vni};

/// The place of a port that belongs to another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The index of that thread.
    pub thread: u8,
    /// Its network.
    pub vni: Vni,
    /// Its address.
    pub address: MacAddr,
}

/// The other threads' ports, and the work that waits for those threads.
#[derive(Debug, Default)]
pub(super) struct OtherThreads {
    ports: BTreeMap<PortId, Elsewhere>,
    /// The threads and ports of each network.
    by_network: BTreeSet<(Vni, u8, PortId)>,
    /// The thread that a request for a connection belongs to, by network and service.
    by_service: BTreeMap<(Vni, u64), u8>,
    pub(super) waiting: VecDeque<(u8, Handover)>,
    pub(super) counters: HandoverCounters,
}

impl OtherThreads {
    /// Sets or removes a port's place. Returns the place before.
    pub(super) fn set(&mut self, port: PortId, now: Option<Elsewhere>) -> Option<Elsewhere> {
        let before = match now {
            Some(now) => self.ports.insert(port, now),
            None => self.ports.remove(&port),
        };
        if let Some(Elsewhere { thread, vni, address }) = before {
            self.by_network.remove(&(vni, thread, port));
            // Ports of one service belong to one thread, and another such port may remain.
            let service = service_of(address);
            let same = |other: &Elsewhere| other.vni == vni && service_of(other.address) == service;
            if !self.ports.values().any(same) {
                self.by_service.remove(&(vni, service));
            }
        }
        if let Some(Elsewhere { thread, vni, address }) = now {
            self.by_network.insert((vni, thread, port));
            self.by_service.insert((vni, service_of(address)), thread);
        }
        before
    }

    /// Returns the thread that has a port.
    pub(super) fn thread_of(&self, port: PortId) -> Option<u8> {
        self.ports.get(&port).map(|elsewhere| elsewhere.thread)
    }

    /// Returns the thread that a request for a connection belongs to.
    pub(super) fn thread_of_service(&self, vni: Vni, service: u64) -> Option<u8> {
        self.by_service.get(&(vni, service)).copied()
    }

    /// Returns the threads that have ports of a network.
    pub(super) fn of_network(&self, vni: Vni) -> Vec<u8> {
        let range = (vni, 0, PortId(0))..=(vni, u8::MAX, PortId(u32::MAX));
        let mut threads: Vec<u8> = self.by_network.range(range).map(|row| row.1).collect();
        threads.dedup();
        threads
    }
}
