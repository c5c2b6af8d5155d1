//! The packet buffer that the ports of a switch share.
//!
//! A port may hold `alpha` times the free bytes (Choudhury and Hahne 1998), so a few busy ports get much and many busy
//! ports get equal shares. The used bytes are the sum of all ports' queues, which no event keeps up to date; so each
//! switch keeps an upper bound, the last exact sum plus the bytes accepted since, and computes the sum again only when
//! the bound would refuse a packet. A port holds no more than its switch, so while the buffer is far from full the
//! bound suffices for the port too. Admission is exact, and usually costs one comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, NodeId, Topology};
use weft_units::ByteCount;

use crate::link::{Link, LinkClass};
use crate::time::SimTime;

/// The shared buffer of every switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BufferConfig {
    /// Bytes each switch has.
    pub size: ByteCount,
    /// The factor of the free bytes that one port may hold.
    pub alpha: f64,
}

impl Default for BufferConfig {
    /// Returns 64 MB, as Broadcom's Tomahawk 3 has, and an egress alpha of 1 (ConWeave's simulations).
    fn default() -> Self {
        Self { size: ByteCount(64_000_000), alpha: 1.0 }
    }
}

/// An upper bound of the bytes in each switch's buffer.
#[derive(Clone, Debug)]
pub struct SharedBuffers {
    share: Share,
    /// For each switch, an upper bound of the bytes it holds.
    bound: Vec<u64>,
}

/// The buffer size of a switch and the factor that limits a port's share.
#[derive(Clone, Copy, Debug)]
struct Share {
    size: u64,
    /// Alpha in units of 2^-16.
    alpha: u64,
}

impl Share {
    /// Returns `true` if a queue of `queued` bytes may grow by `size` in a switch that holds `used` bytes.
    #[inline]
    fn allows(self, used: u64, queued: u64, size: u16) -> bool {
        let free = self.size.saturating_sub(used);
        let size = u64::from(size);
        size <= free && queued + size <= (free * self.alpha) >> 16
    }
}

/// The input of one admission decision.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The current time.
    pub now: SimTime,
    /// Index of the switch among the switches.
    pub switch: usize,
    /// The link whose queue the packet is to join.
    pub link: LinkId,
    /// The packet's own bytes.
    pub size: u16,
}

/// One switch's buffer by its upper bound; see [`SharedBuffers::room`].
#[derive(Debug)]
pub struct Room<'a> {
    share: Share,
    bound: &'a mut u64,
}

impl Room<'_> {
    /// Counts a packet that certainly fits behind at most `queued` bytes of its port; returns `false` if the exact
    /// sums are needed.
    #[inline(always)] // Called for every hop of a simulation.
    pub fn take(&mut self, queued: u64, size: u16) -> bool {
        let fits = self.share.allows(*self.bound, queued.min(*self.bound), size);
        *self.bound += if fits { u64::from(size) } else { 0 };
        fits
    }
}

impl SharedBuffers {
    /// Returns empty buffers for every switch of `topology`.
    pub fn new(config: &BufferConfig, topology: &Topology) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let alpha = (config.alpha.clamp(0.0, 1024.0) * 65_536.0) as u64;
        let bound = vec![0; topology.switches() as usize];
        Self { share: Share { size: config.size.0.min(u64::MAX >> 32), alpha }, bound }
    }

    /// Returns `true` if the packet fits, and then counts it.
    #[inline]
    pub fn admit(
        &mut self,
        request: &Request,
        topology: &Topology,
        links: &[Link],
        classes: &[LinkClass],
    ) -> bool {
        self.room(request.switch).take(u64::MAX, request.size)
            || self.admit_exactly(request, topology, links, classes)
    }

    /// Copies the state of one switch.
    pub fn copy(&mut self, switch: usize, from: &Self) {
        self.bound[switch] = from.bound[switch];
    }

    /// Returns the limits of one switch.
    #[inline]
    pub fn room(&mut self, switch: usize) -> Room<'_> {
        Room { share: self.share, bound: &mut self.bound[switch] }
    }

    #[cold]
    fn admit_exactly(
        &mut self,
        request: &Request,
        topology: &Topology,
        links: &[Link],
        classes: &[LinkClass],
    ) -> bool {
        let queued = |port: LinkId| queued(port, links, classes, request.now);
        let (share, bound) = (self.share, &mut self.bound[request.switch]);
        let own = queued(request.link);
        if !share.allows(*bound, own, request.size) {
            let switch = NodeId(topology.hosts() + narrow(request.switch));
            *bound = topology.ports(switch).iter().copied().map(queued).sum();
        }
        let fits = share.allows(*bound, own, request.size);
        *bound += if fits { u64::from(request.size) } else { 0 };
        fits
    }
}

/// Returns the bytes that wait at a port.
fn queued(port: LinkId, links: &[Link], classes: &[LinkClass], now: SimTime) -> u64 {
    let link = &links[port.index()];
    classes[usize::from(link.class)].pace.bytes(link.backlog(now))
}

fn narrow(switch: usize) -> u32 {
    u32::try_from(switch).expect("a topology has fewer than 2^20 nodes")
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;
    use weft_units::{BitRate, Duration, Seed};

    use super::*;
    use crate::time::SimSpan;

    /// Admission by the bound agrees with admission by the exact sum on every packet of a random
    /// load that keeps the buffer near full.
    #[test]
    fn the_bound_never_changes_a_decision() {
        let topology = LeafSpine::default().build().unwrap();
        let rate = BitRate::gbps(100).unwrap();
        let classes = [LinkClass::new(rate, Duration::ZERO, None)];
        let config = BufferConfig { size: ByteCount(100_000), alpha: 0.5 };
        let mut buffers = SharedBuffers::new(&config, &topology);
        let mut links: Vec<_> = topology.link_ids().map(|_| Link::new(0, 0)).collect();
        let ports = topology.ports(NodeId(128));
        let mut rng = Seed(4).rng();
        let (mut now, mut refused) = (SimTime::EPOCH, 0);
        for packet in 0..20_000 {
            now += SimSpan::from_picos(rng.below(30_000));
            let (port, size) = (ports[rng.index(6)], 64 + u16::try_from(rng.below(4000)).unwrap());
            let used: u64 = ports.iter().map(|&p| queued(p, &links, &classes, now)).sum();
            let free = 100_000 - used.min(100_000);
            let own = queued(port, &links, &classes, now);
            let after = own + u64::from(size);
            let exact = u64::from(size) <= free && after <= free / 2;
            let request = Request { now, switch: 0, link: port, size };
            // A caller that knows an upper bound of the port's queue gets the same decision, if it gets one.
            let at_most = own + rng.below(20_000);
            let by_bound = packet % 2 == 0 && buffers.room(0).take(at_most, size);
            let got = by_bound || buffers.admit(&request, &topology, &links, &classes);
            assert_eq!(got, exact, "packet {packet}");
            if got {
                links[port.index()].accept(now, classes[0].pace.serialisation(size), size);
            }
            refused += u32::from(!got);
        }
        assert!((1_000..19_000).contains(&refused), "{refused} refused: the load tests nothing");
    }
}
