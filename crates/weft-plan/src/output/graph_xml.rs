//! NCCL's graph XML, which every server reads from `NCCL_GRAPH_FILE` instead of running NCCL's own search.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use crate::machine::{Machine, PathType};
use crate::ring::{NicPath, Ring};

/// NCCL's graph and pattern numbers (`graph/topo.h`, `include/graph.h`).
const RING: (u32, u32) = (0, 4);
const TREE: (u32, u32) = (1, 3);

/// Returns the graphs of a server: its rings, and the same paths as chains for trees (pattern "tree": one GPU
/// handles all traffic of a NIC). Each path is a channel, with its NIC before and after its GPUs.
///
/// NCCL follows the paths inside servers and the choice of NICs. It takes the order of servers from ranks,
/// which [`rank_file`](super::rank_file) sets.
pub fn graph_xml(machine: &Machine, rings: &[Ring]) -> String {
    let mut text = String::from("<graphs version=\"1\">\n");
    for (id, pattern) in [RING, TREE] {
        graph(&mut text, machine, rings, id, pattern);
    }
    text.push_str("</graphs>\n");
    text
}

fn graph(text: &mut String, machine: &Machine, rings: &[Ring], id: u32, pattern: u32) {
    let crosses = u32::from(rings.iter().any(|ring| ring.rail_in != ring.rail_out));
    let gigabytes = rings.iter().map(|ring| ring.rate.as_bps()).min().unwrap_or(0) as f64 / 8e9;
    let inside = rings.iter().map(|ring| ring.closeness).max().unwrap_or(PathType::Nvlink).nccl();
    let outside = rings.iter().flat_map(|ring| [ring.head, ring.tail]).map(rank).max();
    let outside = outside.map_or("PIX", |(_, name)| name);
    let channels = rings.len();
    writeln!(
        text,
        "  <graph id=\"{id}\" pattern=\"{pattern}\" crossnic=\"{crosses}\" nchannels=\"{channels}\" \
         speedintra=\"{gigabytes}\" speedinter=\"{gigabytes}\" latencyinter=\"0\" \
         typeintra=\"{inside}\" typeinter=\"{outside}\" samechannels=\"0\">"
    )
    .expect("writing to a string cannot fail");
    let nics = machine.nics();
    let number = |device: crate::machine::DeviceId| dev(machine.devices()[device.0].number);
    for ring in rings {
        let net = |rail: usize| format!("      <net dev=\"{}\"/>\n", number(nics[rail]));
        text.push_str("    <channel>\n");
        text.push_str(&net(ring.rail_in));
        for &gpu in &ring.gpus {
            text.push_str(&format!("      <gpu dev=\"{}\"/>\n", number(gpu)));
        }
        text.push_str(&net(ring.rail_out));
        text.push_str("    </channel>\n");
    }
    text.push_str("  </graph>\n");
}

/// Returns the rank and name of a path between NIC and GPU in NCCL's order of path types, nearest first.
fn rank(exit: NicPath) -> (u32, &'static str) {
    match exit {
        NicPath::Direct(closeness @ (PathType::Nvlink | PathType::OneSwitch)) => {
            (0, closeness.nccl())
        }
        NicPath::Direct(PathType::Switches) => (1, "PXB"),
        NicPath::Through(_) => (2, "PXN"),
        NicPath::Direct(PathType::HostBridge) => (3, "PHB"),
        NicPath::Direct(PathType::System) => (4, "SYS"),
    }
}

/// Formats a device number. NCCL versions differ in whether a bare number is hexadecimal; this form is valid in all.
fn dev(number: u32) -> String {
    if number < 10 { format!("{number}") } else { format!("{number:#x}") }
}
