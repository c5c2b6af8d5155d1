//! Flows that arrive at random between random hosts, at a given load: the traffic of the published comparisons of load
//! balancers.
//!
//! Each host opens flows with exponentially distributed gaps, each to another host drawn uniformly, of sizes drawn
//! from a distribution. The mean gap is the one at which the flows' payload, without headers, fills the given share of
//! the host's ports: `mean size / (load × rate)`. The traffic generator of HPCC's and ConWeave's simulators has the
//! same definition. ConWeave's scripts then name the load by the leaves' uplinks: on a fabric oversubscribed 2:1,
//! their 50 % is 25 % of the host links; `load_of = "uplinks"` selects this.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, NodeId, Topology};
use weft_units::{Duration, Rng};

use super::sizes::Sizes;
use super::{Connections, Flow, Flows, HostSet, Setting, Workload, WorkloadBuilder, WorkloadError};
use crate::time::SimTime;

/// The settings of the `poisson` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The hosts that send and receive.
    pub hosts: HostSet,
    /// The flow sizes: a published distribution, a distribution's file, or one size for all.
    pub sizes: String,
    /// Share of the links to fill with payload, above 0 and at most 1.
    pub load: f64,
    /// The links that `load` is a share of.
    pub load_of: LoadOf,
    /// The start of arrivals, from the start of the run.
    pub start: Duration,
    /// The duration of arrivals.
    pub duration: Duration,
    /// The flows that share a connection.
    pub connections: Connections,
}

impl Default for Config {
    /// Returns 3 ms at half load, as long as the reference results of ns-3 (`docs/scenarios.md`).
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            sizes: "ali-storage".into(),
            load: 0.5,
            load_of: LoadOf::HostLinks,
            start: Duration::ZERO,
            duration: Duration::from_millis(3),
            connections: Connections::PerFlow,
        }
    }
}

/// The links that a load is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoadOf {
    /// The links of each host.
    #[default]
    HostLinks,
    /// The links from the leaves up, as if all traffic left its leaf.
    Uplinks,
}

/// Maximum number of flows; more indicate a mistake in the duration or the sizes.
const MAX_FLOWS: f64 = 50e6;

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        Ok(Box::new(Flows::over(self.connections, self.flows(setting)?)))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (key, got, expected) = ("load", self.load.to_string(), "above 0 and at most 1");
        let fits = self.load > 0.0 && self.load <= 1.0;
        if fits { Ok(()) } else { Err(WorkloadError::OutOfRange { key, got, expected }) }
    }
}

impl Config {
    /// Returns every arrival, host by host.
    ///
    /// # Errors
    /// The errors of [`WorkloadBuilder::build`].
    pub fn flows(&self, setting: &Setting<'_>) -> Result<Vec<Flow>, WorkloadError> {
        let Setting { topology, seed, folder } = *setting;
        let hosts = self.hosts.resolve(topology.hosts(), 2)?;
        let sizes = Sizes::find(&self.sizes, folder)?;
        let load = self.load_of_hosts(topology)?;
        let gap = |host: NodeId| {
            let rate: f64 = topology.ports(host).iter().map(|&port| bps(topology, port)).sum();
            sizes.mean() * 8.0 / (load * rate) * 1e12
        };
        self.check_count(hosts.iter().map(|&host| picos(self.duration) / gap(host)).sum())?;
        let mut flows = Vec::new();
        for (index, &source) in hosts.iter().enumerate() {
            let mut rng = seed.child("arrivals", u64::from(source.0)).rng();
            let mut at = exponential(&mut rng, gap(source));
            while at < picos(self.duration) {
                let other = (index + 1 + rng.index(hosts.len() - 1)) % hosts.len();
                let (destination, length) = (hosts[other], sizes.draw(&mut rng));
                let start = to_time(picos(self.start) + at);
                flows.push(Flow { source, destination, length, start });
                at += exponential(&mut rng, gap(source));
            }
        }
        Ok(flows)
    }

    /// Returns the load as a share of the host links.
    fn load_of_hosts(&self, topology: &Topology) -> Result<f64, WorkloadError> {
        self.check()?;
        if self.load_of == LoadOf::HostLinks {
            return Ok(self.load);
        }
        let load = self.load * uplinks_per_host_link(topology);
        if !(load > 0.0 && load <= 1.0) {
            let got = format!("{} of the uplinks, {load:.3} of the host links", self.load);
            let (key, expected) = ("load", "above 0 and at most 1 of both");
            return Err(WorkloadError::OutOfRange { key, got, expected });
        }
        Ok(load)
    }

    /// Checks the expected number of flows.
    fn check_count(&self, flows: f64) -> Result<(), WorkloadError> {
        let (key, expected) = ("duration", "one with at most 50 million flows");
        let got = format!("{}, with {flows:.0} flows at this load", self.duration);
        let fits = flows <= MAX_FLOWS;
        if fits { Ok(()) } else { Err(WorkloadError::OutOfRange { key, got, expected }) }
    }
}

/// Returns the rate of all links from the leaves up, divided by that of all host links.
fn uplinks_per_host_link(topology: &Topology) -> f64 {
    let leaves = topology.switch_ids().filter(|&switch| topology.tier(switch) == 1);
    let up = |leaf: NodeId| {
        let ports = topology.ports(leaf).iter().copied();
        ports.filter(move |&port| topology.tier(topology.link(port).to) > topology.tier(leaf))
    };
    let uplinks: f64 = leaves.flat_map(up).map(|port| bps(topology, port)).sum();
    let host_ports = topology.host_ids().flat_map(|host| topology.ports(host).iter().copied());
    uplinks / host_ports.map(|port| bps(topology, port)).sum::<f64>()
}

#[expect(clippy::cast_precision_loss, reason = "a rate of at most terabits")]
fn bps(topology: &Topology, port: LinkId) -> f64 {
    topology.link(port).rate.as_bps() as f64
}

#[expect(clippy::cast_precision_loss, reason = "a time of at most days")]
fn picos(time: Duration) -> f64 {
    time.as_nanos() as f64 * 1e3
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
fn to_time(picos: f64) -> SimTime {
    SimTime::from_picos(picos as u64)
}

/// Returns a random gap with this mean. The logarithm is `libm`'s, so that every machine draws the same.
pub(super) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -libm::log(1.0 - rng.unit()) * mean
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_topo::build::LeafSpine;
    use weft_units::Seed;

    use super::*;

    fn flows(config: &Config) -> Result<Vec<Flow>, String> {
        let topology = LeafSpine::default().build().unwrap();
        let setting = Setting { topology: &topology, seed: Seed(1), folder: Path::new("") };
        config.flows(&setting).map_err(|error| error.to_string())
    }

    /// Returns the offered payload, as a share of the 128 host links of 100 Gb/s.
    fn offered(config: &Config) -> f64 {
        let bytes: f64 = flows(config).unwrap().iter().map(|flow| f64::from(flow.length)).sum();
        bytes * 8.0 / (128.0 * 100e9 * picos(config.duration) / 1e12)
    }

    #[test]
    fn the_offered_load_is_the_configured_one() {
        let duration = Duration::from_millis(30);
        for (sizes, load) in [("ali-storage", 0.25), ("google-rpc", 0.05), ("64KB", 0.8)] {
            let got = offered(&Config { sizes: sizes.into(), load, duration, ..Config::default() });
            assert!((got / load - 1.0).abs() < 0.02, "{sizes}: {got} for {load}");
        }
        // Half of the uplinks is a quarter of the host links where 16 hosts share 8 uplinks.
        let load_of = LoadOf::Uplinks;
        let got = offered(&Config { load_of, duration, ..Config::default() });
        assert!((got / 0.25 - 1.0).abs() < 0.02, "{got}");
    }

    #[test]
    fn three_milliseconds_at_a_quarter_have_as_many_flows_as_the_reference_trace() {
        // 29,198 flows with a mean of 42.2 KB.
        let flows = flows(&Config { load: 0.25, ..Config::default() }).unwrap();
        assert!((flows.len() as f64 / 29_198.0 - 1.0).abs() < 0.02, "{}", flows.len());
    }

    #[test]
    fn gaps_are_exponential_and_destinations_even() {
        let sizes = "10KB".into();
        let flows = flows(&Config { sizes, ..Config::default() }).unwrap();
        let starts = flows.iter().filter(|flow| flow.source == NodeId(7));
        let starts: Vec<f64> = starts.map(|flow| flow.start.as_picos() as f64).collect();
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // 80,000 bits at 50 Gb/s; the standard deviation of an exponential is its mean.
        assert!((mean / 1.6e6 - 1.0).abs() < 0.06, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.06, "{}", variance.sqrt() / mean);
        let to = |host: u32| flows.iter().filter(|flow| flow.destination == NodeId(host)).count();
        let (min, max) = ((0..128).map(to).min().unwrap(), (0..128).map(to).max().unwrap());
        assert!(min > 1600 && max < 2150, "{min} to {max}");
        assert!(flows.iter().all(|flow| flow.source != flow.destination));
    }

    #[test]
    fn without_one_host_the_others_send_at_the_same_times() {
        let starts = |hosts: &str| {
            let hosts = hosts.parse().unwrap();
            let flows = flows(&Config { hosts, sizes: "1MB".into(), ..Config::default() }).unwrap();
            let of_host = flows.iter().filter(|flow| flow.source == NodeId(3));
            of_host.map(|flow| flow.start).collect::<Vec<_>>()
        };
        assert_eq!(starts("0..8"), starts("0..7"));
    }

    #[test]
    fn impossible_loads_and_endless_lists_are_refused() {
        for (load, load_of, want) in [
            (0.0, LoadOf::HostLinks, "load is 0, expected above 0 and at most 1"),
            (1.01, LoadOf::HostLinks, "load is 1.01, expected above 0 and at most 1"),
            (f64::NAN, LoadOf::HostLinks, "load is NaN, expected above 0 and at most 1"),
            (-0.5, LoadOf::Uplinks, "load is -0.5, expected above 0 and at most 1"),
        ] {
            assert_eq!(flows(&Config { load, load_of, ..Config::default() }).unwrap_err(), want);
        }
        let (sizes, duration) = ("1B".into(), Duration::from_secs(60));
        let error = flows(&Config { sizes, duration, ..Config::default() }).unwrap_err();
        assert!(error.starts_with("duration is 60s, with 48000000000000 flows"), "{error}");
        let hosts = "0..129".parse().unwrap();
        let error = flows(&Config { hosts, ..Config::default() }).unwrap_err();
        assert_eq!(error, "host 128 does not exist; hosts are 0..128");
    }
}
