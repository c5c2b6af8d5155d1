//! What is wrong with a link: packets lost, marked or held back, one direction at a time.
//!
//! Loss and marking happen where a packet arrives, in the receiving port's nftables ingress hook, so
//! they see what the sender's port put on the wire. A sender's port that feeds a lossy direction is
//! told to cut large segments first: otherwise one draw would lose 45 packets at once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_units::BitRate;

use crate::LabError;
use crate::build::set_segmentation;
use crate::fabric::{Fabric, Link, Port};
use crate::namespace::enter;
use crate::state::LinkState;
use crate::tool::{NFT, TC};

/// A probability in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Loss(u32);

/// The text is not a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a percentage from 0% to 100% with at most four decimals, such as 1% or 0.05%"
)]
pub struct ParseLossError(String);

impl Loss {
    /// Nothing is lost.
    pub const NONE: Self = Self(0);

    /// Packets in a million; everything from a million on.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl FromStr for Loss {
    type Err = ParseLossError;
    fn from_str(text: &str) -> Result<Self, ParseLossError> {
        let wrong = || ParseLossError(text.to_owned());
        let percent = text.trim().strip_suffix('%').ok_or_else(wrong)?;
        let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 4 {
            return Err(wrong());
        }
        let whole: u32 = whole.parse().map_err(|_| wrong())?;
        let fraction: u32 = format!("{fraction:0<4}").parse().map_err(|_| wrong())?;
        let millionths = whole.checked_mul(10_000).and_then(|all| all.checked_add(fraction));
        millionths.filter(|&all| all <= 1_000_000).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(out, "{}%", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl From<Loss> for String {
    fn from(loss: Loss) -> Self {
        loss.to_string()
    }
}

impl TryFrom<String> for Loss {
    type Error = ParseLossError;
    fn try_from(text: String) -> Result<Self, ParseLossError> {
        text.parse()
    }
}

/// What happens to packets in one direction of a link. The default is a healthy link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Impairment {
    /// IPv4 packets lost at random. Address resolution is spared: losing it costs a second, and
    /// no fabric does.
    pub loss: Loss,
    /// ECN-capable packets marked "congestion experienced" at random.
    pub mark: Loss,
    /// Rate limit, with a burst of 1 ms and a queue of 5 ms, drop-tail.
    pub rate: Option<BitRate>,
    /// Everything is lost and nobody is told: both ports stay up.
    pub black_hole: bool,
}

/// Which packets of a link are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// All.
    Both,
    /// Those that leave the node of this name.
    From(String),
}

/// Makes the kernel do what `new` says. A black hole in both directions opens at one instant: both
/// drop rules sit at the near port and enter in one transaction.
///
/// # Errors
/// `MissingTool`, `Command` or `Io` from the first step that failed.
pub(crate) fn apply(
    fabric: &Fabric,
    link: &Link,
    old: &LinkState,
    new: &LinkState,
    offloads: bool,
) -> Result<(), LabError> {
    for (port, old, new) in
        [(&link.near, &old.forward, &new.forward), (&link.far, &old.backward, &new.backward)]
    {
        let random = |impairment: &Impairment| {
            impairment.loss != Loss::NONE || impairment.mark != Loss::NONE
        };
        if offloads && random(old) != random(new) {
            set_segmentation(fabric, port, !random(new))?;
        }
        if old.rate != new.rate {
            set_rate(fabric, port, new.rate)?;
        }
    }
    set_rules(fabric, &link.near, near_rules(new), near_rules(old))?;
    set_rules(fabric, &link.far, far_rules(new), far_rules(old))
}

/// The rules at one port, for packets that arrive and that leave.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    ingress: Vec<String>,
    egress: Vec<String>,
}

fn near_rules(state: &LinkState) -> Rules {
    let drop_all = |hole: bool| hole.then_some(String::from("counter name @dropped drop"));
    let mut ingress: Vec<String> = drop_all(state.backward.black_hole).into_iter().collect();
    ingress.extend(random_rules(&state.backward));
    Rules { ingress, egress: drop_all(state.forward.black_hole).into_iter().collect() }
}

fn far_rules(state: &LinkState) -> Rules {
    Rules { ingress: random_rules(&state.forward), egress: vec![] }
}

fn random_rules(impairment: &Impairment) -> Vec<String> {
    // nft refuses a comparison that is always true.
    let draw = |loss: Loss| match loss.millionths() {
        1_000_000 => String::new(),
        some => format!("numgen random mod 1000000 < {some}"),
    };
    let mut rules = vec![];
    if impairment.loss != Loss::NONE {
        let draw = draw(impairment.loss);
        rules.push(format!("meta protocol ip {draw} counter name @dropped drop"));
    }
    if impairment.mark != Loss::NONE {
        let draw = draw(impairment.mark);
        rules.push(format!("ip ecn != not-ect {draw} counter name @marked ip ecn set ce"));
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

/// One transaction: the port's chains hold `rules` and nothing else; its counters keep counting.
fn ruleset(device: &str, rules: &Rules) -> String {
    let mut script = String::from("add table netdev weft\n");
    for (hook, rules) in [("ingress", &rules.ingress), ("egress", &rules.egress)] {
        let name = format!("{device}-{hook}");
        for counter in ["dropped", "marked"] {
            script += &format!("add counter netdev weft {name}-{counter}\n");
        }
        script += &format!(
            "add chain netdev weft {name} \
             {{ type filter hook {hook} device \"{device}\" priority 0; }}\n\
             flush chain netdev weft {name}\n"
        );
        for rule in rules {
            let rule = rule.replace('@', &format!("{name}-"));
            script += &format!("add rule netdev weft {name} {rule}\n");
        }
    }
    script
}

fn set_rate(fabric: &Fabric, port: &Port, rate: Option<BitRate>) -> Result<(), LabError> {
    let namespace = &fabric.nodes[port.node].namespace;
    let Some(rate) = rate else {
        let arguments = ["qdisc", "del", "dev", &port.device, "root"];
        enter(namespace, || TC.run(&arguments, ""))??;
        return Ok(());
    };
    // Ten full packets, or what the link sends in a millisecond: below that the timer, not the
    // rate, decides.
    let burst = (rate.as_bps() / 8_000).max(15_000).to_string();
    let rate = format!("{}bit", rate.as_bps());
    let mut arguments = vec!["qdisc", "replace", "dev", &port.device, "root"];
    arguments.extend(["tbf", "rate", &rate, "burst", &burst, "latency", "5ms"]);
    enter(namespace, || TC.run(&arguments, ""))??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_read_as_people_write_them_and_read_back() {
        for (text, millionths) in
            [("1%", 10_000), ("0.05%", 500), ("100%", 1_000_000), ("0.0001%", 1), ("0%", 0)]
        {
            let loss: Loss = text.parse().unwrap();
            assert_eq!(loss.millionths(), millionths, "{text}");
            assert_eq!(loss.to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_percentage_is_refused() {
        for text in ["1", "101%", "-1%", "%", ".5%", "1.%", "0.00001%", "1e1%", "99999999999%"] {
            assert!(text.parse::<Loss>().is_err(), "{text:?} passed");
        }
    }

    #[test]
    fn a_black_hole_sits_wholly_at_the_near_port() {
        let hole = Impairment { black_hole: true, ..Impairment::default() };
        let state = LinkState { forward: hole, backward: hole, ..LinkState::default() };
        let near = near_rules(&state);
        assert_eq!((near.ingress.len(), near.egress.len()), (1, 1));
        assert_eq!(far_rules(&state), Rules::default());
    }
}
