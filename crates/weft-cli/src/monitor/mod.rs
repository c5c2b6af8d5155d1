//! `weft monitor` and `weft adm`: on each host an agent answers over HTTP; a collector asks all agents, keeps
//! some minutes, and shows them as OpenMetrics and as a page (X-RDMA, sections VI.B and VI.D).
//!
//! | task | file |
//! | --- | --- |
//! | scan a host's programs periodically: counters and events | `watch.rs` |
//! | serve over HTTP, and ask agents | `service.rs` |
//! | all hosts together: pairs, rates, history | `collect.rs`, `pairs.rs`, `picture.rs` |
//! | counters of ports that show congestion | `ports.rs` |
//! | the matrix of `weft ping` | `pings.rs` |
//! | events of the log: agents lost and found | `presence.rs` |
//! | OpenMetrics for Prometheus | `metrics.rs` |
//! | the page | `page/` |
//! | orders to nodes, here or on other hosts | `orders.rs` |

mod collect;
pub(crate) mod metrics;
mod orders;
mod pairs;
mod picture;
mod pings;
mod ports;
mod presence;
mod service;
pub(crate) mod watch;

pub(crate) use orders::{Order, Outcome, Which, carry_out};
#[cfg(test)]
pub(crate) use pings::Received;
pub(crate) use pings::{MAX_PINGS, PingPair, PingReport, UnreachableHost};
pub(crate) use ports::Port;
pub(crate) use service::{Plan, Sources, run};
pub(crate) use watch::Report;
