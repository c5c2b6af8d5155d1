//! Max-min fair rates of flows (Bertsekas and Gallager, *Data Networks*, section 6.5.2), computed by filling the
//! tightest link first.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::fabric::LinkId;

/// The links of many flows, in one array.
#[derive(Clone, Debug, Default)]
pub struct Routed {
    /// By flow, the index of its first link; then the number of links.
    first: Vec<u32>,
    links: Vec<LinkId>,
}

impl Routed {
    /// Adds a flow with its links.
    pub fn push(&mut self, links: &[LinkId]) {
        if self.first.is_empty() {
            self.first.push(0);
        }
        self.links.extend_from_slice(links);
        self.first.push(u32::try_from(self.links.len()).expect("fewer than 2^32 hops in all"));
    }

    /// Returns the number of flows.
    pub const fn len(&self) -> usize {
        self.first.len().saturating_sub(1)
    }

    /// Returns `true` if there are no flows.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the links of a flow.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn of(&self, flow: usize) -> &[LinkId] {
        &self.links[self.first[flow] as usize..self.first[flow + 1] as usize]
    }
}

/// Returns the rate of each flow in bits per second, for links of the given `capacity`; 0 for a flow without links.
pub fn max_min(routed: &Routed, capacity: &[f64]) -> Vec<f64> {
    // By link, the number of its flows whose rate is not set yet.
    let mut flow_counts = vec![0u32; capacity.len()];
    routed.links.iter().for_each(|link| flow_counts[link.index()] += 1);
    let crossing = crossing(routed, &flow_counts);
    // By link, the capacity that flows with a rate leave.
    let mut residual = capacity.to_vec();
    let share = |residual: f64, flows: u32| residual.max(0.0) / f64::from(flows);
    // Shares are not negative, so the order of their bits is the order of their values.
    let key = |share: f64, link: usize| Reverse((share.to_bits(), link));
    let mut heap: BinaryHeap<_> = (0..capacity.len())
        .filter(|&link| flow_counts[link] > 0)
        .map(|link| key(share(residual[link], flow_counts[link]), link))
        .collect();
    let mut rates = vec![0.0; routed.len()];
    let mut is_set = vec![false; routed.len()];
    while let Some(Reverse((bits, link))) = heap.pop() {
        if flow_counts[link] == 0 {
            continue;
        }
        // A link's share only grows while other links are filled: an entry that is too low is pushed again.
        let now = share(residual[link], flow_counts[link]);
        if now.to_bits() > bits {
            heap.push(key(now, link));
            continue;
        }
        for &flow in crossing.of(link) {
            let flow = flow as usize;
            if core::mem::replace(&mut is_set[flow], true) {
                continue;
            }
            rates[flow] = now;
            for other in routed.of(flow) {
                residual[other.index()] -= now;
                flow_counts[other.index()] -= 1;
            }
        }
    }
    rates
}

/// By link, the flows that cross it.
struct Crossing {
    first: Vec<u32>,
    flows: Vec<u32>,
}

impl Crossing {
    fn of(&self, link: usize) -> &[u32] {
        &self.flows[self.first[link] as usize..self.first[link + 1] as usize]
    }
}

fn crossing(routed: &Routed, flow_counts: &[u32]) -> Crossing {
    let mut first = Vec::with_capacity(flow_counts.len() + 1);
    let mut sum = 0;
    for &count in flow_counts {
        first.push(sum);
        sum += count;
    }
    first.push(sum);
    let mut next = first.clone();
    let mut flows = vec![0u32; routed.links.len()];
    for flow in 0..routed.len() {
        for link in routed.of(flow) {
            let place = &mut next[link.index()];
            flows[*place as usize] = u32::try_from(flow).expect("fewer than 2^32 flows");
            *place += 1;
        }
    }
    Crossing { first, flows }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn routed(flows: &[&[u32]]) -> Routed {
        let mut routed = Routed::default();
        for flow in flows {
            routed.push(&flow.iter().copied().map(LinkId).collect::<Vec<_>>());
        }
        routed
    }

    #[test]
    fn the_textbooks_network_has_the_textbooks_rates() {
        // Bertsekas and Gallager, figure 6.11: link capacities are 1. Sessions 1, 2 and 3 share one link and get 1/3
        // each; session 4 shares another link with session 1 alone and gets the other 2/3; session 5 is alone on a
        // third link.
        let flows = routed(&[&[0, 1], &[0], &[0], &[1], &[2]]);
        let rates = max_min(&flows, &[1.0; 3]);
        let want = [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 2.0 / 3.0, 1.0];
        assert!(
            rates.iter().zip(want).all(|(rate, want)| (rate - want).abs() < 1e-12),
            "{rates:?}"
        );
    }

    /// Checks the definition of max-min fairness: no link is above its capacity, and every flow crosses a full link on
    /// which no other flow has a higher rate.
    #[test]
    fn random_networks_are_filled_fairly() {
        for seed in 0..300 {
            let mut rng = Seed(seed).child("rates", 0).rng();
            let capacity: Vec<f64> =
                (0..12).map(|_| f64::from(u32::try_from(rng.below(9)).unwrap() + 1)).collect();
            let mut flows = Routed::default();
            for _ in 0..rng.below(40) + 1 {
                let mut links: Vec<u32> = (0..12).collect();
                rng.shuffle(&mut links);
                let count = rng.index(4) + 1;
                flows.push(&links[..count].iter().copied().map(LinkId).collect::<Vec<_>>());
            }
            let rates = max_min(&flows, &capacity);
            let load = |link: u32| -> f64 {
                let crosses = |flow: &usize| flows.of(*flow).contains(&LinkId(link));
                (0..flows.len()).filter(crosses).map(|flow| rates[flow]).sum()
            };
            for link in 0..12 {
                assert!(load(link) <= capacity[link as usize] + 1e-9, "seed {seed}: link {link}");
            }
            for flow in 0..flows.len() {
                let is_bottleneck = |link: &LinkId| {
                    let full = load(link.0) > capacity[link.index()] - 1e-9;
                    let others = (0..flows.len()).filter(|other| flows.of(*other).contains(link));
                    full && others.into_iter().all(|other| rates[other] <= rates[flow] + 1e-9)
                };
                assert!(flows.of(flow).iter().any(is_bottleneck), "seed {seed}: flow {flow}");
            }
        }
    }
}
