//! Families of the registry as OTLP's metrics: counters and histograms with cumulative temporality and their start, labels as
//! attributes, units as UCUM has them.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric::Data,
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
    self as model, LabelPair, MetricFamily, MetricType,
};

use super::settings::attribute;

/// The name and the labels of a series.
type SeriesName = (String, Vec<(String, String)>);

/// The series of counters and histograms, as they were last sent: a number that falls began again.
#[derive(Debug)]
pub(super) struct Series {
    /// The start of series that are there from the beginning, ns since 1970; 0 if it is unknown.
    started: u64,
    /// The time of the last conversion.
    last: Option<u64>,
    /// The last count and the start of each.
    known: BTreeMap<SeriesName, (f64, u64)>,
}

impl Series {
    pub(super) const fn new(started: u64) -> Self {
        Self { started, last: None, known: BTreeMap::new() }
    }

    /// Returns the metrics of a registry at the time `now`, ns since 1970.
    pub(super) fn convert(&mut self, families: Vec<MetricFamily>, now: u64) -> Vec<Metric> {
        let mut pass = Pass { series: self, now, seen: BTreeMap::new() };
        let metrics = families.into_iter().filter_map(|family| pass.family(family)).collect();
        // A series that is gone and comes back begins again.
        let seen = pass.seen;
        (self.known, self.last) = (seen, Some(now));
        metrics
    }
}

/// One conversion.
struct Pass<'a> {
    series: &'a Series,
    now: u64,
    seen: BTreeMap<SeriesName, (f64, u64)>,
}

impl Pass<'_> {
    /// Returns a family as a metric, or `None` if it has no sample.
    fn family(&mut self, family: MetricFamily) -> Option<Metric> {
        let MetricFamily { name, help, r#type, metric: samples, unit } = family;
        if samples.is_empty() {
            return None;
        }
        let kind = MetricType::try_from(r#type).unwrap_or(MetricType::Untyped);
        // The name without what Prometheus appends to those of counters.
        let name = match kind {
            MetricType::Counter => name.trim_end_matches("_total").to_owned(),
            _ => name,
        };
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        let samples = samples.into_iter();
        let data = match kind {
            MetricType::Counter => {
                let data_points = samples.filter_map(|it| self.counter(&name, it)).collect();
                Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
            }
            MetricType::Histogram => {
                let data_points = samples.filter_map(|it| self.histogram(&name, it)).collect();
                Data::Histogram(Histogram { data_points, aggregation_temporality })
            }
            _ => Data::Gauge(Gauge {
                data_points: samples.filter_map(|it| self.gauge(it)).collect(),
            }),
        };
        let unit = unit_of(&name, &unit).to_owned();
        let description = help.trim_end_matches('.').to_owned();
        Some(Metric { name, description, unit, data: Some(data), ..Metric::default() })
    }

    fn counter(&mut self, name: &str, sample: model::Metric) -> Option<NumberDataPoint> {
        let total = sample.counter?.value;
        Some(NumberDataPoint {
            start_time_unix_nano: self.start_of(name, &sample.label, total),
            time_unix_nano: self.now,
            attributes: attributes(sample.label),
            value: Some(Number::AsDouble(total)),
            ..NumberDataPoint::default()
        })
    }

    fn gauge(&self, sample: model::Metric) -> Option<NumberDataPoint> {
        let untyped = sample.untyped.map(|it| it.value);
        let value = sample.gauge.map(|it| it.value).or(untyped)?;
        Some(NumberDataPoint {
            time_unix_nano: self.now,
            attributes: attributes(sample.label),
            value: Some(Number::AsDouble(value)),
            ..NumberDataPoint::default()
        })
    }

    fn histogram(&mut self, name: &str, sample: model::Metric) -> Option<HistogramDataPoint> {
        let model::Histogram { sample_count: count, sample_sum, bucket, .. } = sample.histogram?;
        // The last bucket of OTLP has no bound; here it is infinite, or missing.
        let bounded = bucket.iter().filter(|it| it.upper_bound.is_finite());
        let explicit_bounds = bounded.clone().map(|it| it.upper_bound).collect();
        let up_to = bounded.map(|it| it.cumulative_count).chain([count]);
        let mut before = 0;
        let of_bucket = |up_to: u64| up_to.saturating_sub(std::mem::replace(&mut before, up_to));
        let bucket_counts = up_to.map(of_bucket).collect();
        Some(HistogramDataPoint {
            start_time_unix_nano: self.start_of(name, &sample.label, float(count)),
            time_unix_nano: self.now,
            attributes: attributes(sample.label),
            count,
            sum: Some(sample_sum),
            bucket_counts,
            explicit_bounds,
            ..HistogramDataPoint::default()
        })
    }

    /// Returns the time since which a series counts.
    fn start_of(&mut self, name: &str, labels: &[LabelPair], total: f64) -> u64 {
        let labels = labels.iter().map(|it| (it.name.clone(), it.value.clone())).collect();
        let key = (name.to_owned(), labels);
        let start = match (self.series.known.get(&key), self.series.last) {
            (Some(&(before, start)), _) if total >= before => start,
            // It was not there at the last time, or began again since.
            (_, Some(last)) => last,
            (_, None) => self.series.started,
        };
        self.seen.insert(key, (total, start));
        start
    }
}

fn attributes(labels: Vec<LabelPair>) -> Vec<KeyValue> {
    let attribute = |it: LabelPair| attribute(&it.name, Value::StringValue(it.value));
    labels.into_iter().map(attribute).collect()
}

/// Returns the unit in UCUM's letters, by the family's unit or else by its name.
fn unit_of<'a>(name: &str, unit: &'a str) -> &'a str {
    let by_name = || {
        let ends = |end: &str| name.ends_with(end);
        if ends("_bytes") {
            "By"
        } else if ends("_seconds") {
            "s"
        } else {
            ""
        }
    };
    match unit {
        "" => by_name(),
        "bytes" => "By",
        "seconds" => "s",
        "ratios" => "1",
        other => other,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are compared, and rarely have 16 digits")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::histogram::Histogram as Distribution;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;
    use crate::openmetrics::{counters, gauges, messages};

    fn point(metric: &Metric) -> &NumberDataPoint {
        match metric.data.as_ref().unwrap() {
            Data::Sum(sum) => {
                assert!(sum.is_monotonic);
                assert_eq!(sum.aggregation_temporality, 2, "cumulative");
                &sum.data_points[0]
            }
            Data::Gauge(gauge) => &gauge.data_points[0],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kinds_labels_and_units_are_as_otlp_has_them() {
        let mut registry = Registry::with_prefix("weft");
        let labels = vec![("port", "web".to_owned())];
        counters(&mut registry, "frames", "Frames").get_or_create(&labels).inc_by(7);
        gauges(&mut registry, "held_bytes", "Held").get_or_create(&vec![]).set(0.5);
        gauges(&mut registry, "nothing", "Without a sample");
        let span = Distribution::new([0.1, 1.0]);
        [0.05, 0.5, 0.6, 7.0].into_iter().for_each(|value| span.observe(value));
        registry.register_with_unit("call", "Calls", Unit::Seconds, span);
        let metrics = Series::new(100).convert(messages(&registry), 900);
        let names: Vec<_> = metrics.iter().map(|it| (it.name.as_str(), it.unit.as_str())).collect();
        let expected = [("weft_frames", ""), ("weft_held_bytes", "By"), ("weft_call_seconds", "s")];
        assert_eq!(names, expected);
        assert_eq!(metrics[0].description, "Frames");

        let frames = point(&metrics[0]);
        assert_eq!((frames.start_time_unix_nano, frames.time_unix_nano), (100, 900));
        assert_eq!(frames.value, Some(Number::AsDouble(7.0)));
        let port = attribute("port", Value::StringValue("web".into()));
        assert_eq!(frames.attributes, [port]);
        assert_eq!(point(&metrics[1]).value, Some(Number::AsDouble(0.5)));
        let Some(Data::Histogram(calls)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        assert_eq!(calls.aggregation_temporality, 2, "cumulative");
        let calls = &calls.data_points[0];
        assert_eq!((calls.count, calls.start_time_unix_nano), (4, 100));
        assert!(calls.sum.is_some_and(|sum| (sum - 8.15).abs() < 1e-9), "{:?}", calls.sum);
        assert_eq!(
            (&calls.explicit_bounds[..], &calls.bucket_counts[..]),
            (&[0.1, 1.0][..], &[1, 2, 1][..])
        );
    }

    #[test]
    fn a_counter_that_falls_or_is_new_counts_since_the_last_export() {
        let convert = |series: &mut Series, counts: &[(&'static str, u64)], now| {
            let mut registry = Registry::default();
            let family = counters(&mut registry, "frames", "Frames");
            for (port, count) in counts {
                family.get_or_create(&vec![("port", (*port).to_owned())]).inc_by(*count);
            }
            let metrics = series.convert(messages(&registry), now);
            let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{metrics:?}") };
            let of = |port: &str| {
                let is_its = |it: &&NumberDataPoint| {
                    let value = it.attributes[0].value.clone().unwrap().value;
                    value == Some(Value::StringValue(port.to_owned()))
                };
                sum.data_points.iter().find(is_its).unwrap().start_time_unix_nano
            };
            counts.iter().map(|(port, _)| of(port)).collect::<Vec<_>>()
        };
        let mut series = Series::new(5);
        assert_eq!(convert(&mut series, &[("a", 10), ("b", 1)], 10), [5, 5]);
        assert_eq!(convert(&mut series, &[("a", 10), ("b", 2), ("c", 1)], 20), [5, 5, 10]);
        assert_eq!(convert(&mut series, &[("a", 3), ("c", 1)], 30), [20, 10], "a began again");
        assert_eq!(convert(&mut series, &[("a", 4), ("b", 9)], 40), [20, 30], "b came back");
    }
}
