//! A scenario: everything a run depends on but its seed, as a TOML file.
//!
//! Every section has defaults, every key is checked, and an unknown one is answered with its line
//! and the nearest known one. [`Scenario::expanded`] prints the scenario with every default filled
//! in; that text is a scenario again.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;
use weft_topo::Topology;
use weft_units::{ByteCount, Duration};

use crate::fabric::FabricConfig;
use crate::fault::FaultConfig;
use crate::measure::{IdealTime, REFERENCE_BINS};
use crate::pcie::PcieConfig;
use crate::port::pfc::{PfcConfig, Sending};
use crate::port::{PortConfig, PortError};
use crate::queue::QueueConfig;
use crate::switch::ForwardingConfig;
use crate::switch::buffer::BufferConfig;
use crate::time::SimSpan;
use crate::workload::{Recipe, WorkloadConfig};
use crate::world::WorldConfig;

mod controller;
mod error;
mod messages;
mod overlay;
mod slow;
mod topology;
mod transport;
mod variant;

pub use controller::{ControllerMode, ControllerSection};
pub use error::ScenarioError;
pub use messages::MessagesConfig;
pub use overlay::OverlaySection;
pub use topology::TopologySource;
pub use transport::TransportSection;
pub use variant::Variant;

/// Everything a run depends on but its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called.
    #[serde(default = "unnamed")]
    pub name: String,
    /// What it shows, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The network.
    pub topology: TopologySource,
    /// The engine of every host.
    #[serde(default)]
    pub transport: TransportSection,
    /// How switches choose among links.
    #[serde(default)]
    pub forwarding: ForwardingConfig,
    /// How their ports queue.
    #[serde(default)]
    pub queue: QueueConfig,
    /// What their ports share.
    #[serde(default)]
    pub buffer: BufferConfig,
    /// What a port is.
    #[serde(default)]
    pub port: PortConfig,
    /// Whether switches have their neighbours pause instead of losing packets.
    #[serde(default)]
    pub pfc: PfcConfig,
    /// The hosts around the engines.
    #[serde(default)]
    pub host: HostConfig,
    /// The bus between NICs and memory; without the section, payloads are at their place at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<PcieConfig>,
    /// X-RDMA's parameters; without the section, channels are the transport's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessagesConfig>,
    /// The overlay; without the section, channels are not tenants'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<OverlaySection>,
    /// The route controller; without the section there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerSection>,
    /// How long, and what the control plane does.
    #[serde(default)]
    pub run: RunConfig,
    /// What is reported.
    #[serde(default)]
    pub measure: MeasureConfig,
    /// What is sent.
    #[serde(default, rename = "workload")]
    pub workloads: Vec<WorkloadConfig>,
    /// What goes wrong.
    #[serde(default, rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultConfig>,
    /// What `weft sim compare` compares; a run knows nothing of them.
    #[serde(default, rename = "variant", skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// The folder that file names are relative to.
    #[serde(skip)]
    pub folder: PathBuf,
}

fn unnamed() -> String {
    "unnamed".into()
}

/// The hosts around the engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// Connections are set up by packets. Without it the ends learn of each other over another
    /// channel, as RDMA connection managers do, and send at once.
    pub handshake: bool,
    /// How long a payload takes from the NIC to where it belongs.
    pub place_delay: Duration,
    /// Bound on the irregularity of a host's sending, which keeps equal senders from meeting in the
    /// same order for ever.
    pub jitter: Duration,
    /// A port takes packets from the engine until it has this many to send.
    pub nic_packets: u16,
    /// A connection keeps to one port, and a host deals its connections to its ports in turn, as bonded
    /// NICs do with queue pairs. Without it the paths of every connection are dealt to all ports.
    pub bond: bool,
    /// Where the source ports of connections come from.
    pub source_ports: SourcePorts,
}

/// From which source ports connections send, which decides their paths where switches hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourcePorts {
    /// Each connection draws its own.
    #[default]
    Random,
    /// All connections of a host send path `p` from one port, and connections to one peer share what they learn
    /// of its paths, as on real hosts. Without `bond`.
    Shared,
    /// Connections that workloads open as they start have those of a plan, so that their paths share
    /// links as little as can be had (`weft plan ports`); later ones draw theirs.
    Planned,
    /// Each connection draws its own such that its paths take different ways through the network, each way once
    /// before any a second time: what Hopper's testbed found out by profiling its ports (section 3.2).
    Distinct,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            handshake: false,
            place_delay: Duration::ZERO,
            jitter: Duration::from_nanos(100),
            nic_packets: 4,
            bond: false,
            source_ports: SourcePorts::Random,
        }
    }
}

/// How long a run lasts, and what the control plane does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The run ends here even if workloads have not.
    pub limit: Duration,
    /// How long the control plane needs to route around what went down or came back; without it,
    /// it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reroute_after: Option<Duration>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { limit: Duration::from_secs(1), reroute_after: None }
    }
}

/// What is reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeasureConfig {
    /// How often queues are looked at; zero never.
    pub sample_every: Duration,
    /// Port load counts, and queues are looked at, from here on.
    pub from: Duration,
    /// Flows and collectives that start earlier take place, but are not counted in completion times, slowdowns and
    /// bus bandwidths.
    pub warm_up: Duration,
    /// Largest flow of each size bin but the last, ascending.
    pub size_bins: Vec<ByteCount>,
    /// Whether every flow is listed.
    pub flows: bool,
    /// The time a flow's slowdown is over.
    pub ideal: IdealTime,
}

impl Default for MeasureConfig {
    fn default() -> Self {
        Self {
            sample_every: Duration::from_micros(10),
            from: Duration::ZERO,
            warm_up: Duration::ZERO,
            size_bins: REFERENCE_BINS.map(ByteCount).to_vec(),
            flows: false,
            ideal: IdealTime::Exact,
        }
    }
}

impl Scenario {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// The file, line and key that is wrong.
    pub fn read(file: &Path) -> Result<Self, ScenarioError> {
        let text =
            fs::read_to_string(file).map_err(|error| ScenarioError::unreadable(file, &error))?;
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Self::parse(&text, folder).map_err(|error| error.in_file(file))
    }

    /// Reads a scenario from a text; file names in it are relative to `folder`.
    ///
    /// # Errors
    /// The line and key that is wrong.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ScenarioError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError::syntax(&error, text))?;
        scenario.checked(folder, text)
    }

    /// Makes a scenario from a table, as experiments vary them.
    ///
    /// # Errors
    /// The key that is wrong.
    pub fn from_table(table: Table, folder: &Path) -> Result<Self, ScenarioError> {
        let text = toml::to_string(&table).expect("a table is TOML");
        Self::parse(&text, folder).map_err(ScenarioError::without_line)
    }

    fn checked(mut self, folder: &Path, text: &str) -> Result<Self, ScenarioError> {
        self.folder = folder.to_path_buf();
        // Files that need hosts or rates are found wrong when the run is built; what the text alone
        // can get wrong is found here.
        self.transport
            .check()
            .map_err(|message| ScenarioError::section("transport", &message, text))?;
        self.forwarding.check().map_err(|(group, message)| {
            ScenarioError::section(&format!("forwarding.{group}"), &message, text)
        })?;
        if self.host.nic_packets == 0 {
            let message = "nic_packets is 0, expected at least 1";
            return Err(ScenarioError::section("host", message, text));
        }
        self.check_source_ports().map_err(|why| ScenarioError::section("host", why, text))?;
        if self.pfc.enabled && self.port.kind == crate::port::Kind::Fifo {
            return Err(ScenarioError::section("pfc", &PortError::CannotPause.to_string(), text));
        }
        self.check_pcie().map_err(|message| ScenarioError::section("pcie", &message, text))?;
        self.check_messages().map_err(|why| ScenarioError::section("messages", why, text))?;
        self.check_overlay().map_err(|why| ScenarioError::section("overlay", &why, text))?;
        self.check_controller().map_err(|why| ScenarioError::section("controller", &why, text))?;
        if !self.measure.size_bins.is_sorted_by(|a, b| a < b) {
            let message = "size_bins are not ascending";
            return Err(ScenarioError::section("measure", message, text));
        }
        self.check_variants(folder, text)?;
        for (index, workload) in self.workloads.iter().enumerate() {
            let kind = workload.kind().name();
            workload.check().map_err(|error| ScenarioError::workload(index, kind, &error, text))?;
        }
        Ok(self)
    }

    fn check_source_ports(&self) -> Result<(), &'static str> {
        if matches!(self.host.source_ports, SourcePorts::Random | SourcePorts::Shared) {
            return Ok(());
        }
        if self.forwarding.kind != crate::switch::Kind::Ecmp {
            return Err("source_ports are chosen for switches that choose by their hash alone: \
                        forwarding.kind = \"ecmp\"");
        }
        if self.host.handshake || self.messages.is_some() || self.overlay.is_some() {
            return Err(
                "source_ports are chosen for connections that are known as the run begins: \
                         without handshake, and without a section messages or overlay",
            );
        }
        Ok(())
    }

    fn check_pcie(&self) -> Result<(), String> {
        let Some(pcie) = &self.pcie else { return Ok(()) };
        if self.port.kind != crate::port::Kind::Fifo {
            return Err("translation takes time, which only ports that are \"fifo\" know of".into());
        }
        pcie.check()
    }

    fn check_messages(&self) -> Result<(), &'static str> {
        if self.messages.is_none() {
            return Ok(());
        }
        if self.pcie.is_some() {
            return Err("messages are not simulated together with a bus (section pcie)");
        }
        if self.host.handshake || self.host.place_delay > Duration::ZERO {
            return Err("messages have neither a handshake nor a place_delay (section host)");
        }
        Ok(())
    }

    /// The controller, if it is not off.
    pub fn active_controller(&self) -> Option<&ControllerSection> {
        self.controller.as_ref().filter(|controller| controller.mode != ControllerMode::Off)
    }

    fn check_controller(&self) -> Result<(), String> {
        let Some(controller) = self.active_controller() else { return Ok(()) };
        if self.forwarding.kind != crate::switch::Kind::Ecmp {
            let why = "a route controller predicts paths of switches that choose by their hash alone: \
                       forwarding.kind = \"ecmp\"";
            return Err(why.into());
        }
        controller.check()
    }

    /// Each variant must give a scenario, and have a name of its own that a list of balancers can hold.
    fn check_variants(&self, folder: &Path, text: &str) -> Result<(), ScenarioError> {
        if self.variants.is_empty() {
            return Ok(());
        }
        // Numbers that a scenario may have need not fit a table.
        let table: Table =
            toml::from_str(text).map_err(|error| ScenarioError::syntax(&error, text))?;
        for (index, variant) in self.variants.iter().enumerate() {
            let name = &variant.name;
            let wrong = |message: String| ScenarioError::variant(name, &message, text);
            if self.variants[..index].iter().any(|other| &other.name == name) {
                return Err(wrong("there is another of this name".into()));
            }
            if name.contains([',', '+']) {
                return Err(wrong("',' and '+' join names, so they cannot be in one".into()));
            }
            if let Some(section) = variant.foreign_section() {
                let known = variant::SECTIONS.join(", ");
                return Err(wrong(format!(
                    "{section:?} is not what a variant may change ({known})"
                )));
            }
            Self::from_table(variant.apply(&table), folder)
                .map_err(|error| wrong(error.to_string()))?;
        }
        Ok(())
    }

    /// The scenario with every default filled in, as TOML.
    ///
    /// # Errors
    /// The topology, from which defaults of the transport derive, cannot be built.
    pub fn expanded(&self) -> Result<String, ScenarioError> {
        let topology = self.build_topology()?;
        let mut full = self.clone();
        full.transport = self.transport.expanded(&topology);
        Ok(toml::to_string(&full).expect("a scenario is TOML"))
    }

    /// The network.
    ///
    /// # Errors
    /// Its parameters or its file are wrong.
    pub fn build_topology(&self) -> Result<Topology, ScenarioError> {
        self.topology.build(&self.folder)
    }

    /// How the world around the workloads is built.
    ///
    /// # Errors
    /// The transport's settings are out of range, or the balancer is not for this network.
    pub fn world_config(&self, topology: &Topology) -> Result<WorldConfig, ScenarioError> {
        self.forwarding
            .check_network(topology)
            .map_err(|why| ScenarioError::new(format!("[forwarding]: {why}")))?;
        let transport = self.resolved_transport(topology)?;
        let HostConfig { handshake, place_delay, jitter, nic_packets, bond, source_ports } =
            self.host;
        if bond && source_ports == SourcePorts::Shared {
            let why = "source_ports = \"shared\" gives every connection the same paths, and bond = true each its own";
            return Err(ScenarioError::new(format!("[host]: {why}")));
        }
        Ok(WorldConfig {
            stack: self.stack(topology, &transport)?,
            transport,
            fabric: FabricConfig {
                forwarding: self.forwarding.clone(),
                queue: self.queue.clone(),
                buffer: self.buffer.clone(),
                port: self.port.clone(),
                pfc: self.pfc.clone(),
                sending: Sending::default(),
            },
            handshake,
            place_delay,
            pcie: self.pcie.clone(),
            jitter: SimSpan::from(jitter),
            nic_packets,
            bond,
            source_ports,
            reroute_after: self.run.reroute_after,
            controller: self.active_controller().cloned(),
        })
    }
}

#[cfg(test)]
mod tests;
