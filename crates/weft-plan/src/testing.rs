//! Clusters for tests.

use alloc::format;
use alloc::vec::Vec;

use weft_topo::hash::HashAlgorithm;
use weft_topo::{NodeId, Topology};
use weft_units::{BitRate, Seed};

use crate::cluster::{Cluster, Network, Server};
use crate::machine::{DeviceKind, LinkKind, Machine, MachineBuilder};
use crate::ports::switch_hashes;

/// Returns a machine whose GPUs share one switch, each with a NIC on its own PCIe switch: Astral's figure 3.
pub(crate) fn astral_machine(gpus: u32) -> Machine {
    let gbps = |rate| BitRate::gbps(rate).unwrap();
    let mut machine = MachineBuilder::new();
    machine.add("cpu0", DeviceKind::Cpu, None, None).unwrap();
    machine.add("nvswitch", DeviceKind::NvSwitch, None, None).unwrap();
    for n in 0..gpus {
        let [gpu, nic, pci] = ["gpu", "nic", "pci"].map(|kind| format!("{kind}{n}"));
        machine.add(&gpu, DeviceKind::Gpu, None, None).unwrap();
        machine.add(&nic, DeviceKind::Nic, None, Some(gbps(400))).unwrap();
        machine.add(&pci, DeviceKind::PciSwitch, None, None).unwrap();
        machine.link(["cpu0", &pci], LinkKind::Pcie, gbps(504)).unwrap();
        machine.link([&pci, &gpu], LinkKind::Pcie, gbps(504)).unwrap();
        machine.link([&pci, &nic], LinkKind::Pcie, gbps(504)).unwrap();
        machine.link([&gpu, "nvswitch"], LinkKind::Nvlink, gbps(3200)).unwrap();
    }
    machine.build().unwrap()
}

/// Returns a cluster on this topology, whose hosts are NICs, `rails` for each server.
pub(crate) fn on_shape(machine: Machine, rails: u32, topology: &Topology) -> Cluster {
    let servers: Vec<Server> = (0..topology.hosts() / rails)
        .map(|server| Server {
            name: format!("node{server}"),
            nics: (server * rails..(server + 1) * rails).map(NodeId).collect(),
        })
        .collect();
    let network = network(topology.clone(), HashAlgorithm::Crc32);
    Cluster::on_network(machine, servers, network).unwrap()
}

/// Returns a network whose switches have this hash, and seeds of their own.
pub(crate) fn network(topology: Topology, algorithm: HashAlgorithm) -> Network {
    Network {
        hashes: switch_hashes(&topology, algorithm, 8, Seed(1)),
        addresses: (0..topology.hosts()).map(|host| 0x0a00_0000 + host).collect(),
        weights: alloc::collections::BTreeMap::new(),
        names: Vec::new(),
        topology,
    }
}
