//! NCCL's topology XML, as `NCCL_TOPO_DUMP_FILE` writes it and `NCCL_TOPO_FILE` reads it.
//!
//! ```xml
//! <system version="1">
//!   <cpu numaid="0" vendor="GenuineIntel">
//!     <pci busid="0000:45:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
//!       <pci busid="0000:46:00.0" class="0x030200" ...><gpu dev="0" sm="90"><nvlink .../></gpu></pci>
//!       <pci busid="0000:47:00.0" class="0x020000" ...><nic><net dev="0" speed="400000"/></nic></pci>
//! ```
//!
//! Elements nest as PCIe does. A GPU or NIC without its inner element, as in files of cloud providers, is
//! recognised by its PCI class and numbered in file order. The reader ignores unknown elements, as NCCL does; a
//! NIC's `net` without a rate has the rate of its PCIe link.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use roxmltree::{Document, Node, ParsingOptions};
use weft_units::BitRate;

use super::{DeviceKind, LinkKind, Machine, MachineBuilder, MachineError};

/// An error in NCCL's topology XML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// The text is not XML, or has a document type, which NCCL's files never have.
    #[error("not XML: {0}")]
    Xml(String),
    /// An element is invalid.
    #[error("line {line}: <{element}> {problem}")]
    Element {
        /// The line where it starts, from 1.
        line: u32,
        /// Its name.
        element: String,
        /// The fault.
        problem: String,
    },
    /// The devices do not form a valid machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// Maximum number of XML nodes in a file: more than the 4,096 of NCCL's own reader.
const MAX_NODES: u32 = 20_000;
/// Maximum nesting of PCI bridges; real machines have a few levels.
const MAX_DEPTH: u32 = 32;
/// NCCL's rate between sockets in Gb/s: 10 GB/s (`graph/topo.h`).
const SOCKET_GBPS: u64 = 80;
/// The same for AMD's sockets: 16 GB/s.
const AMD_SOCKET_GBPS: u64 = 128;

/// Reads a machine from NCCL's topology XML.
///
/// # Errors
/// Returns `Xml` with line and column, `Element` with line and element, or `Machine` if the devices do not form a valid
/// machine.
pub fn read_nccl(text: &str) -> Result<Machine, NcclError> {
    let options = ParsingOptions { nodes_limit: MAX_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|error| NcclError::Xml(error.to_string().replace(char::is_control, " ")))?;
    let root = document.root_element();
    if root.tag_name().name() != "system" {
        return Err(element_error(root, "is not NCCL's <system>".into()));
    }
    let mut reader =
        Reader { machine: MachineBuilder::new(), nvlinks: Vec::new(), cpus: Vec::new() };
    for cpu in root.children().filter(|node| node.has_tag_name("cpu")) {
        reader.cpu(cpu)?;
    }
    reader.finish()
}

struct Reader<'a, 'input> {
    machine: MachineBuilder,
    /// Each GPU's name and `<nvlink>` elements, read last because their targets may come later in the file.
    nvlinks: Vec<(String, Node<'a, 'input>)>,
    cpus: Vec<(String, u64)>,
}

impl<'a, 'input> Reader<'a, 'input> {
    fn cpu(&mut self, cpu: Node<'a, 'input>) -> Result<(), NcclError> {
        let numa = cpu.attribute("numaid").unwrap_or("0");
        // One file may describe several hosts (MNNVL); NCCL distinguishes them by this attribute.
        let host = cpu
            .attribute("host_hash")
            .filter(|_| self.machine.find(&format!("cpu{numa}")).is_some());
        let name = host.map_or_else(|| format!("cpu{numa}"), |host| format!("cpu{numa}@{host}"));
        self.device(cpu, &name, DeviceKind::Cpu, None, None)?;
        let amd = cpu.attribute("vendor") == Some("AuthenticAMD");
        self.cpus.push((name.clone(), if amd { AMD_SOCKET_GBPS } else { SOCKET_GBPS }));
        self.below(cpu, &name, 0)
    }

    /// Reads the elements below `parent`.
    fn below(
        &mut self,
        element: Node<'a, 'input>,
        parent: &str,
        depth: u32,
    ) -> Result<(), NcclError> {
        for child in element.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "pci" if depth == MAX_DEPTH => {
                    let problem = format!("is nested more than {MAX_DEPTH} deep");
                    return Err(element_error(child, problem));
                }
                "pci" => self.pci(child, parent, depth + 1)?,
                "nic" => self.nic(child, parent, pcie_rate(element)?)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn pci(&mut self, pci: Node<'a, 'input>, parent: &str, depth: u32) -> Result<(), NcclError> {
        let name = required(pci, "busid")?;
        let class = required(pci, "class")?;
        let rate = pcie_rate(pci)?;
        let has = |inner: &str| pci.children().find(|child| child.has_tag_name(inner));
        match (class.get(..6).unwrap_or(class), has("gpu"), has("nic")) {
            ("0x0302" | "0x0300", gpu, _) | (_, gpu @ Some(_), _) => {
                let number = gpu.map(|gpu| number(gpu, "dev")).transpose()?.flatten();
                self.device(pci, name, DeviceKind::Gpu, number, None)?;
                self.nvlinks.extend(gpu.map(|gpu| (name.into(), gpu)));
                self.join(pci, [parent, name], LinkKind::Pcie, rate)
            }
            (_, _, Some(nic)) => self.nic(nic, parent, rate),
            ("0x0200" | "0x0207", ..) => {
                self.device(pci, name, DeviceKind::Nic, None, Some(rate))?;
                self.join(pci, [parent, name], LinkKind::Pcie, rate)
            }
            ("0x0604", ..) => {
                self.device(pci, name, DeviceKind::PciSwitch, None, None)?;
                self.join(pci, [parent, name], LinkKind::Pcie, rate)?;
                self.below(pci, name, depth)
            }
            // Storage and accelerators share PCIe; NCCL ignores them too.
            _ => Ok(()),
        }
    }

    /// Reads a `<nic>`: each of its `<net>` elements is a device in NCCL, hence a NIC here.
    fn nic(&mut self, nic: Node<'a, 'input>, parent: &str, pcie: BitRate) -> Result<(), NcclError> {
        for net in nic.children().filter(|child| child.has_tag_name("net")) {
            let dev = number(net, "dev")?;
            let unnamed = || format!("net{}", dev.unwrap_or(0));
            let name = net.attribute("name").map_or_else(unnamed, String::from);
            let mbps = number(net, "speed")?.map(u64::from);
            let rate = mbps.and_then(|mbps| BitRate::bps(mbps * 1_000_000)).unwrap_or(pcie);
            self.device(net, &name, DeviceKind::Nic, dev, Some(rate))?;
            self.join(net, [parent, &name], LinkKind::Pcie, pcie)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Machine, NcclError> {
        for (index, (from, rate)) in self.cpus.iter().enumerate() {
            for (to, _) in &self.cpus[..index] {
                self.machine.link([from, to], LinkKind::Socket, gbps(*rate))?;
            }
        }
        for (gpu, element) in core::mem::take(&mut self.nvlinks) {
            let sm = number(element, "sm")?.unwrap_or(0);
            for link in element.children().filter(|child| child.has_tag_name("nvlink")) {
                self.nvlink(&gpu, sm, link)?;
            }
        }
        Ok(self.machine.build()?)
    }

    fn nvlink(&mut self, gpu: &str, sm: u32, link: Node<'a, 'input>) -> Result<(), NcclError> {
        let target = required(link, "target")?;
        let count = u64::from(number(link, "count")?.unwrap_or(1));
        let Some(rate) = BitRate::bps(nvlink_mbps(sm) * 1_000_000 * count.min(1_000)) else {
            return Err(element_error(link, "has a count of 0".into()));
        };
        // All NVSwitches count as one, as in NCCL; each GPU's link has the sum of its links' rates.
        if link.attribute("tclass").is_some_and(|class| class.starts_with("0x0680")) {
            const SWITCH: &str = "nvswitch";
            if self.machine.find(SWITCH).is_none() {
                self.machine.add(SWITCH, DeviceKind::NvSwitch, None, None)?;
            }
            self.machine.add_rate([gpu, SWITCH], LinkKind::Nvlink, rate)?;
            return Ok(());
        }
        if self.machine.find(target).is_none() {
            return Err(element_error(
                link,
                format!("leads to {target:?}, which no <pci> of the file is"),
            ));
        }
        // Both GPUs list a link between them; the second entry is ignored.
        if !self.machine.is_linked([target, gpu], LinkKind::Nvlink) {
            self.join(link, [gpu, target], LinkKind::Nvlink, rate)?;
        }
        Ok(())
    }

    fn device(
        &mut self,
        element: Node<'a, 'input>,
        name: &str,
        kind: DeviceKind,
        number: Option<u32>,
        rate: Option<BitRate>,
    ) -> Result<(), NcclError> {
        let added = self.machine.add(name, kind, number, rate);
        added.map(|_| ()).map_err(|error| element_error(element, error.to_string()))
    }

    fn join(
        &mut self,
        element: Node<'a, 'input>,
        ends: [&str; 2],
        kind: LinkKind,
        rate: BitRate,
    ) -> Result<(), NcclError> {
        let joined = self.machine.link(ends, kind, rate);
        joined.map_err(|error| element_error(element, error.to_string()))
    }
}

fn element_error(node: Node<'_, '_>, problem: String) -> NcclError {
    let line = node.document().text_pos_at(node.range().start).row;
    NcclError::Element { line, element: node.tag_name().name().into(), problem }
}

fn required<'a>(node: Node<'a, '_>, attribute: &str) -> Result<&'a str, NcclError> {
    node.attribute(attribute).ok_or_else(|| element_error(node, format!("has no {attribute}")))
}

/// Parses a number in decimal or, after `0x`, in hexadecimal, as NCCL does.
fn number(node: Node<'_, '_>, attribute: &str) -> Result<Option<u32>, NcclError> {
    let Some(text) = node.attribute(attribute) else { return Ok(None) };
    let read = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let wrong = |_| element_error(node, format!("has {attribute}={text:?}, expected a number"));
    read.map(Some).map_err(wrong)
}

/// Returns the rate of a PCIe link minus its line coding; the defaults are 8 GT/s and 16 lanes, as in NCCL.
fn pcie_rate(pci: Node<'_, '_>) -> Result<BitRate, NcclError> {
    let speed = pci.attribute("link_speed").unwrap_or("");
    let tenths = match speed.trim().split([' ', 'G']).next().unwrap_or("") {
        "" | "Unknown" => 80,
        text => {
            let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
            let read = whole.parse::<u64>().ok().zip(part.get(..1).and_then(|p| p.parse().ok()));
            let value = read.filter(|&(whole, _)| whole <= 1_000);
            let wrong = || {
                element_error(
                    pci,
                    format!("has link_speed={speed:?}, expected such as \"16 GT/s\""),
                )
            };
            value.map(|(whole, tenth): (u64, u64)| 10 * whole + tenth).ok_or_else(wrong)?
        }
    };
    let lanes = u64::from(number(pci, "link_width")?.filter(|&lanes| lanes > 0).unwrap_or(16));
    let raw = tenths * 100_000_000 * lanes.min(64);
    // PCIe 1 and 2 send ten bits for each eight, later versions 130 for each 128.
    let net = if tenths <= 50 { raw / 10 * 8 } else { raw / 130 * 128 };
    BitRate::bps(net)
        .ok_or_else(|| element_error(pci, format!("has link_speed={speed:?}, which is none")))
}

/// Returns the rate of one NVLink in Mb/s by the GPU's generation (NCCL, `graph/topo.h`).
const fn nvlink_mbps(sm: u32) -> u64 {
    match sm {
        100.. => 320_800,
        90..=99 => 164_800,
        86 => 96_000,
        60..=69 => 144_000,
        _ => 160_000,
    }
}

const fn gbps(giga: u64) -> BitRate {
    BitRate::gbps(giga).expect("the rates of this file are above zero")
}

#[cfg(test)]
mod tests;
