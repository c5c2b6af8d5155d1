//! The export of ports' flow logs to a collector: the daemon takes the threads' records once a second (`take.rs`) and
//! sends them as IPFIX over UDP (`ipfix.rs`), from one socket (`exporter.rs`), so that a host is one exporter with one
//! sequence.

mod exporter;
mod ipfix;
mod settings;
mod take;

pub(crate) use exporter::FlowExporter;
pub use exporter::FlowLogStatus;
pub use settings::FlowLogSettings;
