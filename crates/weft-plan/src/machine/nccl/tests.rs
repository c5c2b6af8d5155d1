use alloc::string::{String, ToString};

use super::super::{BestPaths, PathType};
use super::*;

const NVSWITCH: &str = include_str!("../../../tests/golden/nccl/nvswitch.xml");
const CLOUD: &str = include_str!("../../../tests/golden/nccl/cloud.xml");
const MESH: &str = include_str!("../../../tests/golden/nccl/mesh.xml");

fn names(machine: &Machine, devices: &[super::super::DeviceId]) -> Vec<String> {
    devices.iter().map(|&device| machine.name(device).to_string()).collect()
}

#[test]
fn a_dump_gives_its_gpus_its_fast_nics_and_the_paths_between_them() {
    let machine = read_nccl(NVSWITCH).unwrap();
    let (gpus, nics) = (machine.gpus(), machine.nics());
    assert_eq!(gpus.len(), 4);
    assert_eq!(names(&machine, &nics), ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"], "no bond0");
    let reach = BestPaths::new(&machine);
    let near = reach.between(nics[2], gpus[2]).unwrap();
    assert_eq!((near.closeness, near.hops), (PathType::OneSwitch, 2));
    // 16 lanes at 32 GT/s in 128 of 130 bits.
    assert_eq!(near.rate.as_bps(), 512_000_000_000 / 130 * 128);
    assert_eq!(reach.between(nics[0], gpus[1]).unwrap().closeness, PathType::HostBridge);
    assert_eq!(reach.between(nics[0], gpus[3]).unwrap().closeness, PathType::System);
    // 18 links of 20.6 GB/s, over the NVSwitch.
    let peers = reach.between(gpus[0], gpus[3]).unwrap();
    assert_eq!(peers.closeness, PathType::Nvlink);
    assert_eq!(peers.rate.as_bps(), 18 * 164_800_000_000);
}

#[test]
fn devices_known_by_their_class_are_numbered_in_order() {
    let machine = read_nccl(CLOUD).unwrap();
    assert_eq!(machine.gpus().len(), 4);
    assert_eq!(names(&machine, &machine.nics()), ["0000:10:1b.0", "0000:20:1b.0"]);
    // The defaults are 16 lanes of 8 GT/s.
    let rate = machine.devices()[machine.nics()[1].0].rate.unwrap();
    assert_eq!(rate.as_bps(), 128_000_000_000 / 130 * 128);
}

#[test]
fn links_between_gpus_are_counted_once_though_both_list_them() {
    let machine = read_nccl(MESH).unwrap();
    let nvlinks = machine.links().iter().filter(|link| link.kind == LinkKind::Nvlink);
    assert_eq!(nvlinks.count(), 3);
    let (reach, gpus) = (BestPaths::new(&machine), machine.gpus());
    assert_eq!(reach.between(gpus[0], gpus[2]).unwrap().rate.as_bps(), 2 * 160_000_000_000);
}

#[test]
fn a_fault_is_named_with_its_line_and_element() {
    let refused = |from: &str, to: &str| {
        assert!(MESH.contains(from), "{from}");
        read_nccl(&MESH.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert_eq!(
        refused("target=\"0002:00:00.0\"", "target=\"0009:00:00.0\""),
        "line 5: <nvlink> leads to \"0009:00:00.0\", which no <pci> of the file is"
    );
    assert_eq!(refused(" busid=\"0001:00:00.0\"", ""), "line 3: <pci> has no busid");
    assert_eq!(
        refused("count=\"4\"", "count=\"many\""),
        "line 5: <nvlink> has count=\"many\", expected a number"
    );
    assert_eq!(
        refused("busid=\"0002:00:00.0\"", "busid=\"0001:00:00.0\""),
        "line 9: <pci> device \"0001:00:00.0\" is there twice; give each a name of its own"
    );
    assert_eq!(
        refused("link_speed=\"\"", "link_speed=\"fast\""),
        "line 3: <pci> has link_speed=\"fast\", expected such as \"16 GT/s\""
    );
    assert_eq!(refused("</system>", ""), "not XML: the root node was opened but never closed");
    assert_eq!(refused("system version", "graphs version").split(':').next(), Some("not XML"));
    let no_nic = "<system><cpu><pci busid=\"1\" class=\"0x030200\"/></cpu></system>";
    assert_eq!(read_nccl(no_nic).unwrap_err().to_string(), "a machine needs at least one NIC");
}

#[test]
fn hostile_nesting_entities_and_sizes_are_refused() {
    let bridge = |n| alloc::format!("<pci busid=\"{n}\" class=\"0x060400\">");
    let deep: String = (0..200).map(bridge).collect();
    let text = alloc::format!("<system><cpu>{deep}{}</cpu></system>", "</pci>".repeat(200));
    let error = read_nccl(&text).unwrap_err().to_string();
    assert_eq!(error, "line 1: <pci> is nested more than 32 deep");
    let bomb = "<!DOCTYPE s [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><system>&b;</system>";
    assert!(matches!(read_nccl(bomb), Err(NcclError::Xml(_))));
    let wide = alloc::format!("<system>{}</system>", "<cpu/>".repeat(200_000));
    assert!(matches!(read_nccl(&wide), Err(NcclError::Xml(_))));
    let abyss = alloc::format!("{}{}", "<a>".repeat(19_000), "</a>".repeat(19_000));
    assert!(read_nccl(&abyss).is_err());
}
