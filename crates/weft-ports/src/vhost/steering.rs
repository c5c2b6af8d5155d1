//! The queue pair of each flow, in a device with several: frames for the guest enter the receive queue of the pair from
//! which the guest last sent a frame of the flow (virtio 1.2, 5.1.6.5, automatic receive steering). So a flow stays on
//! one of the guest's processors in both directions.

use weft_vpc::Frame;

/// Number of groups of flows. Flows of one group use the same pair.
const GROUPS: usize = 1_024;

/// The pair of each group of flows, by the hash of a flow.
#[derive(Debug)]
pub(super) struct Steering {
    /// The pair's number plus one; zero for a group from which the guest has sent nothing.
    pairs: Box<[u8; GROUPS]>,
}

/// Returns the hash of the flow of a frame of `len` bytes that begins with `head`, the same in both directions; `None`
/// for a frame without headers that can be parsed. Lengths and `head` do not include the virtio header.
pub(super) fn flow_of(head: &[u8], len: u32) -> Option<u32> {
    let frame = Frame::parse(head, len as usize).ok()?;
    Some(frame.two_way_flow_hash())
}

impl Default for Steering {
    fn default() -> Self {
        Self { pairs: Box::new([0; GROUPS]) }
    }
}

impl Steering {
    /// Records that the guest sent a frame of the flow from a pair.
    pub(super) fn record(&mut self, flow: u32, pair: usize) {
        self.pairs[flow as usize % GROUPS] = u8::try_from(pair + 1).unwrap_or(0);
    }

    /// Returns the pair for the next frame of a flow among the `pairs` of which `is_running` returns `true`; the first
    /// one for frames of unknown flows, and if no pair is running.
    pub(super) fn pair_of(
        &self,
        flow: Option<u32>,
        pairs: usize,
        is_running: impl Fn(usize) -> bool,
    ) -> usize {
        let mut running = (0..pairs).filter(|&pair| is_running(pair));
        let Some(flow) = flow.map(|flow| flow as usize) else {
            return running.next().unwrap_or(0);
        };
        let recorded = usize::from(self.pairs[flow % GROUPS]).checked_sub(1);
        if let Some(pair) = recorded.filter(|&pair| pair < pairs && is_running(pair)) {
            return pair;
        }
        let count = running.clone().count();
        if count == 0 { 0 } else { running.nth(flow / GROUPS % count).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_follows_the_pair_from_which_it_was_sent_while_that_runs() {
        let mut steering = Steering::default();
        steering.record(5, 3);
        assert_eq!(steering.pair_of(Some(5), 4, |_| true), 3);
        // Without pair 3 the flow has another pair, and always the same one.
        let other = steering.pair_of(Some(5), 4, |pair| pair < 3);
        assert!(other < 3 && steering.pair_of(Some(5), 4, |pair| pair < 3) == other);
        steering.record(5, 1);
        assert_eq!(steering.pair_of(Some(5), 4, |_| true), 1);
    }

    #[test]
    fn flows_that_were_never_sent_are_spread_over_the_running_pairs() {
        let steering = Steering::default();
        let flows = (0_u32..4_096).map(|flow| flow.wrapping_mul(2_654_435_761));
        let mut seen = [0; 4];
        flows.for_each(|flow| seen[steering.pair_of(Some(flow), 4, |pair| pair != 2)] += 1);
        assert!(seen[2] == 0 && [0, 1, 3].iter().all(|&pair| seen[pair] > 1_000), "{seen:?}");
        assert_eq!(steering.pair_of(None, 4, |pair| pair > 1), 2);
        assert_eq!(steering.pair_of(Some(7), 4, |_| false), 0);
    }
}
