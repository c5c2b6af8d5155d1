//! The owner of the thread that speaks BGP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use weft_evpn::RouteTarget;
use weft_udp::random;
use weft_units::{Instant, Seed};
use weft_vpc::{PortId, Vni};
use weft_wire::MacAddr;

use super::driver::{Command, Driver};
use super::report::{Changes, Shared};
use super::{EvpnNeighbourStatus, EvpnSettings, EvpnStatus};
use crate::OpenError;
use crate::config::{Host, Mac};

/// A host's BGP speaker: its thread, and the entries of the switch's tables that follow from its routes.
#[derive(Debug)]
pub(crate) struct Evpn {
    pub(super) settings: EvpnSettings,
    shared: Arc<Shared>,
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
    /// The places of machines in force.
    pub(super) machines: BTreeMap<(Vni, MacAddr), SocketAddr>,
    /// The machines of IP addresses in force.
    pub(super) addresses: BTreeMap<(Vni, IpAddr), MacAddr>,
    /// The hosts to which routes of a network lead: `true` for those that receive its broadcasts.
    pub(super) vteps: BTreeMap<u32, BTreeMap<IpAddr, bool>>,
    /// The ports whose guests may move and run here.
    pub(super) present: BTreeSet<PortId>,
    /// `true` if networks or ports have changed since the thread was last notified of them.
    pub(super) is_stale: bool,
}

impl Evpn {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread, a descriptor or random numbers.
    pub(super) fn start(settings: &EvpnSettings, host: &Host) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared::open().map_err(|errno| OpenError::Thread(errno.into()))?);
        let (commands, receiver) = channel();
        let seed = Seed(u64::from_le_bytes(random()?));
        let driver = Driver::new(settings.clone(), host, seed, receiver, Arc::clone(&shared));
        let thread = Builder::new().name("evpn".into()).spawn(move || driver.run());
        Ok(Self {
            settings: settings.clone(),
            shared,
            commands,
            thread: Some(thread.map_err(OpenError::Thread)?),
            machines: BTreeMap::new(),
            addresses: BTreeMap::new(),
            vteps: BTreeMap::new(),
            present: BTreeSet::new(),
            is_stale: true,
        })
    }

    /// Returns the descriptor that is readable while there are changes.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.event()
    }

    /// Records that networks or ports may have changed.
    pub(crate) fn touch(&mut self) {
        self.is_stale = true;
    }

    /// Returns the place of a machine as its routes say.
    pub(crate) fn place(&self, machine: &(Vni, MacAddr)) -> Option<SocketAddr> {
        self.machines.get(machine).copied()
    }

    /// Returns the machine of an IP address as the routes say.
    pub(crate) fn neighbour(&self, address: &(Vni, IpAddr)) -> Option<MacAddr> {
        self.addresses.get(address).copied()
    }

    pub(super) fn set_settings(&mut self, settings: &EvpnSettings) {
        self.settings = settings.clone();
        self.send(Command::Settings(Box::new(settings.clone())));
    }

    pub(super) fn set_networks(&self, networks: BTreeMap<u32, BTreeSet<RouteTarget>>) {
        self.send(Command::Networks(networks));
    }

    pub(super) fn set_machines(&self, machines: BTreeMap<(u32, MacAddr), BTreeSet<IpAddr>>) {
        self.send(Command::Machines(machines));
    }

    pub(super) fn on_frame(&self, vni: u32, mac: MacAddr) {
        self.send(Command::Frame(vni, mac));
    }

    fn send(&self, command: Command) {
        // A thread that has ended has logged why.
        let _ = self.commands.send(command);
        self.shared.wake();
    }

    /// Takes the changes since the last call.
    pub(super) fn take_changes(&self) -> Changes {
        self.shared.take_changes()
    }

    /// Returns the changes that remove all entries.
    pub(super) fn removal(&self) -> Changes {
        let machines = self.machines.keys().map(|&(vni, mac)| ((vni.get(), mac), None));
        let addresses = self.addresses.keys().map(|&(vni, address)| ((vni.get(), address), None));
        let vteps = self.vteps.keys().map(|&vni| (vni, BTreeMap::new()));
        Changes {
            machines: machines.collect(),
            addresses: addresses.collect(),
            vteps: vteps.collect(),
        }
    }

    /// Returns the state of the sessions.
    pub(crate) fn status(&self, host: &Host, now: Instant) -> EvpnStatus {
        let report = self.shared.report();
        let neighbours = report.neighbours.iter().map(|view| EvpnNeighbourStatus {
            address: view.address,
            asn: view.asn,
            state: view.state.name().to_owned(),
            seconds: now.since(view.since).as_secs_f64(),
            routes: (view.routes_received, view.routes_sent),
            updates: (view.counters.updates_received, view.counters.updates_sent),
            faulty: view.counters.updates_faulty,
            sessions: (view.counters.established, view.counters.ended),
            error: view.error.clone(),
        });
        let vteps = self.vteps.iter().filter(|(_, vteps)| !vteps.is_empty());
        EvpnStatus {
            asn: self.settings.asn,
            router_id: self.settings.speaker(host).router_id,
            neighbours: neighbours.collect(),
            machines: self.machines.len(),
            vteps: vteps.map(|(&vni, vteps)| (vni, vteps.clone())).collect(),
            duplicates: report.duplicates.iter().map(|&(vni, mac)| (vni, Mac(mac))).collect(),
        }
    }
}

impl Drop for Evpn {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}
