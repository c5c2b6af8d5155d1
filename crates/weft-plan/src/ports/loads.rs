//! The number of flows on each link.

use alloc::vec;
use alloc::vec::Vec;

use weft_topo::LinkId;

use super::{Fabric, Flow};

/// The number of flows on each link between switches. Host cables are excluded, because ports do not change their load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loads {
    /// By link, its number of flows.
    pub of_link: Vec<u32>,
    /// The busiest link; `None` if no flow passes between switches.
    pub worst: Option<LinkId>,
    /// Number of flows that share no link with another flow.
    pub alone: usize,
}

impl Loads {
    /// Returns the number of flows on the busiest link.
    pub fn max(&self) -> u32 {
        self.worst.map_or(0, |link| self.of_link[link.index()])
    }
}

/// Counts the flows on each link, given each flow's port.
///
/// # Panics
/// If the numbers of ports and flows differ, or a flow is not of this network.
pub fn loads(fabric: &Fabric<'_>, flows: &[Flow], ports: &[u16]) -> Loads {
    assert_eq!(flows.len(), ports.len(), "a port for each flow");
    let mut of_link = vec![0u32; fabric.topology().links() as usize];
    for (&flow, &port) in flows.iter().zip(ports) {
        follow(fabric, flow, port, |link| of_link[link.index()] += 1);
    }
    let mut alone = 0;
    for (&flow, &port) in flows.iter().zip(ports) {
        let mut busiest = 0;
        follow(fabric, flow, port, |link| busiest = busiest.max(of_link[link.index()]));
        alone += usize::from(busiest <= 1);
    }
    let worst = (0..).zip(&of_link).max_by_key(|&(link, &load)| (load, core::cmp::Reverse(link)));
    let worst = worst.filter(|(_, load)| **load > 0).map(|(link, _)| LinkId(link));
    Loads { of_link, worst, alone }
}

/// Calls `each` with every link between switches that the flow takes.
fn follow(fabric: &Fabric<'_>, flow: Flow, port: u16, mut each: impl FnMut(LinkId)) {
    fabric.follow(flow, &fabric.packet(flow), port, |link| {
        each(link);
        true
    });
}
