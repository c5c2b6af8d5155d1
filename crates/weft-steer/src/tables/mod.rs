//! The installed state of routers, read from their kernels: links, routes, nexthop objects with their buckets,
//! neighbours and the sysctls of the hash.
//!
//! | step | where |
//! | --- | --- |
//! | read everything from a router with one script | here, [`RouterEntry::read`] |
//! | parse iproute2's JSON | `iproute.rs` |
//! | convert it to the engine's [`Router`] | `convert.rs` |
//! | routers that do not answer | `silent.rs` |

mod convert;
mod fault;
mod iproute;
mod silent;

use std::thread;

use weft_route::installed::{Installed, Router};

pub use fault::AnswerFault;
pub(crate) use iproute::{NextHop, RouteEntry};
pub(crate) use silent::SomeTables;

use crate::apply::frr;
use crate::gnmi;
use crate::{Inventory, Method, RouterEntry, SteerError};

/// The separator of answers, which no line of JSON or of a sysctl equals.
const SEPARATOR: &str = "--- weft ---";

/// The script that reads everything, so that one connection is enough and the answers are nearly simultaneous. Sysctls
/// that an older kernel lacks are printed as empty lines.
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

/// A router's state as iproute2 reports it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) links: Vec<iproute::Link>,
    /// The routes of both families, IPv4 first.
    pub(crate) routes: Vec<RouteEntry>,
    pub(crate) nexthops: Vec<iproute::NextHopObject>,
    pub(crate) buckets: Vec<iproute::BucketEntry>,
    pub(crate) neighbours: Vec<iproute::Neighbour>,
    /// The hash's policy, fields and seed, and the flag that ignores routes over links without carrier.
    pub(crate) sysctls: [Option<u32>; 4],
    /// The same for IPv6, which has no separate seed.
    pub(crate) sysctls6: [Option<u32>; 3],
    /// By interface, its speed in Mb/s.
    pub(crate) speeds: Vec<(String, u64)>,
    /// Destinations that our FRR filters keep from some neighbours, as prefixes.
    pub(crate) filtered: Vec<String>,
}

impl Inventory {
    /// Reads the installed state of all routers at the same time. If one does not answer, the whole call fails, because
    /// the tables of a part of a fabric predict nothing.
    ///
    /// # Errors
    /// Returns `Command` or `Io` from the first router that does not answer, `Answer` from one whose answer cannot be
    /// parsed.
    pub fn read_tables(&self) -> Result<Installed, SteerError> {
        let routers: Result<_, _> = thread::scope(|scope| {
            let read = |router| scope.spawn(move || RouterEntry::read(router));
            let reads: Vec<_> = self.routers.iter().map(read).collect();
            reads.into_iter().map(|read| read.join().expect("a read does not panic")).collect()
        });
        Ok(Installed { routers: routers? })
    }
}

impl RouterEntry {
    /// Reads the installed state of the router.
    ///
    /// # Errors
    /// Returns `Command`, `Gnmi` or `Io` if it does not answer, `Answer` if its answer cannot be parsed.
    pub fn read(&self) -> Result<Router, SteerError> {
        match &self.apply {
            Method::Gnmi(settings) => Ok(gnmi::read(self, settings)?.router),
            Method::Kernel | Method::Frr { .. } => convert::router(self, &self.show()?),
        }
    }

    /// Parses a router's answer that was obtained by other means: that of iproute2, or the data tree of a gNMI server as JSON.
    ///
    /// # Errors
    /// Returns `Answer` if it cannot be parsed.
    pub fn parse_answer(&self, answer: &str) -> Result<Router, SteerError> {
        match &self.apply {
            Method::Gnmi(settings) => gnmi::parse(self, settings, answer),
            Method::Kernel | Method::Frr { .. } => convert::router(self, &self.parse(answer)?),
        }
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
        let (mut shown, configured) = iproute::parse(answer).map_err(|part| {
            SteerError::Answer { router: self.name.clone(), what: part.what, reason: part.fault }
        })?;
        shown.filtered = frr::listed(configured);
        Ok(shown)
    }
}
