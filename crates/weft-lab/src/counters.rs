//! What each link has carried and lost, read from the kernel.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;
use serde_json::Value;

use crate::fabric::Port;
use crate::namespace::enter;
use crate::tool::{NFT, TC};
use crate::{Lab, LabError};

/// What went through a link since it was made, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounters {
    /// Packets the sending port put on the wire. With offloads on, one may be up to 64 KiB.
    pub packets: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
    /// Packets lost to configured loss or a black hole.
    pub dropped: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Packets that found the queue of a rate limit full.
    pub queue_dropped: u64,
}

/// Both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// From the near end to the far end.
    pub forward: PortCounters,
    /// From the far end to the near end.
    pub backward: PortCounters,
}

impl Lab {
    /// The counters of every link, by index of [`crate::Fabric::links`].
    ///
    /// # Errors
    /// `Io`, `Command` or `MissingTool` when the kernel cannot be asked.
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
            let swallowed = rule(sender, &from.device, "egress-dropped");
            PortCounters {
                packets,
                bytes,
                dropped: swallowed + rule(receiver, &to.device, "ingress-dropped"),
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

/// One namespace's counters, by device or by name.
#[derive(Debug, Default)]
struct NodeCounters {
    /// Packets and bytes sent.
    sent: BTreeMap<String, (u64, u64)>,
    queue_dropped: BTreeMap<String, u64>,
    rules: BTreeMap<String, u64>,
}

impl NodeCounters {
    /// Asks this thread's namespace.
    fn read() -> Result<Self, LabError> {
        // `/proc/net` is the main thread's namespace.
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

/// A line of `/proc/net/dev`: eight columns received, then bytes and packets sent.
fn sent(line: &str) -> Option<(String, (u64, u64))> {
    let (device, columns) = line.split_once(':')?;
    let mut columns = columns.split_ascii_whitespace().skip(8);
    let (bytes, packets) = (columns.next()?.parse().ok()?, columns.next()?.parse().ok()?);
    Some((device.trim().to_owned(), (packets, bytes)))
}

fn queue(value: &Value) -> Option<(String, u64)> {
    Some((value["dev"].as_str()?.to_owned(), value["drops"].as_u64()?))
}

fn rule(value: &Value) -> Option<(String, u64)> {
    let counter = &value["counter"];
    Some((counter["name"].as_str()?.to_owned(), counter["packets"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_net_dev_gives_what_was_sent() {
        let line = "  eth0: 1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0";
        assert_eq!(sent(line), Some(("eth0".into(), (20, 2000))));
        assert_eq!(sent(" face |bytes packets"), None);
    }

    #[test]
    fn named_counters_are_found_among_other_answers() {
        let answer = r#"{"nftables":[{"metainfo":{"version":"1"}},
            {"counter":{"name":"s0-ingress-dropped","packets":7,"bytes":9}}]}"#;
        let found: Vec<_> =
            json(answer)["nftables"].as_array().unwrap().iter().filter_map(rule).collect();
        assert_eq!(found, [("s0-ingress-dropped".to_owned(), 7)]);
    }
}
