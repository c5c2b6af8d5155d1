//! What a server has inside: GPUs, NICs, and the PCIe and NVLink-class links between them. This is
//! the graph `G(N, E)` of Astral's section 3.2, step 1.
//!
//! A [`Machine`] is data about one kind of server. Which servers there are and how their NICs are
//! cabled is [`Cluster`](crate::Cluster)'s.

mod build;
#[cfg(feature = "serde")]
mod config;
mod nccl;
mod reach;
mod refusal;

use alloc::string::String;
use alloc::vec::Vec;

pub use build::MachineBuilder;
#[cfg(feature = "serde")]
pub use config::{LinkConfig, MachineConfig};
pub use nccl::{NcclError, read_nccl};
pub use reach::{Closeness, Reach};
pub use refusal::MachineError;
use weft_units::BitRate;

/// A device of a machine, by its place in [`Machine::devices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(pub usize);

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DeviceKind {
    /// Computes. Traffic starts and ends here.
    Gpu,
    /// Leads to the network.
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
    /// What people call it: `gpu0`, `mlx5_2`, `0000:45:00.0`.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// NCCL's `dev`: the number among the devices of its kind.
    pub number: u32,
    /// A NIC's rate to the network; none where it is not known or for other devices.
    pub rate: Option<BitRate>,
}

/// What a link inside a machine is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum LinkKind {
    /// Between GPUs, or a GPU and their switch.
    Nvlink,
    /// PCI Express; these links form trees below the CPUs.
    Pcie,
    /// Between CPUs.
    Socket,
}

/// A link between two devices, as fast in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerLink {
    /// The devices it joins.
    pub ends: [DeviceId; 2],
    /// What it is made of.
    pub kind: LinkKind,
    /// Rate of one direction.
    pub rate: BitRate,
}

/// The inside of a server: at least one GPU and one NIC, PCIe without cycles, every GPU reaching every
/// other and every NIC without one in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    devices: Vec<Device>,
    links: Vec<InnerLink>,
}

impl Machine {
    /// Every device.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Every link.
    pub fn links(&self) -> &[InnerLink] {
        &self.links
    }

    /// The GPUs, by NCCL's number.
    pub fn gpus(&self) -> Vec<DeviceId> {
        self.numbered(|device| device.kind == DeviceKind::Gpu)
    }

    /// The NICs that make rails, by NCCL's number: those at least half as fast as the fastest. A
    /// slow one beside them is for management.
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

    /// The device's name.
    ///
    /// # Panics
    /// If the machine has no such device.
    pub fn name(&self, device: DeviceId) -> &str {
        &self.devices[device.0].name
    }
}
