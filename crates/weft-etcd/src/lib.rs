//! A client of etcd. It is the only crate that speaks to etcd; its callers block, and never see gRPC.
//!
//! | what | where |
//! | --- | --- |
//! | endpoints, certificates, timeout | `settings.rs` |
//! | the thread on which connections live | `runtime.rs` |
//! | a connection to one of the endpoints, and to the next when it breaks | `connections.rs` |
//! | reads, and lists in pages at one revision | `client.rs` |
//! | writes that depend on comparisons, all of them or none | `transaction.rs` |
//! | leases that renew themselves | `lease.rs` |
//! | changes from a revision on, across broken connections | `watch/` |
//!
//! ```no_run
//! use weft_etcd::{Client, Compare, EtcdSettings, Transaction, WatchEvent};
//!
//! let client = Client::new(&EtcdSettings::plain(&["127.0.0.1:2379"]))?;
//! let first = Transaction::new().when(Compare::absent("/colour")).put("/colour", b"red");
//! assert!(client.transact(&first)?.succeeded);
//! // Everything that there is, then everything that changes.
//! let listing = client.list("/")?;
//! let mut watch = client.watch("/", listing.revision.next());
//! while let Some(event) = watch.next(std::time::Duration::from_secs(1)) {
//!     if let WatchEvent::Changes { changes, .. } = event {
//!         println!("{changes:?}");
//!     }
//! }
//! # Ok::<(), weft_etcd::EtcdError>(())
//! ```
#![forbid(unsafe_code)]

mod client;
mod connections;
mod error;
mod lease;
mod proto;
mod range;
mod runtime;
mod settings;
mod transaction;
mod watch;

pub use client::Client;
pub use error::EtcdError;
pub use lease::Lease;
pub use range::{KeyValue, LeaseId, Listing, Revision};
pub use settings::{EtcdSettings, EtcdTls};
pub use transaction::{Compare, MAX_OPERATIONS, Outcome, Transaction};
pub use watch::{Change, Watch, WatchEvent};
