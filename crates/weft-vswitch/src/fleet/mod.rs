//! A fleet's configuration in etcd: its networks, ports, hosts, routes and policies. Each host follows its own part of
//! it, and applies changes as a reload of its file would.
//!
//! | what | where |
//! | --- | --- |
//! | the table `[fleet]` of a host's file | `settings.rs` |
//! | the layout of keys | `key.rs` |
//! | values, with their checks | `object.rs` |
//! | the security groups of ports added by command | `port_policies.rs` |
//! | a file of objects, for commands | `file.rs` |
//! | reads and writes of commands | `store/` |
//! | what one host knows: its part, and the faults in it | `view.rs` |
//! | a host's name and address, under a lease | `register.rs` |
//! | the places of machines that a host writes by itself | `local.rs` |
//! | the thread that lists and watches | `follower.rs` |
//! | a host's file together with its part | `merge.rs` |
//! | the part on the disk, for a start without etcd | `cache.rs` |
//!
//! The daemon (`apply.rs`) never knows of etcd: it gets a new part now and then (`handle.rs`).

mod apply;
mod cache;
mod file;
mod follower;
mod handle;
mod key;
mod local;
mod merge;
mod object;
mod port_policies;
mod register;
mod settings;
mod status;
mod store;
mod view;

pub use file::{FleetFile, FleetPort, NetworkRow};
pub use follower::{Follower, HostIdentity};
pub(crate) use handle::Fleet;
pub use key::{Key, KeyError};
pub use local::LocalMachines;
pub use object::{Alive, Host, Machine, NetworkObject, Object, ObjectError, RouteObject};
pub use port_policies::PortPoliciesObject;
pub use settings::FleetSettings;
pub use status::FleetStatus;
pub use store::{Entry, Store, StoreError, Written};
pub use view::{Part, View};

/// The functions that fuzz targets call.
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
