//! The *installed* state of a fabric's routers: ports and cables, routes, groups in the order that the hash counts
//! them, and the hash itself. Paths are predicted from this data.
//!
//! It contains names, not numbers, because the programs that read routers (the tables of a kernel or an ASIC) and
//! people write it. [`Fabric::new`](crate::Fabric::new) checks it and converts names to numbers. Installed means the
//! forwarding table, not the routing protocol's: with FRR 8.4 the two differed permanently after a link had flapped
//! (FRR issue 14481).
//!
//! ```
//! let text = r#"
//! [[router]]
//! name = "leaf-0"
//! hash.linux = { policy = 3, fields = 0x37, seed = 7 }
//!
//! [[router.port]]
//! name = "h0"
//! ifindex = 2
//! speed = "100Gbps"
//! to.host = "10.1.0.2"
//!
//! [[router.port]]
//! name = "s0"
//! ifindex = 3
//! speed = "100Gbps"
//! to.peer = { router = "spine-0", port = "l0" }
//!
//! [[router.group]]
//! name = "up"
//! kind = "hash-threshold"
//! members = [{ port = "s0", via = "10.100.0.2", weight = 1 }]
//!
//! [[router.group]]
//! name = "h0"
//! kind = "single"
//! members = [{ port = "h0" }]
//!
//! [[router.route]]
//! to = "10.1.0.2/32"
//! via.group = "h0"
//!
//! [[router.route]]
//! to = "0.0.0.0/0"
//! via.group = "up"
//!
//! [[router]]
//! name = "spine-0"
//! hash.switch = { algorithm = "crc32", seed = 9 }
//!
//! [[router.port]]
//! name = "l0"
//! ifindex = 2
//! speed = "100Gbps"
//! "#;
//! let installed: weft_route::Installed = toml::from_str(text)?;
//! assert_eq!(installed.routers[0].routes[1].to.to_string(), "0.0.0.0/0");
//! # Ok::<(), toml::de::Error>(())
//! ```

mod addresses;
mod error;
mod prefix;
mod router;

use alloc::vec::Vec;

pub use addresses::Addresses;
pub use error::InstalledError;
pub use prefix::{Prefix, PrefixError};
pub use router::{
    Cable, Group, GroupKind, Ipv6, Member, Port, PortState, Route, Router, RouterHash, Target,
};
use serde::{Deserialize, Serialize};

/// Every router of a fabric with its installed state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Installed {
    /// The routers, in any order; their names are distinct.
    #[serde(rename = "router", default)]
    pub routers: Vec<Router>,
}

impl Installed {
    /// Returns the router of that name.
    pub fn router(&self, name: &str) -> Option<&Router> {
        self.routers.iter().find(|router| router.name == name)
    }
}

#[cfg(test)]
mod tests;
