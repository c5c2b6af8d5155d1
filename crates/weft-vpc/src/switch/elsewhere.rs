//! Ports of this host that other threads have.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use weft_wire::MacAddr;

use super::hello::service_of;
use super::{HandedOver, Handover, PortId, Vni};

/// Where a port is that this thread does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The thread that has it.
    pub thread: u8,
    /// Its network.
    pub vni: Vni,
    /// Its address.
    pub address: MacAddr,
}

/// What a thread knows of the others, and what it has for them.
#[derive(Debug, Default)]
pub(super) struct OtherThreads {
    ports: BTreeMap<PortId, Elsewhere>,
    /// Who has ports of a network.
    by_network: BTreeSet<(Vni, u8, PortId)>,
    /// Who is meant by a request for a connection.
    by_service: BTreeMap<(Vni, u32), u8>,
    pub(super) waiting: VecDeque<(u8, Handover)>,
    pub(super) counters: HandedOver,
}

impl OtherThreads {
    /// What was known of the port before.
    pub(super) fn set(&mut self, port: PortId, now: Option<Elsewhere>) -> Option<Elsewhere> {
        let before = match now {
            Some(now) => self.ports.insert(port, now),
            None => self.ports.remove(&port),
        };
        if let Some(Elsewhere { thread, vni, address }) = before {
            self.by_network.remove(&(vni, thread, port));
            // Ports of one service are on one thread, and another may be left.
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

    /// The thread that has a port.
    pub(super) fn thread_of(&self, port: PortId) -> Option<u8> {
        self.ports.get(&port).map(|elsewhere| elsewhere.thread)
    }

    /// The thread that a request for a connection is for.
    pub(super) fn asked_for(&self, vni: Vni, service: u32) -> Option<u8> {
        self.by_service.get(&(vni, service)).copied()
    }

    /// The threads that have ports of a network.
    pub(super) fn of_network(&self, vni: Vni) -> Vec<u8> {
        let range = (vni, 0, PortId(0))..=(vni, u8::MAX, PortId(u32::MAX));
        let mut threads: Vec<u8> = self.by_network.range(range).map(|row| row.1).collect();
        threads.dedup();
        threads
    }
}
