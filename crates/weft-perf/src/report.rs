//! The results of a measurement, as plain data.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use weft_transport::{ConnectionId, DropReason, Stats};
use weft_udp::sockets::{PathCount, SendCounters};
use weft_udp::{Agent, ReceiveCounters, cipher_name};

use crate::{Plan, Series};

/// A distribution of times, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyMicros {
    /// Number of measured times.
    pub count: u64,
    /// The shortest time.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The longest time.
    pub max: f64,
}

impl LatencyMicros {
    /// Returns the distribution of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "printed, not computed with")]
        let micros = |nanos: u64| nanos as f64 / 1e3;
        Self {
            count: histogram.len(),
            min: micros(histogram.min()),
            mean: histogram.mean() / 1e3,
            p50: micros(histogram.value_at_quantile(0.5)),
            p90: micros(histogram.value_at_quantile(0.9)),
            p99: micros(histogram.value_at_quantile(0.99)),
            p999: micros(histogram.value_at_quantile(0.999)),
            max: micros(histogram.max()),
        }
    }
}

/// Returns a histogram of latencies: nanoseconds up to a minute, with three significant digits.
#[expect(clippy::missing_panics_doc, reason = "the bounds are constant")]
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant and valid bounds")
}

/// The counters of one end: its engine, its sockets, and each path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportCounters {
    /// The engine's counters, each under its key; its refused packets are in `dropped`.
    #[serde(flatten)]
    pub engine: Stats,
    /// Packets refused, by reason, without reasons that have none. The simulator's report has the key `refused`.
    #[serde(alias = "refused")]
    pub dropped: BTreeMap<String, u64>,
    /// Datagrams and bytes of each path, by its index.
    pub paths: Vec<PathCount>,
    /// Counters of the batches that the sockets sent.
    pub sockets: SendCounters,
    /// Packets sealed, opened and refused, by kind, without kinds that have none.
    #[serde(default)]
    pub sealing: BTreeMap<String, u64>,
}

impl TransportCounters {
    /// Returns the current counters of an agent.
    pub fn of(agent: &mut Agent) -> Self {
        let counters = agent.counters();
        let (sockets, paths) = {
            let outbox = &agent.sockets().outbox;
            (outbox.counters(), outbox.paths().to_vec())
        };
        let sealing = agent.seals().counters();
        let sealing = sealing.rows().filter(|(_, count)| *count > 0);
        let sealing = sealing.map(|(name, count)| (name.to_owned(), count)).collect();
        Self { sockets, paths, sealing, ..Self::of_engine(agent.endpoint().stats(), counters) }
    }

    pub(super) fn of_engine(stats: &Stats, agent: ReceiveCounters) -> Self {
        let mut dropped: BTreeMap<_, _> = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name().to_owned(), stats.dropped_for(reason)))
            .collect();
        // The agent finds malformed bytes before the engine receives them.
        *dropped.entry(DropReason::Malformed.name().to_owned()).or_default() += agent.malformed;
        dropped.retain(|_, &mut count| count > 0);
        Self { engine: stats.clone(), dropped, ..Self::default() }
    }
}

/// A server's counts of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Messages received whole.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages with wrong bytes; zero unless the plan requires verification.
    pub corrupt: u64,
    /// Bytes placed, by interval.
    pub placed: Series,
    /// The server's counters, of all its connections.
    pub transport: TransportCounters,
}

/// The encryption of a measurement's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    /// Number of connections that were encrypted.
    pub connections: u32,
    /// The cipher of this end; `None` if no connection was encrypted.
    pub cipher: Option<String>,
    /// The server's public key; `None` if no connection was encrypted.
    pub peer: Option<String>,
}

impl Encryption {
    /// Returns the encryption of these connections of an agent.
    pub fn of(agent: &Agent, connections: impl Iterator<Item = ConnectionId>) -> Self {
        let seals = agent.seals();
        let peers: Vec<_> = connections.filter_map(|connection| seals.peer(connection)).collect();
        let cipher = cipher_name(seals.config().cipher);
        Self {
            connections: u32::try_from(peers.len()).expect("as many as were asked for"),
            cipher: (!peers.is_empty()).then(|| cipher.to_owned()),
            peer: peers.first().map(ToString::to_string),
        }
    }
}

/// A finished measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The plan of each connection.
    pub plan: Plan,
    /// Number of connections.
    pub connections: u32,
    /// Number of paths of each connection.
    pub paths: u16,
    /// The name of the path policy.
    pub policy: String,
    /// Name of the congestion control.
    pub congestion: String,
    /// The encryption of the connections.
    #[serde(default)]
    pub encryption: Encryption,
    /// Time from the first message until all were acknowledged or answered, seconds.
    pub seconds: f64,
    /// Messages that were acknowledged or, with replies, answered.
    pub messages: u64,
    /// Messages per second.
    pub messages_per_second: f64,
    /// Payload rate of messages in one direction, bits per second.
    pub goodput_bps: f64,
    /// Time from a message's submission until it was answered; in a throughput test, until it was acknowledged.
    pub latency_us: LatencyMicros,
    /// Messages with wrong bytes at either end; zero without verification.
    pub corrupt: u64,
    /// Bytes that the server placed, by interval, of all connections.
    pub placed: Series,
    /// This end's counters.
    pub client: TransportCounters,
    /// The other end's counters; they include other clients of the same server.
    pub server: TransportCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_keep_their_keys_and_those_of_another_version_are_read() {
        let stats = Stats { data_sent: 3, ecn_marks_reported: 2, ..Stats::default() };
        let own = TransportCounters::of_engine(
            &stats,
            ReceiveCounters { malformed: 1, ..ReceiveCounters::default() },
        );
        let mut json = serde_json::to_value(&own).unwrap();
        assert_eq!((&json["data_sent"], &json["ecn_marks_reported"]), (&3.into(), &2.into()));
        assert_eq!(json["dropped"]["malformed"], 1);
        // Another version may lack the counter `shed` and have the other key of `dropped`.
        let fields = json.as_object_mut().unwrap();
        fields.remove("shed").unwrap();
        let dropped = fields.remove("dropped").unwrap();
        fields.insert("refused".into(), dropped);
        assert_eq!(serde_json::from_value::<TransportCounters>(json).unwrap(), own);
    }
}
