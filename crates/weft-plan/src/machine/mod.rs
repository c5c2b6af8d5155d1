//! The inside of a server: GPUs, NICs, and the PCIe and NVLink-class links between them. This is the graph
//! `G(N, E)` of Astral's section 3.2, step 1.
//!
//! A [`Machine`] describes one kind of server. [`Cluster`](crate::Cluster) has the servers and the cabling of
//! their NICs.

mod best_paths;
mod build;
#[cfg(feature = "serde")]
mod config;
mod nccl;
mod refusal;

use alloc::string::String;
use alloc::vec::Vec;

pub use best_paths::{BestPaths, PathType};
pub use build::MachineBuilder;
#[cfg(feature = "serde")]
pub use config::{LinkConfig, MachineConfig};
pub use nccl::{NcclError, read_nccl};
pub use refusal::MachineError;
use weft_units::BitRate;

/// A device's index in [`Machine::devices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(pub usize);

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DeviceKind {
    /// A GPU, where traffic starts and ends.
    Gpu,
    /// A NIC to the network.
    Nic,
    /// A PCIe switch or bridge.
    PciSwitch,
    /// A socket or NUMA node: the root of a PCIe tree.
    Cpu,
    /// A switch between GPUs, such as NVSwitch.
    NvSwitch,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's name: `gpu0`, `mlx5_2`, `0000:45:00.0`.
    pub name: String,
    /// The device's kind.
    pub kind: DeviceKind,
    /// The number among devices of its kind: NCCL's `dev`.
    pub number: u32,
    /// A NIC's rate to the network; `None` if it is unknown, and for other devices.
    pub rate: Option<BitRate>,
}

/// The kind of a link inside a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum LinkKind {
    /// A link between two GPUs, or between a GPU and an NVSwitch.
    Nvlink,
    /// A PCI Express link; these links form trees below the CPUs.
    Pcie,
    /// A link between two CPUs.
    Socket,
}

/// A link between two devices, of equal rate in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerLink {
    /// The devices at its ends.
    pub ends: [DeviceId; 2],
    /// The link's kind.
    pub kind: LinkKind,
    /// Rate of one direction.
    pub rate: BitRate,
}

/// The inside of a server. It has at least one GPU and one NIC, its PCIe links have no cycle, and every GPU
/// reaches every other GPU and every NIC without passing a third.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    devices: Vec<Device>,
    links: Vec<InnerLink>,
}

impl Machine {
    /// Returns all devices.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns all links.
    pub fn links(&self) -> &[InnerLink] {
        &self.links
    }

    /// Returns the GPUs, by NCCL's number.
    pub fn gpus(&self) -> Vec<DeviceId> {
        self.numbered(|device| device.kind == DeviceKind::Gpu)
    }

    /// Returns the NICs that form rails, by NCCL's number: those with at least half the rate of the fastest.
    /// Slower ones are for management.
    pub fn nics(&self) -> Vec<DeviceId> {
        let rate = |device: &Device| device.rate.map_or(0, BitRate::as_bps);
        let is_nic = |device: &Device| device.kind == DeviceKind::Nic;
        let fastest = self.devices.iter().filter(|device| is_nic(device)).map(rate).max();
        self.numbered(|device| is_nic(device) && 2 * rate(device) >= fastest.unwrap_or(0))
    }

    fn numbered(&self, wanted: impl Fn(&Device) -> bool) -> Vec<DeviceId> {
        let mut found: Vec<DeviceId> = (0..self.devices.len())
            .map(DeviceId)
            .filter(|id| wanted(&self.devices[id.0]))
            .collect();
        found.sort_by_key(|id| self.devices[id.0].number);
        found
    }

    /// Returns the device's name.
    ///
    /// # Panics
    /// If the machine has no such device.
    pub fn name(&self, device: DeviceId) -> &str {
        &self.devices[device.0].name
    }
}
