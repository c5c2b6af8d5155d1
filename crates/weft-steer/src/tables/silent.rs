//! Fabrics of which some routers do not answer: their last known tables are used, or what the inventory has of them.

use std::collections::BTreeMap;
use std::thread;

use weft_route::installed::{Cable, Installed, Port, PortState, Router, RouterHash};

use super::convert::UNKNOWN_SPEED;
use crate::{Inventory, PortEntry, RouterEntry, SteerError};

/// The tables of a fabric, as far as routers answer.
#[derive(Debug)]
pub(crate) struct SomeTables {
    pub(crate) installed: Installed,
    /// The routers that did not answer.
    pub(crate) silent: BTreeMap<String, SteerError>,
}

impl Inventory {
    /// Reads the installed state of all routers at the same time. One that does not answer has its state in `known`, or else
    /// the ports and cables of this inventory and no routes.
    ///
    /// # Errors
    /// Returns the error of a router if none answers.
    pub(crate) fn read_some_tables(&self, known: &Installed) -> Result<SomeTables, SteerError> {
        let reads: Vec<Result<Router, SteerError>> = thread::scope(|scope| {
            let read = |router| scope.spawn(move || RouterEntry::read(router));
            let reads: Vec<_> = self.routers.iter().map(read).collect();
            reads.into_iter().map(|read| read.join().expect("a read does not panic")).collect()
        });
        let mut silent = BTreeMap::new();
        let mut routers = Vec::new();
        for (entry, read) in self.routers.iter().zip(reads) {
            let router = read.unwrap_or_else(|error| {
                silent.insert(entry.name.clone(), error);
                let before = known.routers.iter().find(|router| router.name == entry.name);
                before.cloned().unwrap_or_else(|| self.undescribed(entry))
            });
            routers.push(router);
        }
        if silent.len() == self.routers.len()
            && let Some((_, error)) = silent.pop_first()
        {
            return Err(error);
        }
        Ok(SomeTables { installed: Installed { routers }, silent })
    }

    /// Returns a router as the inventory describes it: with its ports up, and without routes.
    fn undescribed(&self, entry: &RouterEntry) -> Router {
        let mut ports: Vec<Port> = Vec::new();
        let mut add = |name: &str, known: Option<&PortEntry>| {
            if ports.iter().any(|port| port.name == name) {
                return;
            }
            let ifindex = u32::try_from(ports.len() + 1).expect("ports are few");
            let speed = known.and_then(|port| port.speed).unwrap_or(UNKNOWN_SPEED);
            let (name, to) = (name.to_owned(), known.and_then(|port| port.to.clone()));
            ports.push(Port { name, ifindex, speed, state: PortState::Up, to });
        };
        entry.ports.iter().for_each(|port| add(&port.name, Some(port)));
        // A cable may be described at its other end only.
        for port in self.routers.iter().flat_map(|router| &router.ports) {
            if let Some(Cable::Peer { router, port }) = &port.to
                && *router == entry.name
            {
                add(port, None);
            }
        }
        Router {
            name: entry.name.clone(),
            hash: RouterHash::Linux { policy: 3, fields: 0x37, seed: 0 },
            ignore_linkdown: true,
            ipv6: None,
            ports,
            groups: vec![],
            routes: vec![],
        }
    }
}
