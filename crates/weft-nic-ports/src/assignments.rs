//! The ports of a table, as queue pairs take them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use weft_plan::output::PlannedPort;

/// The ports of each pair of addresses, and the next one to take.
#[derive(Clone, Debug, Default)]
pub struct Assignments(BTreeMap<(Ipv4Addr, Ipv4Addr), Ports>);

#[derive(Clone, Debug, Default)]
struct Ports {
    ports: Vec<u16>,
    taken: usize,
}

impl Assignments {
    /// Returns the ports of a table, in its order.
    pub fn new(rows: impl IntoIterator<Item = PlannedPort>) -> Self {
        let mut all = Self::default();
        for PlannedPort { source, destination, port } in rows {
            all.0.entry((source, destination)).or_default().ports.push(port);
        }
        all
    }

    /// Returns the port of the next queue pair from `source` to `destination`: those of the table in turn. Returns
    /// `None` if the table has none.
    pub fn next(&mut self, source: Ipv4Addr, destination: Ipv4Addr) -> Option<u16> {
        let Ports { ports, taken } = self.0.get_mut(&(source, destination))?;
        let port = ports.get(*taken % ports.len())?;
        *taken += 1;
        Some(*port)
    }
}
