//! `weft monitor` and `weft adm`: an agent a host that answers over HTTP, a collector that asks all agents, keeps
//! some minutes, and shows them as OpenMetrics and as a page (X-RDMA, sections VI.B and VI.D).
//!
//! | step | where |
//! | --- | --- |
//! | a host's programs, again and again: what they count, and what happened | `watch.rs` |
//! | over HTTP to the collector | `service.rs` |
//! | all hosts together: pairs, rates, history | `collect.rs`, `picture.rs` |
//! | for Prometheus | `metrics.rs` |
//! | for people | `page/` |
//! | orders to nodes, here or on other hosts | `orders.rs` |

mod collect;
pub(crate) mod metrics;
mod orders;
mod picture;
mod service;
mod watch;

pub(crate) use orders::{Order, Outcome, Which, carry_out};
pub(crate) use service::{Plan, Sources, run};
