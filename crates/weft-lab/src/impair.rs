//! The application of impairments to a link: loss, marks and rate limits, one direction at a time.
//!
//! Loss and marks are applied where a packet arrives, in the nftables ingress hook of the receiving port, so they apply
//! to packets as the sending port put them on the wire. The sending port of a lossy direction splits large segments
//! first: otherwise one random draw would lose 45 packets at once.

use weft_units::{ByteCount, Probability};

use crate::build::set_segmentation;
use crate::fabric::{Fabric, Link, Port};
use crate::namespace::enter;
use crate::state::LinkState;
use crate::tool::{NFT, TC};
use crate::{Impairment, LabError, LabSpec};

/// Applies the changes from `old` to `new` in the kernel. A black hole in both directions begins at one instant: both
/// drop rules are at the near port and are installed in one transaction.
///
/// # Errors
/// Returns `MissingTool`, `Command` or `Io` from the first step that failed.
pub(crate) fn apply(
    fabric: &Fabric,
    link: &Link,
    old: &LinkState,
    new: &LinkState,
    spec: &LabSpec,
) -> Result<(), LabError> {
    let LabSpec { offloads, mtu, .. } = *spec;
    for (port, old, new) in
        [(&link.near, &old.forward, &new.forward), (&link.far, &old.backward, &new.backward)]
    {
        let random = |impairment: &Impairment| {
            impairment.loss != Probability::NONE || impairment.mark != Probability::NONE
        };
        if offloads && random(old) != random(new) {
            set_segmentation(fabric, port, !random(new))?;
        }
        // A queue without a rate limits nothing.
        let limit = |impairment: &Impairment| impairment.rate.map(|rate| (rate, impairment.queue));
        if limit(old) != limit(new) {
            set_rate(fabric, port, new, mtu)?;
        }
    }
    set_rules(fabric, &link.near, near_rules(new, mtu), near_rules(old, mtu))?;
    set_rules(fabric, &link.far, far_rules(new, mtu), far_rules(old, mtu))
}

/// The rules at one port, for packets that arrive and for packets that leave.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    ingress: Vec<String>,
    egress: Vec<String>,
    /// The rules for leaving packets that could be marked.
    marking: Vec<String>,
}

fn near_rules(state: &LinkState, mtu: u16) -> Rules {
    let drop_all = |hole: bool| hole.then_some(String::from("counter name @dropped drop"));
    let mut ingress: Vec<String> = drop_all(state.backward.black_hole).into_iter().collect();
    ingress.extend(random_rules(&state.backward));
    let mut egress: Vec<String> = drop_all(state.forward.black_hole).into_iter().collect();
    let marking = marking_rules(&state.forward, mtu);
    egress.extend(jump_rules(&marking, mtu));
    Rules { ingress, egress, marking }
}

fn far_rules(state: &LinkState, mtu: u16) -> Rules {
    let marking = marking_rules(&state.backward, mtu);
    Rules { ingress: random_rules(&state.forward), egress: jump_rules(&marking, mtu), marking }
}

/// Returns the rules that mark packets when they leave, before they are queued. They count full packets, because the
/// kernel's byte bucket holds a second of traffic; packets below half the MTU, mostly ACKs, are never marked. The
/// virtual queue is a tenth slower than the link: senders with a short real queue send at link rate, and would never be
/// marked.
fn marking_rules(impairment: &Impairment, mtu: u16) -> Vec<String> {
    let (Some(rate), Some(ByteCount(backlog))) = (impairment.rate, impairment.mark_above) else {
        return vec![];
    };
    let rate = rate.as_bps();
    let frame = largest_frame(mtu);
    let per_minute = (60 * rate / 8 / frame * 9 / 10).max(1);
    // The bucket holds the packet itself and the packets that may wait before it.
    let bucket = 1 + (backlog + frame / 2) / frame;
    vec![
        format!("limit rate {per_minute}/minute burst {bucket} packets return"),
        "counter name @marked".into(),
        "ip ecn set ce".into(),
        "ip6 ecn set ce".into(),
    ]
}

/// Returns the rules that send packets of both families to the same marking rules, so that they share one virtual
/// queue.
fn jump_rules(marking: &[String], mtu: u16) -> Vec<String> {
    if marking.is_empty() {
        return vec![];
    }
    let rule = |ip| format!("{ip} ecn != not-ect meta length > {} jump @marking", mtu / 2);
    ["ip", "ip6"].map(rule).to_vec()
}

/// Returns the size in bytes of a full packet with its Ethernet header.
fn largest_frame(mtu: u16) -> u64 {
    u64::from(mtu) + 14
}

fn random_rules(impairment: &Impairment) -> Vec<String> {
    // nft refuses a comparison that is always true.
    let draw = |loss: Probability| match loss.millionths() {
        1_000_000 => String::new(),
        some => format!("numgen random mod 1000000 < {some}"),
    };
    let mut rules = vec![];
    if impairment.loss != Probability::NONE {
        let draw = draw(impairment.loss);
        rules.push(format!("meta protocol ip {draw} counter name @dropped drop"));
        // ICMPv6 carries neighbour discovery, as ARP does for IPv4, and is exempt too.
        rules.push(format!("ip6 nexthdr != icmpv6 {draw} counter name @dropped drop"));
    }
    if impairment.mark != Probability::NONE {
        let draw = draw(impairment.mark);
        rules.extend(
            ["ip", "ip6"].map(|ip| {
                format!("{ip} ecn != not-ect {draw} counter name @marked {ip} ecn set ce")
            }),
        );
    }
    rules
}

fn set_rules(fabric: &Fabric, port: &Port, new: Rules, old: Rules) -> Result<(), LabError> {
    if new == old {
        return Ok(());
    }
    let script = ruleset(&port.device, &new);
    enter(&fabric.nodes[port.node].namespace, || NFT.run(&["-f", "-"], &script))??;
    Ok(())
}

/// Returns an nft script that replaces the rules of the port's chains in one transaction; its counters continue.
fn ruleset(device: &str, rules: &Rules) -> String {
    let mut script = String::from("add table netdev weft\n");
    for (hook, rules_of_hook) in [("ingress", &rules.ingress), ("egress", &rules.egress)] {
        let name = format!("{device}-{hook}");
        for counter in ["dropped", "marked"] {
            script += &format!("add counter netdev weft {name}-{counter}\n");
        }
        script += &format!(
            "add chain netdev weft {name} \
             {{ type filter hook {hook} device \"{device}\" priority 0; }}\n\
             add chain netdev weft {name}-marking\n\
             flush chain netdev weft {name}\n\
             flush chain netdev weft {name}-marking\n"
        );
        let marking = if hook == "egress" { &rules.marking[..] } else { &[] };
        let chains = [(format!("{name}-marking"), marking), (name.clone(), &rules_of_hook[..])];
        for (chain, rules) in chains {
            for rule in rules {
                let rule = rule.replace('@', &format!("{name}-"));
                script += &format!("add rule netdev weft {chain} {rule}\n");
            }
        }
    }
    script
}

fn set_rate(
    fabric: &Fabric,
    port: &Port,
    impairment: &Impairment,
    mtu: u16,
) -> Result<(), LabError> {
    let namespace = &fabric.nodes[port.node].namespace;
    let Some(rate) = impairment.rate else {
        let arguments = ["qdisc", "del", "dev", &port.device, "root"];
        enter(namespace, || TC.run(&arguments, ""))??;
        return Ok(());
    };
    // With a burst below two packets or 200 us, the kernel's timer would limit the rate. The kernel splits packets that
    // are larger than the burst, as with offloads.
    let bytes_per_second = rate.as_bps() / 8;
    let burst = (bytes_per_second / 5_000).max(2 * largest_frame(mtu));
    let limit = impairment.queue.map_or(bytes_per_second / 200, |queue| queue.0) + burst;
    let (rate, burst, limit) =
        (format!("{}bit", rate.as_bps()), burst.to_string(), limit.to_string());
    let mut arguments = vec!["qdisc", "replace", "dev", &port.device, "root"];
    arguments.extend(["tbf", "rate", &rate, "burst", &burst, "limit", &limit]);
    enter(namespace, || TC.run(&arguments, ""))??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_port_marks_packets_above_the_backlog_at_egress() {
        let limited = Impairment {
            rate: "80Mbps".parse().ok(),
            mark_above: Some(ByteCount(10_000)),
            ..Impairment::default()
        };
        let state = LinkState { backward: limited, ..LinkState::default() };
        assert_eq!(near_rules(&state, 1500), Rules::default());
        let rules = far_rules(&state, 1500);
        assert!(rules.egress.iter().all(|rule| rule.contains("meta length > 750")), "{rules:?}");
        // 10 MB/s are 396,301 packets of 1514 bytes per minute, nine tenths of that 356,670; 10,000 bytes are nearly 7
        // packets.
        assert_eq!(rules.marking[0], "limit rate 356670/minute burst 8 packets return");
        let unlimited = Impairment { rate: None, ..limited };
        let state = LinkState { backward: unlimited, ..LinkState::default() };
        assert_eq!(far_rules(&state, 1500), Rules::default());
    }

    #[test]
    fn the_rules_of_a_black_hole_are_at_the_near_port() {
        let hole = Impairment { black_hole: true, ..Impairment::default() };
        let state = LinkState { forward: hole, backward: hole, ..LinkState::default() };
        let near = near_rules(&state, 1500);
        assert_eq!((near.ingress.len(), near.egress.len()), (1, 1));
        assert_eq!(far_rules(&state, 1500), Rules::default());
    }
}
