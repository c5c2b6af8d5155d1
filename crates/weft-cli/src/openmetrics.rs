//! Families of counters and gauges by labels, for daemons' metrics.

use prometheus_client::encoding::prometheus_protobuf::{self, prometheus_data_model::MetricFamily};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub(crate) type Labels = Vec<(&'static str, String)>;
pub(crate) type Counters = Family<Labels, Counter>;
pub(crate) type Gauges = Family<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>;

/// Registers a family of counters, and returns it.
pub(crate) fn counters(registry: &mut Registry, name: &str, help: &str) -> Counters {
    let family = Counters::default();
    registry.register(name, help, family.clone());
    family
}

/// Registers a family of gauges, and returns it.
pub(crate) fn gauges(registry: &mut Registry, name: &str, help: &str) -> Gauges {
    let family = Gauges::default();
    registry.register(name, help, family.clone());
    family
}

/// Returns all registered families as one text.
pub(crate) fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).expect("writing to a string cannot fail");
    text
}

/// Returns all registered families as messages.
pub(crate) fn messages(registry: &Registry) -> Vec<MetricFamily> {
    prometheus_protobuf::encode(registry).expect("every value has a place in a message")
}
