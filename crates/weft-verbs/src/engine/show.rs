//! Publication of the device's state for `weft stat`: its connections, their retransmissions, and their paths.

use std::fs::File;

use weft_rnic::{Connection, Device};
use weft_seal::{SealCounters, Seals};
use weft_stat::{
    Address, Carrier, ConnectionRecord, DeviceRecord, Folder, Kind, PathRecord, ProgramRecord,
    StatusWriter, Text, UpdateSchedule,
};
use weft_transport::ConnectionStats;
use weft_units::Instant;

use super::same_host::LeasedRequests;
use crate::device::NAME;

/// Maximum number of published rows of paths: 32 connections of 128 paths.
const MAX_PATHS: usize = 4096;

/// The published state of a device.
#[derive(Debug)]
pub(crate) struct Shown {
    writer: StatusWriter,
    name: String,
    address: Address,
    /// The transport, in one line.
    transport: String,
    started: Instant,
    pace: UpdateSchedule,
    /// The device's activity when the status file was last written.
    shown: Option<u64>,
}

impl Shown {
    /// Creates the status file. Returns `None` if it is switched off or fails: the device works without one.
    pub(crate) fn open(
        address: Option<std::net::IpAddr>,
        transport: &str,
        now: Instant,
    ) -> Option<Self> {
        let folder = Folder::own()?;
        folder.prepare().ok()?;
        folder.sweep();
        let writer = StatusWriter::create(&folder, "device").ok()?;
        let path = std::env::current_exe().ok();
        let name = path.as_deref().and_then(|path| path.file_name());
        let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let address = address.map(Address).unwrap_or_default();
        let (transport, pace) = (transport.to_owned(), UpdateSchedule::default());
        Some(Self { writer, name, address, transport, started: now, pace, shown: None })
    }

    /// Returns the open file: a child of `fork` must close it, or its parent would seem to live on.
    pub(crate) fn file(&self) -> &File {
        self.writer.file()
    }

    /// Returns the time of the next publication, if there was activity since the last.
    pub(crate) fn due(&self, device: &Device, leased: LeasedRequests) -> Option<Instant> {
        (self.shown != Some(activity(device, leased))).then(|| self.pace.due())
    }

    /// Updates the status file if due.
    pub(crate) fn refresh(
        &mut self,
        now: Instant,
        device: &Device,
        seals: &Seals,
        leased: LeasedRequests,
    ) {
        if now < self.pace.due() || self.shown == Some(activity(device, leased)) {
            return;
        }
        self.shown = Some(activity(device, leased));
        self.writer.set_heartbeat(now);
        let Self { writer, name, address, transport, started, .. } = self;
        // A file system that is full now may have room later; the last state stays.
        let _ = writer.publish(|draft| {
            let all: Vec<Connection<'_>> = device.connections().collect();
            draft.push(&ProgramRecord {
                kind: Kind::Device,
                pid: std::process::id().into(),
                started_at: started.as_nanos(),
                published_at: now.as_nanos(),
                name: Text::new(name),
                device: Text::new(NAME),
                address: *address,
                listens: Text::default(),
                entries: all.len() as u64,
                events: 0,
            });
            let connections: Vec<ConnectionRecord> =
                all.iter().map(|of| connection(of, seals)).collect();
            let seals = seals.counters();
            draft.push(&device_record(device, &connections, seals, leased, transport));
            connections.iter().for_each(|of| draft.push(of));
            all.iter().flat_map(paths).take(MAX_PATHS).for_each(|path| draft.push(&path));
        });
        self.pace.on_written(now, weft_stat::now());
    }
}

/// Returns a number that grows with each packet received or sent and with each request in a neighbour's memory, and
/// changes with the connections.
fn activity(device: &Device, leased: LeasedRequests) -> u64 {
    let stats = device.stats();
    let packets = stats.data_sent + stats.data_received + stats.acks_received + stats.acks_sent;
    let rest = stats.probes_sent + stats.paths_down + stats.paths_up;
    packets + rest + leased.mapped + leased.by_call + ((device.connection_count() as u64) << 48)
}

fn device_record(
    device: &Device,
    connections: &[ConnectionRecord],
    seals: SealCounters,
    leased: LeasedRequests,
    transport: &str,
) -> DeviceRecord {
    let stats = device.stats();
    let over_network = |encrypted| {
        let count = connections.iter().filter(|of| of.carrier == Carrier::Network);
        count.filter(|of| of.encrypted == encrypted).count() as u64
    };
    DeviceRecord {
        data_sent: stats.data_sent,
        data_received: stats.data_received,
        fast_retransmits: stats.fast_retransmits,
        timeout_retransmits: stats.timeout_retransmits,
        tail_loss_probes: stats.tail_loss_probes,
        spurious_retransmits: stats.spurious_retransmits,
        out_of_order: stats.out_of_order,
        ecn_marks_reported: stats.ecn_marks_reported,
        paths_down: stats.paths_down,
        paths_up: stats.paths_up,
        refused: stats.dropped.iter().sum(),
        transport: Text::new(transport),
        encrypted: over_network(1),
        in_the_clear: over_network(0),
        sealed: seals.sealed,
        opened: seals.opened,
        not_opened: seals.not_opened(),
        not_admitted: seals.refused_exchanges + seals.refused_clear,
        mapped_requests: leased.mapped,
        requests_by_call: leased.by_call,
    }
}

fn connection(of: &Connection<'_>, seals: &Seals) -> ConnectionRecord {
    let nothing =
        ConnectionStats { packets_sent: 0, packets_retransmitted: 0, in_flight: 0, paths: None };
    let stats = of.stats.unwrap_or(nothing);
    let round_trips = || {
        let paths = stats.paths.into_iter();
        paths.flat_map(|paths| paths.ids().filter_map(|id| paths.rtt(id))).map(|rtt| rtt.as_nanos())
    };
    ConnectionRecord {
        id: of.id.0.into(),
        qp: Some(of.qp.0.into()),
        peer: of.peer.map(|peer| Address(peer.ip().to_canonical())).unwrap_or_default(),
        carrier: if of.stats.is_some() { Carrier::Network } else { Carrier::SameHost },
        sent: stats.packets_sent,
        retransmits: stats.packets_retransmitted,
        in_flight: stats.in_flight.into(),
        paths: stats.paths.map_or(0, |paths| paths.count().into()),
        paths_up: stats.paths.map_or(0, |paths| paths.up_count().into()),
        rtt_min: round_trips().min(),
        rtt_max: round_trips().max(),
        encrypted: seals.is_sealed(of.id).into(),
    }
}

/// Returns the paths of a connection with any state.
fn paths<'a>(of: &Connection<'a>) -> impl Iterator<Item = PathRecord> + use<'a> {
    let connection = of.id.0.into();
    let paths = of.stats.and_then(|stats| stats.paths);
    paths.into_iter().flat_map(move |paths| {
        let row = move |id| PathRecord {
            connection,
            path: id_number(id),
            rtt: paths.rtt(id).map(|rtt| rtt.as_nanos()),
            in_flight: paths.in_flight(id).into(),
            lost: paths.lost(id),
            up: paths.is_up(id).into(),
        };
        let is_known = |path: &PathRecord| path.rtt.is_some() || path.lost > 0 || path.up == 0;
        paths.ids().map(row).filter(is_known)
    })
}

const fn id_number(id: weft_transport::path::PathId) -> u64 {
    id.0 as u64
}
