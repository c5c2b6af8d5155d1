//! Counters of ports, and of the packets that their queues have marked.

use weft_wire::sflow::QueueMarks;

use super::client::Client;
use super::proto::gnmi::Path;
use super::tree::Tree;
use super::{GnmiError, GnmiSettings, MarkCounters};
use crate::RouterEntry;

/// The counters of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortCounters {
    /// The port's name.
    pub(crate) port: String,
    /// Number of bytes that it has sent.
    pub(crate) bytes: u64,
    /// Number of packets that its queues have marked, modulo 2^32; `None` if the server does not count them.
    pub(crate) marks: Option<QueueMarks>,
}

/// The count of a queue's marks in SONiC's `COUNTERS_DB`, where `counterpoll` is enabled for WRED queues.
const SONIC_MARKS: &str = "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS";

/// Reads the counters of the configured ports, and those of marks if the server has them.
///
/// # Errors
/// Returns the error of the first failed request.
pub(super) async fn fetch(
    client: &mut Client<'_>,
    entry: &RouterEntry,
    settings: &GnmiSettings,
) -> Result<Answer, GnmiError> {
    let names = || entry.ports.iter().map(|port| port.name.as_str());
    let ports: Vec<Path> = names()
        .map(|name| {
            Path::of("interfaces").entry("interface", &[("name", name)]).at("state/counters")
        })
        .collect();
    let queues: Vec<Path> = match settings.marks {
        MarkCounters::Openconfig => names()
            .map(|name| {
                let interface = Path::of("qos/interfaces");
                interface.entry("interface", &[("interface-id", name)]).at("output/queues")
            })
            .collect(),
        MarkCounters::Sonic => names()
            .map(|name| Path::of("COUNTERS").entry(name, &[]).at("Queues").of_target("COUNTERS_DB"))
            .collect(),
        MarkCounters::None => vec![],
    };
    let ports = client.read(&ports).await?;
    let queues =
        if queues.is_empty() { Tree::default() } else { client.read_if_present(&queues).await? };
    Ok(Answer { ports, queues })
}

/// The answers of a server about its counters.
#[derive(Debug)]
pub(super) struct Answer {
    ports: Tree,
    queues: Tree,
}

/// Converts the answers. A port without counters is left out.
pub(super) fn convert(
    entry: &RouterEntry,
    settings: &GnmiSettings,
    answer: &Answer,
) -> Vec<PortCounters> {
    let counters = |port: &crate::PortEntry| {
        let interface = answer.ports.entry("interfaces/interface", &port.name)?;
        let bytes = interface.leaf("state/counters/out-octets")?.parse().ok()?;
        let marks = marks(settings.marks, &answer.queues, &port.name);
        Some(PortCounters { port: port.name.clone(), bytes, marks })
    };
    entry.ports.iter().filter_map(counters).collect()
}

/// Sums the marks of a port's queues; `None` if no queue counts them.
#[expect(clippy::cast_possible_truncation, reason = "the sum is used modulo 2^32")]
fn marks(kind: MarkCounters, queues: &Tree, port: &str) -> Option<QueueMarks> {
    let (queues, leaf) = match kind {
        MarkCounters::Openconfig => {
            let interface = queues.entry("qos/interfaces/interface", port)?;
            (interface.at("output/queues/queue")?, "state/ecn-marked-pkts")
        }
        MarkCounters::Sonic => (queues.entry("COUNTERS", port)?.at("Queues")?, SONIC_MARKS),
        MarkCounters::None => return None,
    };
    let counts = queues.children().filter_map(|(_, queue)| queue.leaf(leaf)?.parse::<u64>().ok());
    let sum = counts.reduce(u64::wrapping_add)?;
    Some(QueueMarks { marked: sum as u32 })
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::tree;
    use super::*;

    /// Returns the counters of the ports Ethernet0 and Ethernet4.
    fn counted(kind: MarkCounters, ports: &Tree, queues: &Tree) -> Vec<(String, u64, Option<u32>)> {
        let entry: RouterEntry = toml::from_str(
            "name = 'l0'\nagent = '10.0.0.1'\nport = [{ name = 'Ethernet0' }, { name = 'Ethernet4' }]",
        )
        .unwrap();
        let settings = GnmiSettings { marks: kind, ..GnmiSettings::plain("l0:9339") };
        let answer = Answer { ports: ports.clone(), queues: queues.clone() };
        let counters = convert(&entry, &settings, &answer);
        counters.into_iter().map(|it| (it.port, it.bytes, it.marks.map(|it| it.marked))).collect()
    }

    #[test]
    fn marks_are_those_of_a_ports_queues_modulo_2_to_32() {
        let ports = tree(&[(
            "/interfaces",
            r#"{"openconfig-interfaces:interface": [
            {"name": "Ethernet0", "state": {"counters": {"out-octets": "18446744073709551615"}}},
            {"name": "Ethernet4", "state": {"counters": {"out-octets": "7"}}},
            {"name": "Ethernet8", "state": {"counters": {"out-octets": "9"}}}]}"#,
        )]);
        let max = u64::MAX;
        let queues = tree(&[(
            "/qos/interfaces/interface[interface-id=Ethernet0]/output/queues",
            r#"{
            "openconfig-qos:queue": [
                {"name": "UC0", "state": {"transmit-pkts": "5000", "ecn-marked-pkts": "4294967295"}},
                {"name": "UC3", "state": {"ecn-marked-pkts": "3"}},
                {"name": "UC4", "state": {"transmit-pkts": "1"}}]}"#,
        )]);
        let want = [("Ethernet0".into(), max, Some(2)), ("Ethernet4".into(), 7, None)];
        assert_eq!(counted(MarkCounters::Openconfig, &ports, &queues), want);
        // In SONiC's database the members of an object contain colons.
        let queues = tree(&[(
            "/COUNTERS/Ethernet0/Queues",
            r#"{
            "Ethernet0:0": {"SAI_QUEUE_STAT_PACKETS": "9", "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "40"},
            "Ethernet0:3": {"SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "2"}}"#,
        )]);
        let want = [("Ethernet0".into(), max, Some(42)), ("Ethernet4".into(), 7, None)];
        assert_eq!(counted(MarkCounters::Sonic, &ports, &queues), want);
        assert_eq!(counted(MarkCounters::None, &ports, &queues)[0].2, None);
    }
}
