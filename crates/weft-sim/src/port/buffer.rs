//! The exact accounts of the buffer that a switch's ports share.
//!
//! Each port has some bytes of its own; it takes further bytes from a pool. Without pauses the accounts are by the
//! egress port, which may take `alpha` times the free bytes of the pool (Choudhury and Hahne 1998), and refuses more.
//! With pauses they are by the ingress port: above the same kind of threshold the neighbour must pause, and when the
//! pool is used up, packets in flight still fit into the port's headroom. (ns-3's HPCC and ConWeave keep both accounts
//! at once; lossless queues are limited by ingress port on real switches too.)
//!
//! Control packets are not counted: they are small, and none may be paused.

use weft_topo::{LinkId, Topology};

/// The accounts of the ports of all switches.
#[derive(Debug)]
pub struct Accounts {
    lossless: bool,
    /// Alpha in units of 2^-16.
    alpha: u64,
    reserved: u64,
    /// The pools by switch.
    pools: Vec<Pool>,
    /// The accounts by link: egress link, or ingress link.
    ports: Vec<Account>,
}

#[derive(Clone, Copy, Debug)]
struct Pool {
    size: u64,
    used: u64,
}

impl Pool {
    fn free(self) -> u64 {
        self.size - self.used
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Bytes held, without those in the headroom.
    held: u64,
    in_headroom: u64,
    headroom: u64,
}

impl Accounts {
    /// Returns empty buffers of `size` for every switch. `headroom` is the part of it that is reserved for each link
    /// into a switch; without it, packets are dropped.
    pub fn new(
        topology: &Topology,
        size: u64,
        alpha: f64,
        reserved: u64,
        headroom: Option<&dyn Fn(LinkId) -> u64>,
    ) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let alpha = (alpha.clamp(0.0, 1024.0) * 65_536.0) as u64;
        let of = |link| headroom.map_or(0, |headroom| headroom(link));
        let ports =
            topology.link_ids().map(|link| Account { headroom: of(link), ..Account::default() });
        let pools = topology.switch_ids().map(|switch| {
            let ports = topology.ports(switch).iter();
            let set_aside: u64 = ports.map(|link| reserved + of(link.reverse())).sum();
            // The size is small enough to be multiplied by alpha.
            Pool { size: size.saturating_sub(set_aside).min(u64::MAX >> 32), used: 0 }
        });
        let (pools, ports) = (pools.collect(), ports.collect());
        Self { lossless: headroom.is_some(), alpha, reserved, pools, ports }
    }

    /// Returns `true` if accounts are by ingress link, and neighbours pause.
    pub fn are_lossless(&self) -> bool {
        self.lossless
    }

    /// Returns the part of `held` bytes that is taken from the pool.
    fn beyond(&self, held: u64) -> u64 {
        held.saturating_sub(self.reserved)
    }

    /// Returns the bytes that a port may take from the pool.
    fn threshold(&self, pool: Pool) -> u64 {
        (pool.free() * self.alpha) >> 16
    }

    /// Charges a packet to a link's account in a switch; returns `false` if there is no room for it.
    #[inline]
    pub fn charge(&mut self, switch: usize, link: LinkId, size: u16) -> bool {
        let (pool, size) = (self.pools[switch], u64::from(size));
        let account = self.ports[link.index()];
        let after = self.beyond(account.held + size);
        let more = after - self.beyond(account.held);
        let is_within = self.lossless || more == 0 || after <= self.threshold(pool);
        let port = &mut self.ports[link.index()];
        if is_within && more <= pool.free() {
            port.held += size;
            self.pools[switch].used += more;
            return true;
        }
        let fits = port.in_headroom + size <= port.headroom;
        port.in_headroom += if fits { size } else { 0 };
        fits
    }

    /// Removes a packet from a link's account.
    #[inline]
    pub fn release(&mut self, switch: usize, link: LinkId, size: u16) {
        let account = self.ports[link.index()];
        let from_headroom = account.in_headroom.min(u64::from(size));
        let held = account.held - (u64::from(size) - from_headroom);
        self.pools[switch].used -= self.beyond(account.held) - self.beyond(held);
        let in_headroom = account.in_headroom - from_headroom;
        self.ports[link.index()] = Account { held, in_headroom, ..account };
    }

    /// Returns `true` if a link exceeds its threshold, so that its other end must pause.
    #[inline]
    pub fn is_over(&self, switch: usize, link: LinkId) -> bool {
        let Account { held, in_headroom, .. } = self.ports[link.index()];
        in_headroom > 0 || self.beyond(held) > self.threshold(self.pools[switch])
    }

    /// Returns the bytes of all accounts.
    #[cfg(test)]
    fn total(&self) -> u64 {
        self.ports.iter().map(|port| port.held + port.in_headroom).sum()
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::NodeId;
    use weft_topo::build::LeafSpine;
    use weft_units::Seed;

    use super::*;

    /// Returns a topology of one leaf with eight hosts.
    fn topology() -> Topology {
        let shape = LeafSpine { leaves: 1, spines: 1, hosts_per_leaf: 8, ..LeafSpine::default() };
        shape.build().unwrap()
    }

    #[test]
    fn a_port_alone_holds_alpha_of_the_free_pool_and_its_reserve() {
        let topology = topology();
        let ports = topology.ports(NodeId(8));
        let own = 1_000 * ports.len() as u64;
        for (alpha, max) in [(1.0, 50_000_u64), (0.25, 20_000), (3.0, 75_000)] {
            let mut accounts = Accounts::new(&topology, 100_000 + own, alpha, 1_000, None);
            let accepted = (0..1_000).filter(|_| accounts.charge(0, ports[2], 100)).count() as u64;
            assert!((max + 1_000).abs_diff(accepted * 100) <= 100, "{alpha}: {accepted}");
            // The other ports still have their own bytes, and a share of the rest.
            assert!((0..11).all(|_| accounts.charge(0, ports[3], 100)));
        }
    }

    #[test]
    fn charges_are_released_to_the_byte() {
        let topology = topology();
        let ports = topology.ports(NodeId(8));
        let headroom = |_| 5_000;
        for lossless in [false, true] {
            let headroom: Option<&dyn Fn(LinkId) -> u64> = lossless.then_some(&headroom);
            let mut accounts = Accounts::new(&topology, 150_000, 0.5, 700, headroom);
            let mut rng = Seed(9).rng();
            let (mut held, mut refused) = (Vec::new(), 0);
            for _ in 0..20_000 {
                if rng.chance(11, 20) {
                    let link = ports[rng.index(ports.len())];
                    let size = 64 + u16::try_from(rng.below(4_000)).unwrap();
                    match accounts.charge(0, link, size) {
                        true => held.push((link, size)),
                        false => refused += 1,
                    }
                } else if !held.is_empty() {
                    let (link, size) = held.swap_remove(rng.index(held.len()));
                    accounts.release(0, link, size);
                }
                let bytes: u64 = held.iter().map(|&(_, size)| u64::from(size)).sum();
                assert_eq!(accounts.total(), bytes);
                assert!(bytes <= 150_000);
            }
            assert!(refused > 100, "{refused} refused: the load tests nothing");
            held.into_iter().for_each(|(link, size)| accounts.release(0, link, size));
            assert_eq!((accounts.total(), accounts.pools[0].used), (0, 0));
        }
    }

    #[test]
    fn a_port_over_the_threshold_still_has_the_pool_and_then_its_headroom() {
        let topology = topology();
        let ports = topology.ports(NodeId(8));
        let size = 64_000 + 9 * 10_000;
        let mut accounts = Accounts::new(&topology, size, 0.0625, 0, Some(&|_| 10_000));
        let mut taken = 0;
        while !accounts.is_over(0, ports[0]) {
            assert!(accounts.charge(0, ports[0], 100));
            taken += 100;
        }
        assert!((3_700..3_900).contains(&taken), "a 17th of 64,000: {taken}");
        let all = 100 * (0..10_000).take_while(|_| accounts.charge(0, ports[0], 100)).count();
        assert_eq!(all + taken, 64_000 + 10_000);
        assert!(accounts.charge(0, ports[1], 100) && accounts.is_over(0, ports[1]));
    }
}
