//! Slow motion: the same scenario at rates that a slower machine can carry.
//!
//! Every time is multiplied and every rate divided by one factor, and sizes stay, so that every ratio of the network
//! stays: bytes in flight, queues, and completion times over those of an empty network (time dilation: Gupta et al.,
//! NSDI 2006).

use toml::{Table, Value};
use weft_units::{BitRate, ByteCount, Duration};

use super::{Scenario, ScenarioError};

/// The keys of free text, where a value that looks like a quantity is not one.
const TEXT_KEYS: [&str; 3] = ["name", "about", "file"];

/// The depths that are given for a port of 100 Gb/s: times, written as bytes.
const DEPTH_KEYS: [&str; 2] = ["ecn_min", "ecn_max"];

impl Scenario {
    /// Returns this scenario, `factor` times slower.
    ///
    /// # Errors
    /// The topology, from which defaults derive, cannot be built; or a value leaves its range.
    pub fn slowed(&self, factor: u32) -> Result<Self, ScenarioError> {
        let text = self.expanded()?;
        let mut table: Table = toml::from_str(&text).expect("an expanded scenario is TOML");
        // Variants change the scenario as it was written.
        table.remove("variant");
        slow_table(&mut table, factor.max(1).into());
        if let Some(queue) = table.get_mut("queue").and_then(Value::as_table_mut) {
            for (_, depth) in queue.iter_mut().filter(|(key, _)| DEPTH_KEYS.contains(&key.as_str()))
            {
                scale_depth(depth, factor.max(1).into());
            }
        }
        Self::from_table(table, &self.folder)
            .map_err(|error| ScenarioError::new(format_args!("{factor} times slower: {error}")))
    }
}

fn slow_table(table: &mut Table, factor: u64) {
    for (_, value) in table.iter_mut().filter(|(key, _)| !TEXT_KEYS.contains(&key.as_str())) {
        slow(value, factor);
    }
}

/// Multiplies times by `factor` and divides rates by it, in a value and all values in it.
fn slow(value: &mut Value, factor: u64) {
    match value {
        Value::Table(inner) => slow_table(inner, factor),
        Value::Array(items) => items.iter_mut().for_each(|item| slow(item, factor)),
        Value::String(text) => {
            if let Ok(span) = text.parse::<Duration>() {
                *text = Duration::from_nanos(span.as_nanos().saturating_mul(factor)).to_string();
            } else if let Ok(rate) = text.parse::<BitRate>() {
                let slowed = BitRate::bps((rate.as_bps() / factor).max(1)).expect("at least one");
                *text = slowed.to_string();
            }
        }
        _ => {}
    }
}

fn scale_depth(depth: &mut Value, factor: u64) {
    let bytes = depth.as_str().and_then(|text| text.parse::<ByteCount>().ok());
    if let Some(ByteCount(bytes)) = bytes {
        *depth = ByteCount(bytes.saturating_mul(factor)).to_string().into();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use super::*;

    const SCENARIO: &str = r#"
        name = "10Gbps of words"
        topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2, uplink_rates = ["40Gbps", "10Gbps"] }
        transport = { profile = "hopper", retransmission = { rto_min = "2ms" } }
        run = { limit = "20ms" }

        [[workload]]
        kind = "pairs"
        pairs = [[0, 2], [1, 3]]
        connections = 4
        size = "2MB"
        start = "3us"
    "#;

    fn scenario() -> Scenario {
        Scenario::parse(SCENARIO, Path::new("")).unwrap()
    }

    #[test]
    fn times_grow_rates_shrink_and_sizes_stay() {
        let slowed = scenario().slowed(100).unwrap();
        assert_eq!(slowed.name, "10Gbps of words");
        assert_eq!(slowed.run.limit, Duration::from_secs(2));
        assert_eq!(slowed.queue.limit, scenario().queue.limit);
        assert_eq!(slowed.queue.ecn_min, ByteCount(100 * scenario().queue.ecn_min.0));
        let topology = slowed.build_topology().unwrap();
        let (fast, slow) = (scenario().build_topology().unwrap(), topology);
        for link in fast.link_ids() {
            assert_eq!(fast.link(link).rate.as_bps(), 100 * slow.link(link).rate.as_bps());
        }
        let transport = |scenario: &Scenario, topology| scenario.transport.resolve(topology);
        let (was, is) = (transport(&scenario(), &fast), transport(&slowed, &slow));
        let (was, is) = (was.unwrap(), is.unwrap());
        assert_eq!(is.bdp(), was.bdp());
        assert_eq!((is.mtu, is.base_rtt), (was.mtu, was.base_rtt * 100));
        assert_eq!(is.retransmission.rto_min, Duration::from_millis(200));
    }

    #[test]
    fn slowdowns_of_flows_stay_the_same() {
        // With one path per flow the result does not depend on the policy's choice of paths.
        let one_path = SCENARIO.replace("\"hopper\"", "\"irn\"");
        let scenario = Scenario::parse(&one_path, Path::new("")).unwrap();
        let mean = |scenario: &Scenario| {
            let runs = (1..=4).map(|seed| crate::run(scenario, Seed(seed)).unwrap());
            runs.map(|report| report.workloads[0].flows.slowdown.mean).sum::<f64>() / 4.0
        };
        let (was, is) = (mean(&scenario), mean(&scenario.slowed(100).unwrap()));
        assert!(was > 2.0 && (is / was - 1.0).abs() < 0.05, "{was} became {is}");
    }

    #[test]
    fn a_time_that_leaves_its_range_is_named() {
        let error = scenario().slowed(1000).unwrap_err().to_string();
        assert!(error.contains("1000 times slower") && error.contains("rto_min"), "{error}");
    }
}
