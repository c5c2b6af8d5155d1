//! The TOML description of a machine: by counts, by devices and links, or by NCCL's XML.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weft_units::BitRate;

use super::{DeviceKind, LinkKind, Machine, MachineBuilder, MachineError};

/// The inside of a server.
///
/// By counts, GPU `i` and its share of the NICs are attached to a PCIe switch of their own below one of two
/// CPUs, and all GPUs to one NVSwitch. The defaults are the servers of Astral's figure 3. With `devices`, the
/// file lists everything.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct MachineConfig {
    /// The path of a file with NCCL's topology XML, which replaces all other fields. A caller with file access
    /// reads it with [`read_nccl`](super::read_nccl).
    pub nccl: Option<String>,
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of NICs, distributed evenly over the GPUs.
    pub nics: u32,
    /// Total rate of each GPU's NVLinks in one direction; `None` for machines without NVLink.
    pub nvlink: Option<BitRate>,
    /// Rate of each PCIe link.
    pub pcie: BitRate,
    /// Rate of each NIC to the network.
    pub nic_rate: BitRate,
    /// Every device by name, instead of the counts.
    pub devices: BTreeMap<String, DeviceKind>,
    /// The links between `devices`.
    pub links: Vec<LinkConfig>,
}

/// A link of a machine.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Names of the devices at its ends.
    pub ends: [String; 2],
    /// The link's kind.
    pub kind: LinkKind,
    /// Rate of one direction.
    pub rate: BitRate,
}

impl Default for MachineConfig {
    fn default() -> Self {
        let gbps = |rate| BitRate::gbps(rate).expect("above zero");
        Self {
            nccl: None,
            gpus: 8,
            nics: 8,
            // 400 GB/s, and 16 lanes of PCIe 5 (Astral, introduction and section 2.2).
            nvlink: Some(gbps(3_200)),
            pcie: gbps(504),
            nic_rate: gbps(400),
            devices: BTreeMap::new(),
            links: Vec::new(),
        }
    }
}

impl MachineConfig {
    /// Builds the machine from the counts, or from devices and links.
    ///
    /// # Errors
    /// Returns the errors of [`MachineBuilder`].
    pub fn build(&self) -> Result<Machine, MachineError> {
        let mut machine = MachineBuilder::new();
        if self.devices.is_empty() {
            self.by_counts(&mut machine)?;
        } else {
            self.by_name(&mut machine)?;
        }
        machine.build()
    }

    fn by_name(&self, machine: &mut MachineBuilder) -> Result<(), MachineError> {
        for (name, &kind) in &self.devices {
            // The number in the name orders devices: "gpu10" follows "gpu9".
            let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            let rate = (kind == DeviceKind::Nic).then_some(self.nic_rate);
            machine.add(name, kind, digits.parse().ok(), rate)?;
        }
        let mut links = self.links.iter();
        links.try_for_each(|LinkConfig { ends: [a, b], kind, rate }| {
            machine.link([a, b], *kind, *rate)
        })
    }

    fn by_counts(&self, machine: &mut MachineBuilder) -> Result<(), MachineError> {
        let max = MachineBuilder::MAX_DEVICES;
        let got = self.gpus as usize + self.nics as usize;
        if got > max {
            return Err(MachineError::TooMany { got, max });
        }
        let sockets = if self.gpus > 1 { 2 } else { 1 };
        for socket in 0..sockets {
            machine.add(&format!("cpu{socket}"), DeviceKind::Cpu, None, None)?;
        }
        if sockets == 2 {
            machine.link(["cpu0", "cpu1"], LinkKind::Socket, self.pcie)?;
        }
        if self.nvlink.is_some() {
            machine.add("nvswitch", DeviceKind::NvSwitch, None, None)?;
        }
        for gpu in 0..self.gpus {
            let (name, switch) = (format!("gpu{gpu}"), format!("pci{gpu}"));
            machine.add(&name, DeviceKind::Gpu, None, None)?;
            machine.add(&switch, DeviceKind::PciSwitch, None, None)?;
            let cpu = format!("cpu{}", gpu * sockets / self.gpus);
            machine.link([&cpu, &switch], LinkKind::Pcie, self.pcie)?;
            machine.link([&switch, &name], LinkKind::Pcie, self.pcie)?;
            if let Some(rate) = self.nvlink {
                machine.link([&name, "nvswitch"], LinkKind::Nvlink, rate)?;
            }
        }
        for nic in 0..self.nics.min(self.nics * self.gpus) {
            let (name, switch) =
                (format!("nic{nic}"), format!("pci{}", nic * self.gpus / self.nics));
            machine.add(&name, DeviceKind::Nic, None, Some(self.nic_rate))?;
            machine.link([&switch, &name], LinkKind::Pcie, self.pcie)?;
        }
        Ok(())
    }
}
