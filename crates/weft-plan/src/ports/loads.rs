//! How many flows each link carries.

use alloc::vec;
use alloc::vec::Vec;

use weft_topo::LinkId;

use super::{Fabric, Flow};

/// Flows on the links between switches. Cables of hosts are left out: who sends eight flows by a
/// port has eight on its cable, whatever the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loads {
    /// By link.
    pub of_link: Vec<u32>,
    /// The busiest link; none where no flow passes between switches.
    pub worst: Option<LinkId>,
    /// Flows that share no link with another.
    pub alone: usize,
}

impl Loads {
    /// Flows on the busiest link.
    pub fn most(&self) -> u32 {
        self.worst.map_or(0, |link| self.of_link[link.index()])
    }
}

/// Follows every flow with its port.
///
/// # Panics
/// If there are not as many ports as flows, or a flow is not of this network.
pub fn loads(fabric: &Fabric<'_>, flows: &[Flow], ports: &[u16]) -> Loads {
    assert_eq!(flows.len(), ports.len(), "a port for each flow");
    let mut of_link = vec![0u32; fabric.topology().links() as usize];
    for (&flow, &port) in flows.iter().zip(ports) {
        follow(fabric, flow, port, |link| of_link[link.index()] += 1);
    }
    let mut alone = 0;
    for (&flow, &port) in flows.iter().zip(ports) {
        let mut most = 0;
        follow(fabric, flow, port, |link| most = most.max(of_link[link.index()]));
        alone += usize::from(most <= 1);
    }
    let worst = (0..).zip(&of_link).max_by_key(|&(link, &load)| (load, core::cmp::Reverse(link)));
    let worst = worst.filter(|(_, load)| **load > 0).map(|(link, _)| LinkId(link));
    Loads { of_link, worst, alone }
}

/// Tells `each` every link between switches that the flow takes.
fn follow(fabric: &Fabric<'_>, flow: Flow, port: u16, mut each: impl FnMut(LinkId)) {
    fabric.follow(flow, &fabric.packet(flow), port, |link| {
        each(link);
        true
    });
}
