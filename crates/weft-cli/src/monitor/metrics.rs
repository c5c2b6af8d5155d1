//! Reports as OpenMetrics, for Prometheus. Labels are hosts, programs and peers, never channels: there are thousands
//! of channels, and they come and go.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use weft_stat::{ContextRecord, Latencies};
use weft_units::Histogram;

use super::pings::Received;
use super::watch::Report;
use crate::openmetrics::Labels;
use crate::stat::{ChannelView, NetworkView, NodeView};

/// Returns all reports as families of metrics.
pub(crate) fn registry<'a>(
    reports: impl Iterator<Item = &'a Report>,
    silent: &[String],
    pings: Option<&Received>,
) -> Registry {
    let mut registry = Registry::default();
    let (reports, silent, pings) = (reports.cloned().collect(), silent.to_vec(), pings.cloned());
    registry.register_collector(Box::new(Reports { reports, silent, pings }));
    registry
}

#[derive(Debug)]
struct Reports {
    reports: Vec<Report>,
    /// Hosts that do not answer.
    silent: Vec<String>,
    /// The last matrix of `weft ping`.
    pings: Option<Received>,
}

impl Collector for Reports {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Families { encoder };
        self.hosts(&mut out)?;
        self.nodes(&mut out)?;
        self.channels(&mut out)?;
        self.totals(&mut out)?;
        self.calls(&mut out)?;
        self.traced(&mut out)?;
        self.ports(&mut out)?;
        self.pings(&mut out)?;
        self.devices(&mut out)
    }
}

/// Writes families, one after the other.
struct Families<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Families<'_> {
    fn family(
        &mut self,
        (name, help): (&str, &str),
        unit: Option<&Unit>,
        kind: MetricType,
        mut write: impl FnMut(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(&mut self.encoder.encode_descriptor(name, help, unit, kind)?)
    }

    fn gauges(
        &mut self,
        about: (&str, &str),
        unit: Option<&Unit>,
        samples: impl Iterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut samples = Some(samples);
        self.family(about, unit, MetricType::Gauge, |metric| {
            let mut samples = samples.take().into_iter().flatten();
            samples
                .try_for_each(|(labels, value)| metric.encode_family(&labels)?.encode_gauge(&value))
        })
    }

    fn counters(
        &mut self,
        about: (&str, &str),
        unit: Option<&Unit>,
        samples: impl Iterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut samples = Some(samples);
        self.family(about, unit, MetricType::Counter, |metric| {
            let mut samples = samples.take().into_iter().flatten();
            samples.try_for_each(|(labels, value)| {
                metric.encode_family(&labels)?.encode_counter::<Labels, _, u64>(&value, None)
            })
        })
    }
}

/// Returns the labels of a node.
fn of_node(report: &Report, node: &NodeView) -> Labels {
    of_program(&report.host, node.program.name.as_str(), node.program.pid)
}

fn of_program(host: &str, program: &str, pid: u64) -> Labels {
    vec![("host", host.into()), ("program", program.into()), ("pid", pid.to_string())]
}

fn with(mut labels: Labels, name: &'static str, value: impl ToString) -> Labels {
    labels.push((name, value.to_string()));
    labels
}

#[expect(clippy::cast_precision_loss, reason = "a gauge has no nineteen digits")]
const fn float(count: u64) -> f64 {
    count as f64
}

impl Reports {
    fn hosts(&self, out: &mut Families<'_>) -> fmt::Result {
        let up = self.reports.iter().map(|report| (vec![("host", report.host.clone())], 1.0));
        let down = self.silent.iter().map(|host| (vec![("host", host.clone())], 0.0));
        out.gauges(("weft_host_up", "1 if the host's agent answers"), None, up.chain(down))
    }

    fn each_node(&self) -> impl Iterator<Item = (Labels, &NodeView)> {
        self.reports.iter().flat_map(|report| {
            report.view.nodes.iter().map(move |node| (of_node(report, node), node))
        })
    }

    fn nodes(&self, out: &mut Families<'_>) -> fmt::Result {
        let info = self.each_node().map(|(labels, node)| {
            let program = &node.program;
            (with(with(labels, "address", program.address), "device", &program.device), 1.0)
        });
        out.gauges(("weft_node", "A program with a messaging node"), None, info)?;
        type Gauge = (&'static str, &'static str, fn(&ContextRecord) -> u64);
        let gauges: [Gauge; 3] = [
            ("weft_memory_registered", "Registered memory", |it| it.memory_registered),
            ("weft_memory_used", "Registered memory in use", |it| it.memory_used),
            ("weft_memory_limit", "Memory that may be registered", |it| it.memory_limit),
        ];
        for (name, help, value) in gauges {
            let samples =
                self.each_node().map(|(labels, node)| (labels, float(value(&node.context))));
            out.gauges((name, help), Some(&Unit::Bytes), samples)?;
        }
        let cached = self.each_node().map(|(labels, it)| (labels, float(it.context.qps_cached)));
        out.gauges(
            ("weft_queue_pairs_cached", "Queue pairs kept for the next channels"),
            None,
            cached,
        )?;
        let limits = self.each_node().flat_map(|(labels, node)| {
            let it = &node.context;
            let rows = [("send", it.sends_limit), ("read", it.reads_limit)];
            rows.map(|(of, limit)| (with(labels.clone(), "of", of), float(limit)))
        });
        let about = ("weft_flow_limit", "Bytes that may be in flight, by the flow control");
        out.gauges(about, Some(&Unit::Bytes), limits)?;
        let counters: [Gauge; 7] = [
            ("weft_channels_begun", "Channels that were opened", |it| it.channels_begun),
            ("weft_channels_closed", "Channels that ended", |it| it.channels_closed),
            ("weft_queue_pairs_created", "Queue pairs made", |it| it.qps_created),
            ("weft_queue_pairs_reused", "Queue pairs taken from the cache", |it| it.qps_reused),
            ("weft_slow_polls", "Polls later than polling_warn", |it| it.slow_polls),
            ("weft_slow_calls", "Calls longer than slow_threshold", |it| it.slow_calls),
            ("weft_slow_segments", "Operations longer than slow_threshold", |it| it.slow_segments),
        ];
        for (name, help, value) in counters {
            let samples = self.each_node().map(|(labels, node)| (labels, value(&node.context)));
            out.counters((name, help), None, samples)?;
        }
        Ok(())
    }

    /// Returns the channels of a program, grouped by peer.
    fn by_peer(&self) -> Vec<(Labels, Vec<&ChannelView>)> {
        let mut all = Vec::new();
        for (labels, node) in self.each_node() {
            let mut peers: BTreeMap<_, Vec<&ChannelView>> = BTreeMap::new();
            for channel in &node.channels {
                peers.entry(channel.record.peer).or_default().push(channel);
            }
            let named = peers.into_iter();
            all.extend(named.map(|(peer, of)| (with(labels.clone(), "peer", peer), of)));
        }
        all
    }

    fn channels(&self, out: &mut Families<'_>) -> fmt::Result {
        let groups = self.by_peer();
        let mut states = Vec::new();
        for (labels, channels) in &groups {
            let mut count: BTreeMap<String, u64> = BTreeMap::new();
            channels
                .iter()
                .for_each(|it| *count.entry(it.record.state.to_string()).or_default() += 1);
            let named = count.into_iter();
            states.extend(named.map(|(state, n)| (with(labels.clone(), "state", state), float(n))));
        }
        out.gauges(("weft_channels", "Channels, by state"), None, states.into_iter())?;
        type Gauge = (&'static str, &'static str, fn(&ChannelView) -> u64);
        let gauges: [Gauge; 4] = [
            ("weft_frames_in_flight", "Frames in flight", |it| it.record.in_flight),
            ("weft_messages_waiting", "Messages that wait for a window", |it| it.record.backlog),
            ("weft_calls_waiting", "Calls that wait for their response", |it| it.record.asked),
            ("weft_channels_on_tcp", "Channels on a TCP stream instead of RDMA", |it| {
                u64::from(it.record.carrier == weft_stat::Carrier::Stream)
            }),
        ];
        for (name, help, value) in gauges {
            let sum = |of: &[&ChannelView]| float(of.iter().map(|it| value(it)).sum());
            let samples = groups.iter().map(|(labels, of)| (labels.clone(), sum(of)));
            out.gauges((name, help), None, samples)?;
        }
        let round_trips =
            [("least", false), ("most", true)].into_iter().flat_map(|(which, most)| {
                groups.iter().filter_map(move |(labels, of)| {
                    let networks = of.iter().filter_map(|it| it.network.as_ref());
                    let nanos = round_trip(networks, most)?;
                    Some((with(labels.clone(), "of_paths", which), float(nanos) / 1e9))
                })
            });
        let about = ("weft_path_rtt", "Smoothed round trip of the fastest and the slowest path");
        out.gauges(about, Some(&Unit::Seconds), round_trips)
    }

    fn totals(&self, out: &mut Families<'_>) -> fmt::Result {
        let all = || {
            self.reports.iter().flat_map(|report| {
                report.totals.iter().map(|total| {
                    let labels = of_program(&report.host, &total.program, total.pid);
                    (with(labels, "peer", total.peer), &total.counts)
                })
            })
        };
        out.counters(
            ("weft_messages_sent", "Messages sent"),
            None,
            all().map(|(l, of)| (l, of.sent)),
        )?;
        let received = all().map(|(labels, of)| (labels, of.received));
        out.counters(("weft_messages_received", "Messages received"), None, received)?;
        let sent = all().map(|(labels, of)| (labels, of.sent_bytes));
        out.counters(("weft_sent", "Bytes of messages sent"), Some(&Unit::Bytes), sent)?;
        let received = all().map(|(labels, of)| (labels, of.received_bytes));
        out.counters(("weft_received", "Bytes of messages received"), Some(&Unit::Bytes), received)
    }

    fn calls(&self, out: &mut Families<'_>) -> fmt::Result {
        let about = ("weft_call", "Time of answered calls");
        out.family(about, Some(&Unit::Seconds), MetricType::Histogram, |metric| {
            for report in &self.reports {
                for total in &report.totals {
                    let labels = of_program(&report.host, &total.program, total.pid);
                    let labels = with(labels, "peer", total.peer);
                    let counts = &total.counts;
                    encode_histogram(metric, &labels, &counts.calls, counts.call_time)?;
                }
            }
            Ok(())
        })
    }

    /// Writes the parts of traced calls' times.
    fn traced(&self, out: &mut Families<'_>) -> fmt::Result {
        let about = ("weft_traced_call", "Time of traced calls, by part");
        out.family(about, Some(&Unit::Seconds), MetricType::Histogram, |metric| {
            for (labels, node) in self.each_node() {
                let it = &node.context;
                for (part, times, sum) in [
                    ("request", &it.requests, it.request_time),
                    ("peer", &it.peers, it.peer_time),
                    ("response", &it.responses, it.response_time),
                ] {
                    encode_histogram(metric, &with(labels.clone(), "part", part), times, sum)?;
                }
            }
            Ok(())
        })
    }

    fn ports(&self, out: &mut Families<'_>) -> fmt::Result {
        let all = self.reports.iter().flat_map(|report| {
            report.ports.iter().flat_map(move |port| {
                port.counters.iter().map(move |counter| {
                    let labels = vec![
                        ("host", report.host.clone()),
                        ("port", port.name.clone()),
                        ("kind", counter.kind.name().to_owned()),
                        ("counter", counter.name.clone()),
                    ];
                    (labels, counter.count)
                })
            })
        });
        let about =
            "Pauses, congestion notifications, marks and drops of ports, by the driver's name";
        out.counters(("weft_port_congestion", about), None, all)
    }

    fn pings(&self, out: &mut Families<'_>) -> fmt::Result {
        let all = || {
            let pairs = self.pings.iter().flat_map(|received| &received.report.pairs);
            pairs.map(|pair| (vec![("from", pair.from.clone()), ("to", pair.to.clone())], pair))
        };
        let round_trips = all().flat_map(|(labels, pair)| {
            let quantiles = pair.round_trip_us.map(|of| [("0.5", of.p50), ("0.99", of.p99)]);
            let seconds = quantiles.into_iter().flatten();
            seconds.map(move |(which, us)| (with(labels.clone(), "quantile", which), us / 1e6))
        });
        let about = ("weft_ping", "Round trip of the last matrix of `weft ping`");
        out.gauges(about, Some(&Unit::Seconds), round_trips)?;
        let lost = all().map(|(labels, pair)| (labels, pair.loss));
        out.gauges(
            ("weft_ping_loss", "Share of its pings that were lost"),
            Some(&Unit::Ratios),
            lost,
        )
    }

    fn devices(&self, out: &mut Families<'_>) -> fmt::Result {
        let all = || {
            self.reports.iter().flat_map(|report| {
                report.view.devices.iter().map(|device| {
                    let program = &device.program;
                    let labels = of_program(&report.host, program.name.as_str(), program.pid);
                    (labels, &device.device)
                })
            })
        };
        let sent = all().map(|(labels, of)| (labels, of.data_sent));
        out.counters(
            ("weft_packets_sent", "Data packets of Weft's device, retransmissions included"),
            None,
            sent,
        )?;
        let retransmits = all().flat_map(|(labels, of)| {
            let causes = [
                ("overtaken", of.fast_retransmits),
                ("timeout", of.timeout_retransmits),
                ("tail_probe", of.tail_loss_probes),
            ];
            causes.map(|(cause, count)| (with(labels.clone(), "cause", cause), count))
        });
        out.counters(
            ("weft_retransmits", "Data packets retransmitted, by reason"),
            None,
            retransmits,
        )?;
        let sealed = all().map(|(labels, of)| (labels, of.sealed));
        out.counters(("weft_packets_sealed", "Packets encrypted"), None, sealed)?;
        let not_opened = all().map(|(labels, of)| (labels, of.not_opened));
        let about = "Packets not opened: forged, changed, received before, or in the clear where that may not be";
        out.counters(("weft_packets_not_opened", about), None, not_opened)?;
        let not_admitted = all().map(|(labels, of)| (labels, of.not_admitted));
        let about = "Connections refused because they had no encryption or the wrong key";
        out.counters(("weft_connections_not_admitted", about), None, not_admitted)?;
        let connections = all().flat_map(|(labels, of)| {
            let kinds = [("yes", of.encrypted), ("no", of.in_the_clear)];
            kinds.map(|(kind, count)| (with(labels.clone(), "encrypted", kind), float(count)))
        });
        let about =
            ("weft_connections", "Connections over the network, and whether they are encrypted");
        out.gauges(about, None, connections)?;
        let down = all().map(|(labels, of)| (labels, of.paths_down));
        out.counters(("weft_paths_down", "Times a path went down"), None, down)
    }
}

/// Writes a distribution, whose sum is in ns.
fn encode_histogram(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    times: &Latencies,
    sum: u64,
) -> fmt::Result {
    let end =
        |bucket| Histogram::upper(bucket).map_or(f64::INFINITY, |end| float(end.as_nanos()) / 1e9);
    let counts = times.counts();
    let buckets: Vec<(f64, u64)> =
        counts.iter().enumerate().map(|(at, count)| (end(at), *count)).collect();
    let mut metric = metric.encode_family(labels)?;
    metric.encode_histogram::<Labels>(float(sum) / 1e9, times.total(), &buckets, None)
}

/// Returns the shortest or the longest round-trip time of all paths, ns.
fn round_trip<'a>(networks: impl Iterator<Item = &'a NetworkView>, most: bool) -> Option<u64> {
    if most {
        networks.filter_map(|it| it.rtt_max).max()
    } else {
        networks.filter_map(|it| it.rtt_min).min()
    }
}
