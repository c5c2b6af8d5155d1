//! Construction of a [`Machine`], with its validation.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{BitRate, unknown_name};

use super::{Device, DeviceId, DeviceKind, InnerLink, LinkKind, Machine, MachineError};

/// A builder of a [`Machine`].
#[derive(Clone, Debug, Default)]
pub struct MachineBuilder {
    devices: Vec<Device>,
    links: Vec<InnerLink>,
    by_name: BTreeMap<String, DeviceId>,
}

impl MachineBuilder {
    /// Maximum number of devices of a machine: more than any server has, few enough for the planner's tables.
    pub const MAX_DEVICES: usize = 512;

    /// Returns a builder without devices.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device. `number` is its number among its kind; the default is the next one.
    ///
    /// # Errors
    /// Returns `Unprintable`, `Twice` for a name that is taken, or `TooMany` above [`Self::MAX_DEVICES`].
    pub fn add(
        &mut self,
        name: &str,
        kind: DeviceKind,
        number: Option<u32>,
        rate: Option<BitRate>,
    ) -> Result<DeviceId, MachineError> {
        let id = DeviceId(self.devices.len());
        if id.0 >= Self::MAX_DEVICES {
            return Err(MachineError::TooMany { got: id.0 + 1, max: Self::MAX_DEVICES });
        }
        if name.chars().any(char::is_control) {
            return Err(MachineError::Unprintable { name: name.into() });
        }
        if self.by_name.contains_key(name) {
            return Err(MachineError::Twice { name: name.into() });
        }
        let next = self.devices.iter().filter(|device| device.kind == kind).map(|d| d.number + 1);
        let number = number.unwrap_or_else(|| next.max().unwrap_or(0));
        self.by_name.insert(name.into(), id);
        self.devices.push(Device { name: name.into(), kind, number, rate });
        Ok(id)
    }

    /// Returns the device of this name.
    pub fn find(&self, name: &str) -> Option<DeviceId> {
        self.by_name.get(name).copied()
    }

    /// Links two devices by name.
    ///
    /// # Errors
    /// Returns `Unknown` with the most similar name, or `SelfLoop`.
    pub fn link(
        &mut self,
        [a, b]: [&str; 2],
        kind: LinkKind,
        rate: BitRate,
    ) -> Result<(), MachineError> {
        let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        let find = |name: &str| {
            let found = self.by_name.get(name).copied();
            found.ok_or_else(|| MachineError::Unknown(unknown_name("device", name, &known)))
        };
        let ends = [find(a)?, find(b)?];
        if ends[0] == ends[1] {
            return Err(MachineError::SelfLoop { name: a.into() });
        }
        self.links.push(InnerLink { ends, kind, rate });
        Ok(())
    }

    /// Returns `true` if a link of this kind joins the two devices, in either direction.
    pub(super) fn is_linked(&self, ends: [&str; 2], kind: LinkKind) -> bool {
        self.position(ends, kind).is_some()
    }

    /// Links two devices, or adds `rate` to the link that exists.
    pub(super) fn add_rate(
        &mut self,
        ends: [&str; 2],
        kind: LinkKind,
        rate: BitRate,
    ) -> Result<(), MachineError> {
        let Some(position) = self.position(ends, kind) else { return self.link(ends, kind, rate) };
        let link = &mut self.links[position];
        let sum = link.rate.as_bps().saturating_add(rate.as_bps());
        link.rate = BitRate::bps(sum).unwrap_or(rate);
        Ok(())
    }

    fn position(&self, [a, b]: [&str; 2], kind: LinkKind) -> Option<usize> {
        let (a, b) = (self.find(a)?, self.find(b)?);
        let joins =
            |link: &InnerLink| link.kind == kind && (link.ends == [a, b] || link.ends == [b, a]);
        self.links.iter().position(joins)
    }

    /// Validates and returns the machine.
    ///
    /// # Errors
    /// Returns `Without`, or `Cycle` or `Apart` with the names of the devices.
    pub fn build(self) -> Result<Machine, MachineError> {
        let machine = Machine { devices: self.devices, links: self.links };
        let (gpus, nics) = (machine.gpus(), machine.nics());
        if gpus.is_empty() || nics.is_empty() {
            let what = if gpus.is_empty() { "GPU" } else { "NIC" };
            return Err(MachineError::Without { what });
        }
        if let Some(cycle) = pcie_cycle(&machine) {
            return Err(MachineError::Cycle { cycle });
        }
        let reach = super::BestPaths::new(&machine);
        for &from in &gpus {
            let others = gpus.iter().chain(&nics).filter(|&&other| other != from);
            for &other in others {
                if reach.between(from, other).is_none() {
                    let name = |id| String::from(machine.name(id));
                    return Err(MachineError::Apart { from: name(from), to: name(other) });
                }
            }
        }
        Ok(machine)
    }
}

/// Returns the names along a cycle of PCIe links, if there is one: the path between the ends of the first link
/// that closes a cycle.
fn pcie_cycle(machine: &Machine) -> Option<Vec<String>> {
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); machine.devices.len()];
    for link in machine.links.iter().filter(|link| link.kind == LinkKind::Pcie) {
        let [DeviceId(a), DeviceId(b)] = link.ends;
        if let Some(path) = path_between(&neighbours, a, b) {
            let name = |&device: &usize| machine.devices[device].name.clone();
            let mut cycle: Vec<String> = path.iter().map(name).collect();
            cycle.push(name(&a));
            return Some(cycle);
        }
        neighbours[a].push(b);
        neighbours[b].push(a);
    }
    None
}

/// Returns the path from `from` to `to` in a forest.
fn path_between(neighbours: &[Vec<usize>], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut before: Vec<Option<usize>> = vec![None; neighbours.len()];
    let mut stack = vec![from];
    before[from] = Some(from);
    while let Some(at) = stack.pop() {
        for &next in &neighbours[at] {
            if before[next].is_none() {
                before[next] = Some(at);
                stack.push(next);
            }
        }
    }
    before[to]?;
    let mut path = vec![to];
    while let Some(&at) = path.last().filter(|&&at| at != from) {
        path.push(before[at].expect("every device on the way was reached from another"));
    }
    path.reverse();
    Some(path)
}
