//! A snapshot of all the files of a host.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weft_stat::{
    Carrier, ChannelRecord, ConnectionRecord, ContextRecord, DeviceRecord, EventRecord, Folder,
    PathRecord, ProgramRecord, ProgramState, Snapshot, StatusFile,
};

/// The programs of a host that publish their state, at one time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Host {
    /// The time of the snapshot, ns since the host's boot.
    pub(crate) now: u64,
    /// Messaging nodes.
    pub(crate) nodes: Vec<NodeView>,
    /// Weft's own devices.
    pub(crate) devices: Vec<DeviceView>,
    /// Files that cannot be read, and the reason.
    pub(crate) unreadable: Vec<String>,
}

/// A node, with its device's counters of its channels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeView {
    /// The file's name: `PID-NUMBER`.
    pub(crate) name: String,
    /// `true` if its program has ended.
    pub(crate) is_dead: bool,
    /// The state that its program published last.
    pub(crate) life: ProgramState,
    /// Nanoseconds since its program last polled it.
    pub(crate) unattended: u64,
    pub(crate) program: ProgramRecord,
    pub(crate) context: ContextRecord,
    pub(crate) channels: Vec<ChannelView>,
    pub(crate) events: Vec<EventRecord>,
    /// The socket at which it takes orders.
    #[serde(skip)]
    pub(crate) control: PathBuf,
}

/// A channel, and its device's counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelView {
    #[serde(flatten)]
    pub(crate) record: ChannelRecord,
    /// Median time of its answered calls, ns.
    pub(crate) call_p50: Option<u64>,
    /// 99th percentile of the time of its answered calls, ns.
    pub(crate) call_p99: Option<u64>,
    /// The device's counters; `None` if the device is not Weft's.
    pub(crate) network: Option<NetworkView>,
}

/// The device's counters of a channel's queue pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NetworkView {
    /// The carrier of its packets.
    pub(crate) carrier: Carrier,
    /// `true` if all of its connections over the network are encrypted.
    pub(crate) encrypted: bool,
    /// Data packets sent, retransmissions included.
    pub(crate) sent: u64,
    /// Data packets retransmitted.
    pub(crate) retransmits: u64,
    /// Bytes in flight.
    pub(crate) in_flight: u64,
    /// The largest number of paths of its connections, and the smallest number of working ones; 0 while they are idle.
    pub(crate) paths: u64,
    pub(crate) paths_up: u64,
    /// The shortest and the longest smoothed round-trip time of its paths, ns.
    pub(crate) rtt_min: Option<u64>,
    pub(crate) rtt_max: Option<u64>,
    /// Its paths, if the device reports any.
    pub(crate) path_list: Vec<PathRecord>,
}

/// One of Weft's own devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceView {
    pub(crate) name: String,
    pub(crate) is_dead: bool,
    pub(crate) program: ProgramRecord,
    pub(crate) device: DeviceRecord,
    pub(crate) connections: Vec<ConnectionRecord>,
    pub(crate) paths: Vec<PathRecord>,
}

/// Returns the folders to scan: the named one, or all that this user may read.
pub(crate) fn folders(folder: Option<&Path>) -> Vec<Folder> {
    folder.map_or_else(Folder::visible, |path| vec![Folder::at(path)])
}

impl Host {
    /// Reads all files. Those of dead programs are returned once, and removed.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be read.
    pub(crate) fn read(folder: Option<&Path>) -> Result<Self> {
        let mut all = Vec::new();
        for folder in folders(folder) {
            all.extend(folder.scan().context("cannot look for running programs")?);
        }
        let host = Self::of(&all);
        all.iter().filter(|found| found.is_dead).for_each(StatusFile::clear);
        Ok(host)
    }

    /// Returns the contents of the files found.
    pub(crate) fn of(all: &[StatusFile]) -> Self {
        let mut host = Self { now: weft_stat::now().as_nanos(), ..Self::default() };
        for found in all {
            match found.read() {
                Ok(snapshot) => host.add_file(found, snapshot),
                Err(error) => host.unreadable.push(format!("{}: {error}", found.path.display())),
            }
        }
        host.join();
        host
    }

    fn add_file(&mut self, found: &StatusFile, snapshot: Snapshot) {
        let Snapshot { heartbeat, life, program, context, device, .. } = snapshot;
        let (name, is_dead) = (found.name.clone(), found.is_dead);
        if let Some(device) = device {
            let Snapshot { connections, paths, .. } = snapshot;
            self.devices.push(DeviceView { name, is_dead, program, device, connections, paths });
            return;
        }
        let view = |record: ChannelRecord| ChannelView {
            call_p50: record.calls.quantile(500),
            call_p99: record.calls.quantile(990),
            network: None,
            record,
        };
        self.nodes.push(NodeView {
            name,
            is_dead,
            life,
            unattended: self.now.saturating_sub(heartbeat),
            program,
            context: context.unwrap_or_default(),
            channels: snapshot.channels.into_iter().map(view).collect(),
            events: snapshot.events,
            control: found.control(),
        });
    }

    /// Finds each channel's connections: those of its queue pair, whose number is unique on a host's address. The
    /// device is in the channel's own process, or in a daemon.
    fn join(&mut self) {
        for node in &mut self.nodes {
            let own = |device: &&DeviceView| device.program.pid == node.program.pid;
            let others = self.devices.iter().filter(|device| !own(device));
            let devices: Vec<&DeviceView> = self.devices.iter().filter(own).chain(others).collect();
            for channel in &mut node.channels {
                channel.network = devices.iter().find_map(|device| device.network(&channel.record));
            }
        }
    }
}

impl NodeView {
    /// Returns `true` if the node has this name: its program's, its process's number, or its file's.
    pub(crate) fn is_called(&self, wanted: &str) -> bool {
        let program = &self.program;
        wanted == program.name.as_str() || wanted == self.name || wanted == program.pid.to_string()
    }
}

impl ChannelView {
    /// Returns the carrier of its frames: a stream, or a queue pair over the network or the host's memory.
    pub(crate) fn carrier_name(&self) -> String {
        match &self.network {
            Some(network) if self.record.carrier == Carrier::Rdma => match network.carrier {
                Carrier::Network if network.encrypted => "network, encrypted".into(),
                Carrier::Network => "network, in the clear".into(),
                carrier => carrier.to_string(),
            },
            _ => self.record.carrier.to_string(),
        }
    }
}

impl DeviceView {
    /// Returns the counters of a channel's queue pair; `None` if this device does not have it.
    fn network(&self, channel: &ChannelRecord) -> Option<NetworkView> {
        let is_its = |connection: &&ConnectionRecord| {
            connection.qp == Some(channel.qp) && connection.peer == channel.peer
        };
        let own: Vec<&ConnectionRecord> = self.connections.iter().filter(is_its).collect();
        let carrier = own.first()?.carrier;
        let sum = |of: fn(&ConnectionRecord) -> u64| own.iter().map(|it| of(it)).sum();
        let is_of = |path: &&PathRecord| own.iter().any(|it| it.id == path.connection);
        Some(NetworkView {
            carrier,
            encrypted: carrier == Carrier::Network && own.iter().all(|it| it.encrypted == 1),
            sent: sum(|it| it.sent),
            retransmits: sum(|it| it.retransmits),
            in_flight: sum(|it| it.in_flight),
            paths: own.iter().map(|it| it.paths).max().unwrap_or(0),
            paths_up: own.iter().filter(|it| it.paths > 0).map(|it| it.paths_up).min().unwrap_or(0),
            rtt_min: own.iter().filter_map(|it| it.rtt_min).min(),
            rtt_max: own.iter().filter_map(|it| it.rtt_max).max(),
            path_list: self.paths.iter().filter(is_of).cloned().collect(),
        })
    }
}
