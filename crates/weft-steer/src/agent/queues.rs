//! The marks that the queues of interfaces have made, as the kernel's queueing disciplines count them (`tc`).
//!
//! A discipline that marks counts the packets that it marked itself, so no mark of another router is among them. It counts
//! a packet also if that one arrived marked and it would have marked it: its queue is congested either way. An interface
//! whose disciplines count no marks, such as `pfifo` or `tbf` alone, has none here: its marks may be made elsewhere, by
//! hardware or packet filters.

use std::collections::BTreeMap;

use serde::Deserialize;
use weft_wire::sflow::QueueMarks;

use super::iproute;
use crate::SteerError;

/// An entry of `tc -s -j qdisc show`: a queueing discipline of an interface.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Discipline {
    dev: String,
    #[serde(flatten)]
    counts: Counts,
    /// The queues of `cake`, by priority.
    tins: Vec<Counts>,
}

/// The counters of marks that disciplines print; each has those that apply to it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Counts {
    /// Of `red`, `choke` and `sfb`.
    marked: Option<u64>,
    /// Of `codel`, `fq_codel`, `pie`, `fq_pie`, `cake` and, with a hyphen, `dualpi2`.
    #[serde(alias = "ecn-mark")]
    ecn_mark: Option<u64>,
    /// Of `codel`, `fq_codel` and `fq` with `ce_threshold`, if there are any. A packet that `codel` marks by both rules is in
    /// both counters.
    ce_mark: Option<u64>,
}

impl Counts {
    /// Returns the number of marks modulo 2^64; `None` if the discipline counts none.
    fn marked(&self) -> Option<u64> {
        let all = [self.marked, self.ecn_mark, self.ce_mark];
        all.into_iter().flatten().reduce(u64::wrapping_add)
    }
}

/// Reads the marks of this thread's namespace, by the interface's name.
///
/// # Errors
/// Returns `Io` if `tc` cannot be run, `Answer` if it fails or prints other JSON.
pub(super) fn read() -> Result<BTreeMap<String, QueueMarks>, SteerError> {
    iproute::show("tc", &["-s", "-j", "qdisc", "show"], "`tc -s -j qdisc show`").map(sum)
}

/// Sums the marks of each interface's disciplines.
#[expect(
    clippy::cast_possible_truncation,
    reason = "most disciplines count modulo 2^32, so the sum is known modulo 2^32 only"
)]
fn sum(disciplines: Vec<Discipline>) -> BTreeMap<String, QueueMarks> {
    let mut sums: BTreeMap<String, QueueMarks> = BTreeMap::new();
    for Discipline { dev, counts, tins } in disciplines {
        for marked in tins.iter().chain([&counts]).filter_map(Counts::marked) {
            let sum = sums.entry(dev.clone()).or_default();
            sum.marked = sum.marked.wrapping_add(marked as u32);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of iproute2 6.1 without some of its keys: `red` below a rate limit, a queue per processor, `cake` with two
    /// priorities, and interfaces whose queues count no marks. Newer versions know `dualpi2`.
    const SHOWN: &str = r#"[
        {"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{},"bytes":0,"packets":0,"drops":0},
        {"kind":"pfifo_fast","handle":"0:","dev":"s4","root":true,"refcnt":2,"options":{"bands":3},"bytes":9,"packets":1},
        {"kind":"tbf","handle":"1:","dev":"s0","root":true,"refcnt":2,"options":{"rate":2500000,"burst":15000},"bytes":86},
        {"kind":"red","handle":"10:","dev":"s0","parent":"1:1","options":{"limit":16000000,"min":15000,"max":45000,"ecn":true},
            "bytes":86,"packets":1,"drops":0,"marked":12,"early":3,"pdrop":0,"other":0},
        {"kind":"mq","handle":"0:","dev":"s1","root":true,"options":{},"bytes":0},
        {"kind":"fq_codel","handle":"0:","dev":"s1","parent":":2","options":{"ecn":true},"drops":4,"ecn_mark":4294967295},
        {"kind":"fq_codel","handle":"0:","dev":"s1","parent":":1","options":{"ecn":true},"ecn_mark":3,"ce_mark":5},
        {"kind":"cake","handle":"1:","dev":"s2","root":true,"options":{"bandwidth":2500000},
            "tins":[{"drops":7,"ecn_mark":1,"ack_drops":0},{"drops":0,"ecn_mark":20,"ack_drops":0}]},
        {"kind":"dualpi2","handle":"1:","dev":"s3","root":true,"ecn-mark":6,"step-mark":2},
        {}
    ]"#;

    #[test]
    fn the_marks_of_an_interfaces_queues_are_summed_modulo_2_to_32() {
        let marks = sum(serde_json::from_str(SHOWN).unwrap());
        let of = |(dev, marked): (&str, u32)| (dev.to_owned(), QueueMarks { marked });
        assert_eq!(marks, [("s0", 12), ("s1", 7), ("s2", 21), ("s3", 6)].map(of).into());
    }
}
