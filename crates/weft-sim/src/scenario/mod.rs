//! Scenarios: all inputs of a run but its seed, as a TOML file.
//!
//! Every section has defaults, every key is checked, and the error for an unknown key gives its line and the nearest
//! known key. [`Scenario::expanded`] prints the scenario with every default filled in; that text is again a scenario.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;
use weft_topo::Topology;
use weft_transport::TransportConfig;
use weft_units::{ByteCount, Duration};

use crate::fabric::FabricConfig;
use crate::fault::FaultConfig;
use crate::measure::{IdealTime, REFERENCE_BINS};
use crate::pcie::{PcieConfig, PcieError};
use crate::port::pfc::{PfcConfig, Sending};
use crate::port::{PortConfig, PortError};
use crate::queue::QueueConfig;
use crate::stack::StackConfig;
use crate::switch::ForwardingConfig;
use crate::switch::buffer::BufferConfig;
use crate::time::SimSpan;
use crate::workload::{WorkloadBuilder, WorkloadConfig};
use crate::world::WorldConfig;

mod controller;
mod error;
mod messages;
mod overlay;
mod slow;
mod source_ports;
mod topology;
mod transport;
mod variant;

pub use controller::{ControllerError, ControllerMode, ControllerSection};
pub use error::ScenarioError;
pub use messages::MessagesConfig;
pub use overlay::{OverlayError, OverlaySection};
pub use source_ports::SourcePorts;
pub use topology::TopologySource;
pub use transport::{TransportSection, TransportSectionError};
pub use variant::Variant;

/// A scenario: all inputs of a run but its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The scenario's name.
    #[serde(default = "unnamed")]
    pub name: String,
    /// The purpose of the scenario, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The network.
    pub topology: TopologySource,
    /// The transport of every host.
    #[serde(default)]
    pub transport: TransportSection,
    /// The forwarding model of switches.
    #[serde(default)]
    pub forwarding: ForwardingConfig,
    /// The queue discipline of switch ports.
    #[serde(default)]
    pub queue: QueueConfig,
    /// The buffer that ports of a switch share.
    #[serde(default)]
    pub buffer: BufferConfig,
    /// The model of a port.
    #[serde(default)]
    pub port: PortConfig,
    /// Priority flow control: switches pause their neighbours rather than drop packets.
    #[serde(default)]
    pub pfc: PfcConfig,
    /// The hosts around the engines.
    #[serde(default)]
    pub host: HostConfig,
    /// The bus between NICs and memory; without the section, payloads are placed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<PcieConfig>,
    /// The parameters of X-RDMA; without the section, channels belong to the transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessagesConfig>,
    /// The overlay; without the section, channels do not belong to tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<OverlaySection>,
    /// The route controller; without the section there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerSection>,
    /// The run's length, and the control plane's behaviour.
    #[serde(default)]
    pub run: RunConfig,
    /// The measurements in the report.
    #[serde(default)]
    pub measure: MeasureConfig,
    /// The traffic.
    #[serde(default, rename = "workload")]
    pub workloads: Vec<WorkloadConfig>,
    /// The faults.
    #[serde(default, rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultConfig>,
    /// The variants that `weft sim compare` compares; a run ignores them.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// `true` if connections are set up by packets. Otherwise the ends learn of each other over another channel, as
    /// with RDMA connection managers, and send at once.
    pub handshake: bool,
    /// The time a payload takes from the NIC to its place in memory.
    pub place_delay: Duration,
    /// The upper bound of the random delay of a host's sending, which keeps equal senders from arriving in the same
    /// order for ever.
    pub jitter: Duration,
    /// The transmit queue of a port, packets: the port takes packets from the engine up to this number.
    pub nic_packets: u16,
    /// `true` if a connection uses one port only, and a host deals its connections to its ports in turn, as bonded
    /// NICs do with queue pairs. Otherwise the paths of every connection are dealt to all ports.
    pub bond: bool,
    /// The assignment of source ports to connections.
    pub source_ports: SourcePorts,
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

/// The run's length, and the control plane's behaviour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The time limit: the run ends here even if workloads have not finished.
    pub limit: Duration,
    /// The time the control plane takes to reroute after a link goes down or comes back; without it, it never
    /// reroutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reroute_after: Option<Duration>,
    /// The threshold of fast-forward, above zero and below one: units of a workload are skipped while the durations of
    /// the latest ones differ by less than this share of their mean. Without it, the run is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_forward: Option<f64>,
    /// `true` if a run with fast-forward is followed by the exact one, and the report has the errors.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compare_exact: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            limit: Duration::from_secs(1),
            reroute_after: None,
            fast_forward: None,
            compare_exact: false,
        }
    }
}

/// The measurements in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MeasureConfig {
    /// The sampling interval of queues; zero never samples.
    pub sample_every: Duration,
    /// The start of counting port load and of sampling queues.
    pub from: Duration,
    /// The warm-up: flows and collectives that start earlier take place, but do not count in completion times,
    /// slowdowns and bus bandwidths.
    pub warm_up: Duration,
    /// The largest flow of each size bin but the last, ascending.
    pub size_bins: Vec<ByteCount>,
    /// `true` if every flow is listed.
    pub flows: bool,
    /// `true` if the report has the packets' order at their receivers. Such a run takes one thread.
    pub reordering: bool,
    /// The ideal time, which divides a flow's time to give its slowdown.
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
            reordering: false,
            ideal: IdealTime::Exact,
        }
    }
}

impl Scenario {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a valid scenario; the error names the file, and line and key where known.
    pub fn read(file: &Path) -> Result<Self, ScenarioError> {
        let text =
            fs::read_to_string(file).map_err(|error| ScenarioError::unreadable(file, &error))?;
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Self::parse(&text, folder).map_err(|error| error.in_file(file))
    }

    /// Reads a scenario from a text; file names in it are relative to `folder`.
    ///
    /// # Errors
    /// The text is not a valid scenario; the error names line and key where known.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ScenarioError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError::syntax(&error, text))?;
        scenario.checked(folder, text)
    }

    /// Returns the scenario of a table, as experiments vary them.
    ///
    /// # Errors
    /// The table is not a valid scenario; the error names the key where known.
    pub fn from_table(table: Table, folder: &Path) -> Result<Self, ScenarioError> {
        let text = toml::to_string(&table).expect("a table is TOML");
        Self::parse(&text, folder).map_err(ScenarioError::without_line)
    }

    fn checked(mut self, folder: &Path, text: &str) -> Result<Self, ScenarioError> {
        self.folder = folder.to_path_buf();
        // Here only the text is checked. Files that need hosts or rates are checked when the run is built.
        self.transport.check().map_err(|error| ScenarioError::section("transport", error, text))?;
        self.forwarding.check().map_err(|(group, error)| {
            ScenarioError::section(&format!("forwarding.{group}"), error, text)
        })?;
        if self.host.nic_packets == 0 {
            let message = "nic_packets is 0, expected at least 1";
            return Err(ScenarioError::section("host", message, text));
        }
        self.check_source_ports().map_err(|why| ScenarioError::section("host", why, text))?;
        if self.pfc.enabled && self.port.kind == crate::port::Kind::Fifo {
            return Err(ScenarioError::section("pfc", PortError::CannotPause, text));
        }
        if self.run.compare_exact && self.run.fast_forward.is_none() {
            let message = "compare_exact compares a run with fast_forward, which is not set: add fast_forward = 0.05";
            return Err(ScenarioError::section("run", message, text));
        }
        if let Some(threshold) = self.run.fast_forward
            && !(threshold > 0.0 && threshold < 1.0)
        {
            let message = format!("fast_forward is {threshold}, expected above 0 and below 1");
            return Err(ScenarioError::section("run", message, text));
        }
        self.check_trimming(text)?;
        self.check_pcie().map_err(|error| ScenarioError::section("pcie", error, text))?;
        self.check_messages().map_err(|why| ScenarioError::section("messages", why, text))?;
        self.check_overlay().map_err(|error| ScenarioError::section("overlay", error, text))?;
        self.check_controller()
            .map_err(|error| ScenarioError::section("controller", error, text))?;
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

    fn check_trimming(&self, text: &str) -> Result<(), ScenarioError> {
        if self.queue.kind != crate::queue::Kind::Trim {
            return Ok(());
        }
        if self.port.kind == crate::port::Kind::Fifo {
            return Err(ScenarioError::section("queue", PortError::CannotTrim, text));
        }
        self.queue.trim.check().map_err(|why| ScenarioError::section("queue", why, text))
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

    fn check_pcie(&self) -> Result<(), PcieError> {
        let Some(pcie) = &self.pcie else { return Ok(()) };
        if self.port.kind != crate::port::Kind::Fifo {
            return Err(PcieError::NotFifo);
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

    /// Returns the controller, if it is not off.
    pub fn active_controller(&self) -> Option<&ControllerSection> {
        self.controller.as_ref().filter(|controller| controller.mode != ControllerMode::Off)
    }

    fn check_controller(&self) -> Result<(), ControllerError> {
        let Some(controller) = self.active_controller() else { return Ok(()) };
        if self.forwarding.kind != crate::switch::Kind::Ecmp {
            return Err(ControllerError::NotEcmp);
        }
        controller.check()
    }

    /// Checks that each variant gives a valid scenario and has a unique name that a list of balancers can hold.
    fn check_variants(&self, folder: &Path, text: &str) -> Result<(), ScenarioError> {
        if self.variants.is_empty() {
            return Ok(());
        }
        // A valid scenario may have numbers that a TOML table cannot hold.
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

    /// Returns the scenario with every default filled in, as TOML.
    ///
    /// # Errors
    /// The topology, from which defaults of the transport derive, cannot be built.
    pub fn expanded(&self) -> Result<String, ScenarioError> {
        let topology = self.build_topology()?;
        let mut full = self.clone();
        full.transport = self.transport.expanded(&topology);
        Ok(toml::to_string(&full).expect("a scenario is TOML"))
    }

    /// Builds the network.
    ///
    /// # Errors
    /// The network's parameters or its file are invalid.
    pub fn build_topology(&self) -> Result<Topology, ScenarioError> {
        self.topology.build(&self.folder)
    }

    /// Returns the configuration of the world around the workloads.
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

    /// Returns the stack that channels belong to instead of the transport.
    fn stack(
        &self,
        topology: &Topology,
        transport: &TransportConfig,
    ) -> Result<Option<StackConfig>, ScenarioError> {
        let hosts = topology.hosts();
        if let Some(overlay) = &self.overlay {
            overlay
                .check_network(hosts, transport)
                .map_err(|why| ScenarioError::new(format!("[overlay]: {why}")))?;
            return Ok(Some(StackConfig::Overlay { section: overlay.clone(), hosts }));
        }
        Ok(self.messages.clone().map(|messages| StackConfig::Messages(messages.0)))
    }
}

#[cfg(test)]
mod tests;
