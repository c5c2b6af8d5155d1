//! The traffic and losses of each link, read from the kernel.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;
use serde_json::Value;

use crate::fabric::Port;
use crate::namespace::enter;
use crate::tool::{NFT, TC};
use crate::{Lab, LabError};

/// The traffic of one direction of a link since the lab came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounters {
    /// Number of packets that the sending port put on the wire. With offloads, a packet has up to 64 KiB.
    pub packets: u64,
    /// Number of bytes of these packets, with Ethernet headers.
    pub bytes: u64,
    /// Number of packets lost to configured loss or a black hole.
    pub dropped: u64,
    /// Number of packets marked "congestion experienced".
    pub marked: u64,
    /// Number of packets dropped at a full queue of a rate limit.
    pub queue_dropped: u64,
}

/// The counters of both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// The counters from the near end to the far end.
    pub forward: PortCounters,
    /// The counters from the far end to the near end.
    pub backward: PortCounters,
}

impl Lab {
    /// Returns the counters of every link, by index of [`crate::Fabric::links`].
    ///
    /// # Errors
    /// Returns `Io`, `Command` or `MissingTool` if the counters cannot be read.
    pub fn counters(&self) -> Result<Vec<LinkCounters>, LabError> {
        let fabric = self.fabric();
        let nodes: Vec<NodeCounters> = fabric
            .nodes
            .iter()
            .map(|node| enter(&node.namespace, NodeCounters::read)?)
            .collect::<Result<_, LabError>>()?;
        let direction = |from: &Port, to: &Port| {
            let (sender, receiver) = (&nodes[from.node], &nodes[to.node]);
            let rule = |node: &NodeCounters, device: &str, name: &str| {
                node.rules.get(&format!("{device}-{name}")).copied().unwrap_or(0)
            };
            let (packets, bytes) = sender.sent.get(&from.device).copied().unwrap_or((0, 0));
            let dropped_at_egress = rule(sender, &from.device, "egress-dropped");
            PortCounters {
                packets,
                bytes,
                dropped: dropped_at_egress + rule(receiver, &to.device, "ingress-dropped"),
                marked: rule(receiver, &to.device, "ingress-marked")
                    + rule(sender, &from.device, "egress-marked"),
                queue_dropped: sender.queue_dropped.get(&from.device).copied().unwrap_or(0),
            }
        };
        let links = fabric.links.iter();
        Ok(links
            .map(|link| LinkCounters {
                forward: direction(&link.near, &link.far),
                backward: direction(&link.far, &link.near),
            })
            .collect())
    }
}

impl Lab {
    /// Returns the bytes that wait at the ports of a node, by device; ports without a rate limit hold nothing.
    ///
    /// # Errors
    /// Returns `Unknown` without such a node, and `Io`, `Command` or `MissingTool` if the queues cannot be read.
    pub fn backlogs(&self, node: &str) -> Result<BTreeMap<String, u64>, LabError> {
        let queues = self.enter(node, || TC.run(&["-s", "-j", "qdisc", "show"], ""))??;
        Ok(json(&queues).as_array().into_iter().flatten().filter_map(backlog).collect())
    }
}

/// The counters of one namespace.
#[derive(Debug, Default)]
struct NodeCounters {
    /// Numbers of packets and bytes sent, by device.
    sent: BTreeMap<String, (u64, u64)>,
    /// Number of packets dropped at a full queue, by device.
    queue_dropped: BTreeMap<String, u64>,
    /// Number of packets of each nftables counter, by its name.
    rules: BTreeMap<String, u64>,
}

impl NodeCounters {
    /// Reads the counters of this thread's namespace.
    fn read() -> Result<Self, LabError> {
        // `/proc/net` would show the main thread's namespace.
        let path = "/proc/thread-self/net/dev";
        let devices = fs::read_to_string(path).map_err(LabError::io(format!("read {path}")))?;
        let rules = json(&NFT.run(&["-j", "list", "counters"], "")?);
        let queues = json(&TC.run(&["-s", "-j", "qdisc", "show"], "")?);
        Ok(Self {
            sent: devices.lines().filter_map(sent).collect(),
            queue_dropped: queues.as_array().into_iter().flatten().filter_map(queue).collect(),
            rules: rules["nftables"].as_array().into_iter().flatten().filter_map(rule).collect(),
        })
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

/// Parses a line of `/proc/net/dev`: eight columns received, then bytes and packets sent.
fn sent(line: &str) -> Option<(String, (u64, u64))> {
    let (device, columns) = line.split_once(':')?;
    let mut columns = columns.split_ascii_whitespace().skip(8);
    let (bytes, packets) = (columns.next()?.parse().ok()?, columns.next()?.parse().ok()?);
    Some((device.trim().to_owned(), (packets, bytes)))
}

fn queue(value: &Value) -> Option<(String, u64)> {
    Some((value["dev"].as_str()?.to_owned(), value["drops"].as_u64()?))
}

fn backlog(value: &Value) -> Option<(String, u64)> {
    let is_root = value["root"].as_bool() == Some(true);
    is_root.then(|| Some((value["dev"].as_str()?.to_owned(), value["backlog"].as_u64()?)))?
}

fn rule(value: &Value) -> Option<(String, u64)> {
    let counter = &value["counter"];
    Some((counter["name"].as_str()?.to_owned(), counter["packets"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_net_dev_has_packets_and_bytes_sent() {
        let line = "  eth0: 1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0";
        assert_eq!(sent(line), Some(("eth0".into(), (20, 2000))));
        assert_eq!(sent(" face |bytes packets"), None);
    }

    #[test]
    fn named_counters_are_found_among_other_objects() {
        let answer = r#"{"nftables":[{"metainfo":{"version":"1"}},
            {"counter":{"name":"s0-ingress-dropped","packets":7,"bytes":9}}]}"#;
        let found: Vec<_> =
            json(answer)["nftables"].as_array().unwrap().iter().filter_map(rule).collect();
        assert_eq!(found, [("s0-ingress-dropped".to_owned(), 7)]);
    }
}
