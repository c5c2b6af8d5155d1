//! One group of next hops, prepared for selection by hash.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::hash::linux;

use super::LinkId;
use super::action::RangeAction;

/// The live next hops of a group in the order installed.
#[derive(Clone, Debug)]
pub(super) struct Group {
    links: Box<[LinkId]>,
    choice: Choice,
}

#[derive(Clone, Debug)]
enum Choice {
    /// One next hop.
    One,
    /// Linux's hash thresholds with equal weights.
    Threshold,
    /// A switch chip's modulus with equal weights.
    Modulo,
    /// The first member whose bound is above the hash, or above the hash modulo `modulus`.
    Bounds { bounds: Box<[u64]>, modulus: Option<u64> },
    /// The members of a resilient group, by bucket.
    Buckets(Box<[u16]>),
}

/// A member from which a [`Group`] is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) link: LinkId,
    pub(super) weight: u32,
    /// `true` if the port is up, or the router ignores link state.
    pub(super) alive: bool,
    /// `true` if the neighbour answers.
    pub(super) reachable: bool,
}

impl Group {
    /// Builds a group that selects by thresholds (Linux) or by modulus; `None` if every member is dead.
    pub(super) fn new(members: &[Member], by_threshold: bool) -> Option<Self> {
        // `fib_rebalance`: dead members are left out, and thresholds are computed from the rest.
        let alive: Vec<Member> =
            members.iter().copied().filter(|member| member.alive && member.weight > 0).collect();
        let links = reachable(&alive);
        let first = alive.first()?.weight;
        let choice = if alive.len() == 1 {
            Choice::One
        } else if alive.iter().any(|member| member.weight != first) {
            bounds(&alive, by_threshold)
        } else if by_threshold {
            Choice::Threshold
        } else {
            Choice::Modulo
        };
        Some(Self { links, choice })
    }

    /// Builds a resilient group. Buckets of dead members go to the members that are furthest below the share of their
    /// weight, in order: `nh_res_group_rebalance` in `net/ipv4/nexthop.c`.
    pub(super) fn resilient(members: &[Member], buckets: &[u16]) -> Option<Self> {
        let total: u64 = members.iter().filter(|m| m.alive).map(|m| u64::from(m.weight)).sum();
        if total == 0 {
            return None;
        }
        let mut held = vec![0u64; members.len()];
        buckets.iter().for_each(|&member| held[usize::from(member)] += 1);
        let (mut wanted, mut so_far, mut before) = (vec![0u64; members.len()], 0, 0);
        for (member, wanted) in members.iter().zip(&mut wanted).filter(|(m, _)| m.alive) {
            so_far += u64::from(member.weight);
            let bound = (buckets.len() as u64 * so_far + total / 2) / total;
            *wanted = bound - before;
            before = bound;
        }
        let mut next = 0;
        let mut table = buckets.to_vec();
        for bucket in table.iter_mut().filter(|bucket| !members[usize::from(**bucket)].alive) {
            while next < members.len() && held[next] >= wanted[next] {
                next += 1;
            }
            // If all members have their share or more, the first live member takes the bucket.
            let place =
                if next < members.len() { next } else { members.iter().position(|m| m.alive)? };
            held[place] += 1;
            *bucket = u16::try_from(place).expect("buckets name members by 16 bits");
        }
        let links = members.iter().map(|member| member.link).collect();
        Some(Self { links, choice: Choice::Buckets(table.into()) })
    }

    /// Returns the group in one word, if it is simple enough, with ports relative to the router's first link.
    pub(super) fn range_action(&self, first_port: LinkId) -> Option<RangeAction> {
        let &first = self.links.first()?;
        let ports = u16::try_from(self.links.len()).ok()?;
        let is_row = self.links.iter().zip(first.0..).all(|(link, number)| link.0 == number);
        let first = first.0.checked_sub(first_port.0)?;
        match self.choice {
            Choice::One => Some(RangeAction::Port(first)),
            Choice::Threshold if is_row => Some(RangeAction::Threshold { ports, first }),
            Choice::Modulo if is_row => Some(RangeAction::Modulo { ports, first }),
            _ => None,
        }
    }

    /// Returns `true` if the selection needs a hash.
    pub(super) const fn chooses(&self) -> bool {
        !matches!(self.choice, Choice::One)
    }

    /// Returns the link for a hash.
    #[inline]
    pub(super) fn select(&self, value: u32) -> LinkId {
        let place = match &self.choice {
            Choice::One => 0,
            Choice::Threshold => linux::select(value, self.links.len()),
            Choice::Modulo => modulo(value, self.links.len()),
            Choice::Bounds { bounds, modulus } => {
                let value = u64::from(value);
                let value = modulus.map_or(value, |modulus| value % modulus);
                bounds.partition_point(|&bound| bound <= value)
            }
            Choice::Buckets(buckets) => usize::from(buckets[modulo(value, buckets.len())]),
        };
        self.links[place]
    }

    /// Returns every link with its share of all hashes, in millionths.
    pub(super) fn shares(&self) -> Vec<(LinkId, u32)> {
        const WHOLE: u64 = 1_000_000;
        let part = |part: u64, whole: u64| {
            u32::try_from(part * WHOLE / whole).expect("a part is not above the whole")
        };
        let count = self.links.len() as u64;
        match &self.choice {
            Choice::One | Choice::Threshold | Choice::Modulo => {
                self.links.iter().map(|&link| (link, part(1, count))).collect()
            }
            Choice::Bounds { bounds, modulus } => {
                let whole = modulus.unwrap_or(1 << 31);
                let below = core::iter::once(&0).chain(bounds.iter());
                let widths = bounds.iter().zip(below).map(|(bound, below)| bound - below);
                self.links.iter().zip(widths).map(|(&link, w)| (link, part(w, whole))).collect()
            }
            Choice::Buckets(buckets) => {
                let held = |place: usize| {
                    buckets.iter().filter(|&&bucket| usize::from(bucket) == place).count() as u64
                };
                let links = self.links.iter().enumerate();
                links
                    .map(|(place, &link)| (link, part(held(place), buckets.len() as u64)))
                    .collect()
            }
        }
    }
}

/// Replaces a member whose neighbour does not answer by the next member that does, or else by the first that does;
/// if none does, by the first of all (`nexthop_select_path_hthr`).
fn reachable(alive: &[Member]) -> Box<[LinkId]> {
    let first = alive.iter().find(|member| member.reachable).or_else(|| alive.first());
    (0..alive.len())
        .filter_map(|place| {
            alive[place..].iter().find(|member| member.reachable).or(first).map(|m| m.link)
        })
        .collect()
}

fn bounds(alive: &[Member], by_threshold: bool) -> Choice {
    let total: u64 = alive.iter().map(|member| u64::from(member.weight)).sum();
    let mut so_far = 0;
    let bound = |member: &Member| {
        so_far += u64::from(member.weight);
        if by_threshold { linux::threshold(so_far, total) } else { so_far }
    };
    let bounds = alive.iter().map(bound).collect();
    Choice::Bounds { bounds, modulus: (!by_threshold).then_some(total) }
}

/// Returns `value % count`. A division costs tens of cycles, and most group sizes are powers of two.
#[inline]
pub(super) const fn modulo(value: u32, count: usize) -> usize {
    let value = value as usize;
    if count.is_power_of_two() { value & (count - 1) } else { value % count }
}
