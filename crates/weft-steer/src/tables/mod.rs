//! What routers have installed, read from their kernels: links, routes, nexthop objects with their
//! buckets, neighbours and the hash's sysctls.
//!
//! | step | where |
//! | --- | --- |
//! | ask a router, everything at once | here, [`RouterEntry::read`] |
//! | iproute2's JSON as values | `iproute.rs` |
//! | those as the engine's [`Router`] | `convert.rs` |

mod convert;
mod iproute;

use weft_route::installed::{Installed, Router};

pub(crate) use iproute::{NextHop, RouteEntry};

use crate::apply::frr;
use crate::{Inventory, Method, RouterEntry, SteerError};

/// What separates answers; no line of JSON or of a sysctl is it.
const SEPARATOR: &str = "--- weft ---";

/// Everything in one go, so that one connection is enough and little time lies between the answers.
/// Sysctls that an older kernel lacks come out empty.
const SCRIPT: &str = "\
next() { echo '--- weft ---'; }
sysctl() { cat /proc/sys/net/ipv4/$1 2>/dev/null || echo; }
sysctl6() { cat /proc/sys/net/ipv6/$1 2>/dev/null || echo; }
ip -j -d link show || exit 1; next
ip -j route show table main || exit 1; next
ip -j nexthop show || exit 1; next
ip -j nexthop bucket show || exit 1; next
ip -j neighbour show || exit 1; next
for name in fib_multipath_hash_policy fib_multipath_hash_fields fib_multipath_hash_seed \
    conf/all/ignore_routes_with_linkdown; do sysctl $name; done; next
for device in /sys/class/net/*; do echo ${device##*/} $(cat $device/speed 2>/dev/null); done; next
ip -6 -j route show table main || exit 1; next
for name in fib_multipath_hash_policy fib_multipath_hash_fields \
    conf/all/ignore_routes_with_linkdown; do sysctl6 $name; done
";

/// A router as iproute2 tells of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) links: Vec<iproute::Link>,
    /// Of both families; IPv4's first.
    pub(crate) routes: Vec<RouteEntry>,
    pub(crate) nexthops: Vec<iproute::NextHopObject>,
    pub(crate) buckets: Vec<iproute::BucketEntry>,
    pub(crate) neighbours: Vec<iproute::Neighbour>,
    /// The hash's policy, fields and seed, and whether routes over links without carrier are ignored.
    pub(crate) sysctls: [Option<u32>; 4],
    /// The same of IPv6, which has no seed of its own.
    pub(crate) sysctls6: [Option<u32>; 3],
    /// By interface, Mb/s.
    pub(crate) speeds: Vec<(String, u64)>,
    /// Destinations that FRR keeps from some neighbours for us, as prefixes.
    pub(crate) filtered: Vec<String>,
}

impl Inventory {
    /// What all routers have installed now. One that does not answer fails the whole: tables of half a
    /// fabric predict nothing.
    ///
    /// # Errors
    /// `Command` or `Io` from the first router that does not answer, `Answer` from one that is not
    /// understood.
    pub fn read_tables(&self) -> Result<Installed, SteerError> {
        let routers = self.routers.iter().map(RouterEntry::read).collect::<Result<_, _>>()?;
        Ok(Installed { routers })
    }
}

impl RouterEntry {
    /// What the router has installed now.
    ///
    /// # Errors
    /// `Command` or `Io` when it does not answer, `Answer` when it is not understood.
    pub fn read(&self) -> Result<Router, SteerError> {
        convert::router(self, &self.show()?)
    }

    /// What a router has installed by what it answered, for whoever asked it some other way.
    ///
    /// # Errors
    /// `Answer` when it is not understood.
    pub fn understand(&self, answer: &str) -> Result<Router, SteerError> {
        convert::router(self, &self.parse(answer)?)
    }

    pub(crate) fn show(&self) -> Result<Shown, SteerError> {
        let mut script = SCRIPT.to_owned();
        if let Method::Frr { vty_socket } = &self.apply {
            script += "next\n";
            script += &frr::vtysh(vty_socket.as_deref(), &["show running-config".into()]);
            script += " || exit 1\n";
        }
        let text = self.run("reading its tables", &script)?;
        self.parse(&text)
    }

    fn parse(&self, answer: &str) -> Result<Shown, SteerError> {
        iproute::parse(answer).map_err(|(what, reason)| SteerError::Answer {
            router: self.name.clone(),
            what,
            reason,
        })
    }
}
