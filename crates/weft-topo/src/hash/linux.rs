//! The multipath hash of Linux, bit for bit: `fib_multipath_hash` in `net/ipv4/route.c`,
//! `rt6_multipath_hash` in `net/ipv6/route.c`, the flow dissector's key layout, SipHash-2-4, and the
//! hash-threshold choice of a next hop, which is the same for both.
//!
//! It is exact for a router's transit traffic. Two behaviours of the kernel are not modelled: policy 1
//! reuses a hash that the packet already carries (so use policy 3 for real sockets), and a router's own
//! packets prefer a next hop with their source address. A sysctl seed of zero means a secret random
//! seed: the hash of such a router cannot be computed.

use super::{FiveTuple, FiveTuple6};

/// `fib_multipath_hash_policy` of `net.ipv4` or `net.ipv6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// 0: addresses only; for IPv6 also the flow label and the protocol.
    Layer3,
    /// 1: addresses, protocol and ports.
    Layer4,
    /// 2: as 0, over the inner header of a tunnel. The flows here are not in tunnels.
    InnerLayer3,
    /// 3: the fields that `net.ipv4.fib_multipath_hash_fields` selects, hashed a second time with the
    /// (absent) inner headers.
    Fields(Fields),
}

/// `fib_multipath_hash_fields` of `net.ipv4` or `net.ipv6`: the bits for outer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields(pub u32);

impl Fields {
    /// Source address.
    pub const SRC: u32 = 0x01;
    /// Destination address.
    pub const DST: u32 = 0x02;
    /// IP protocol.
    pub const PROTOCOL: u32 = 0x04;
    /// Flow label (IPv6).
    pub const FLOW_LABEL: u32 = 0x08;
    /// Source port.
    pub const SRC_PORT: u32 = 0x10;
    /// Destination port.
    pub const DST_PORT: u32 = 0x20;
    /// The whole five-tuple: 0x37.
    pub const FIVE_TUPLE: Self =
        Self(Self::SRC | Self::DST | Self::PROTOCOL | Self::SRC_PORT | Self::DST_PORT);

    /// Returns the tuple with zeros in the fields that are not selected.
    #[inline]
    fn select(self, tuple: &FiveTuple) -> FiveTuple {
        if self == Self::FIVE_TUPLE {
            return *tuple;
        }
        let has = |field| self.0 & field != 0;
        FiveTuple {
            src: if has(Self::SRC) { tuple.src } else { 0 },
            dst: if has(Self::DST) { tuple.dst } else { 0 },
            src_port: if has(Self::SRC_PORT) { tuple.src_port } else { 0 },
            dst_port: if has(Self::DST_PORT) { tuple.dst_port } else { 0 },
            protocol: if has(Self::PROTOCOL) { tuple.protocol } else { 0 },
        }
    }
}

/// Returns the 31-bit number that a router with this `seed` compares with its thresholds.
pub fn multipath_hash(policy: Policy, seed: u32, tuple: &FiveTuple) -> u32 {
    Keyed::new(policy, seed, tuple.protocol).hash(tuple)
}

/// Returns [`multipath_hash`] of an IPv6 packet.
pub fn multipath_hash6(policy: Policy, seed: u32, tuple: &FiveTuple6) -> u32 {
    let all = Fields::FIVE_TUPLE;
    let labelled = Fields(Fields::SRC | Fields::DST | Fields::PROTOCOL | Fields::FLOW_LABEL);
    let (fields, twice) = match policy {
        Policy::Layer3 | Policy::InnerLayer3 => (labelled, false),
        Policy::Layer4 => (all, false),
        Policy::Fields(fields) => (fields, true),
    };
    let has = |field| fields.0 & field != 0;
    let if_has = |field, value: u64| if has(field) { value } else { 0 };
    // The dissector converts the label to a native integer; policy 0 hashes it in network order.
    let label = tuple.flow_label & 0xf_ffff;
    let label = if policy == Policy::Layer3 { label.swap_bytes() } else { label };
    let address = |field, of: core::net::Ipv6Addr| if has(field) { of.octets() } else { [0; 16] };
    let (a, b) = sorted(address(Fields::SRC, tuple.src), address(Fields::DST, tuple.dst));
    let (p, q) = sorted(
        if_has(Fields::SRC_PORT, tuple.src_port.swap_bytes().into()),
        if_has(Fields::DST_PORT, tuple.dst_port.swap_bytes().into()),
    );
    let key = u64::from(seed) << 32 | u64::from(seed);
    let head = if_has(Fields::PROTOCOL, tuple.protocol.into()) << 16
        | if_has(Fields::FLOW_LABEL, label.into()) << 32;
    let before = SipHash::new(key, key).word(head).word(0).word(0).word(p << 32 | q << 48);
    // The addresses begin in the middle of a word, after the ICMP key, which is zero.
    let mut bytes = [0; 40];
    bytes[4..20].copy_from_slice(&a);
    bytes[20..36].copy_from_slice(&b);
    let words = bytes.as_chunks::<8>().0;
    let hash = words.iter().fold(before, |hash, word| hash.word(u64::from_le_bytes(*word)));
    #[expect(clippy::cast_possible_truncation, reason = "the kernel keeps the low half")]
    let hash = (hash.finish(FLOW_KEY_WORDS6) as u32).max(1);
    (if twice { jhash_2words(hash, 0, 0) } else { hash }) >> 1
}

/// A router's hash for packets of one protocol. Three of the six hashed words, which precede addresses and ports, are
/// the same for all these packets and are hashed once.
#[derive(Clone, Copy, Debug)]
pub struct Keyed {
    fields: Fields,
    /// `true` under policy 3, which hashes the hash a second time.
    twice: bool,
    before_ports: SipHash,
}

impl Keyed {
    /// Returns the hash of a router with this policy and `seed` for packets of `protocol`.
    pub const fn new(policy: Policy, seed: u32, protocol: u8) -> Self {
        let (fields, twice) = match policy {
            Policy::Layer3 | Policy::InnerLayer3 => (Fields(Fields::SRC | Fields::DST), false),
            Policy::Layer4 => (Fields::FIVE_TUPLE, false),
            Policy::Fields(fields) => (fields, true),
        };
        let key = (seed as u64) << 32 | seed as u64;
        let protocol = if fields.0 & Fields::PROTOCOL == 0 { 0 } else { protocol };
        let keyed = SipHash::new(key, key).word((protocol as u64) << 16).word(0).word(0);
        Self { fields, twice, before_ports: keyed }
    }

    /// Returns [`multipath_hash`] of a tuple whose protocol is that of [`Self::new`].
    #[inline]
    pub fn hash(&self, tuple: &FiveTuple) -> u32 {
        let hash = self.flow_hash(&self.fields.select(tuple));
        (if self.twice { jhash_2words(hash, 0, 0) } else { hash }) >> 1
    }

    /// Returns the kernel's `flow_hash_from_keys`: equal in both directions, never zero.
    #[inline]
    fn flow_hash(&self, tuple: &FiveTuple) -> u32 {
        // The kernel orders the raw network-order fields as native integers, hence little-endian, and
        // orders ports and addresses independently of each other.
        let (a, b) = sorted(tuple.src.swap_bytes(), tuple.dst.swap_bytes());
        let (p, q) = sorted(tuple.src_port.swap_bytes(), tuple.dst_port.swap_bytes());
        let ports = u64::from(p) << 32 | u64::from(q) << 48;
        let hash = self.before_ports.word(ports).word(u64::from(a) << 32).word(u64::from(b));
        #[expect(clippy::cast_possible_truncation, reason = "the kernel keeps the low half")]
        let hash = hash.finish(FLOW_KEY_WORDS) as u32;
        hash.max(1)
    }
}

/// Returns the index of the first of `count` equal members whose threshold is above `hash`, a number of 31 bits.
///
/// # Panics
/// Panics if `count` is zero.
#[inline]
pub fn select(hash: u32, count: usize) -> usize {
    let count = count as u64;
    if count.is_power_of_two() {
        // The thresholds are integers without rounding.
        return ((u64::from(hash) * count) >> 31) as usize;
    }
    // Rounding moves a threshold by at most one half, so the estimate differs from the index by at most one.
    let estimate = (u64::from(hash) * count) >> 31;
    let index = if u64::from(hash) >= threshold(estimate + 1, count) {
        estimate + 1
    } else if u64::from(hash) < threshold(estimate, count) {
        estimate - 1
    } else {
        estimate
    };
    usize::try_from(index).expect("below `count`")
}

/// Returns the index of the first member of non-zero weight whose threshold is above `hash`, a number of 31 bits.
/// `weights` are in the kernel's order; a member that is down has weight zero. Returns `None` if all weights are zero.
pub fn select_weighted(hash: u32, weights: &[u32]) -> Option<usize> {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    let mut so_far = 0;
    weights.iter().position(|&weight| {
        so_far += u64::from(weight);
        weight > 0 && u64::from(hash) < threshold(so_far, total)
    })
}

/// Returns the threshold of the member up to which weights sum to `part` of `total`: `2^31 · part / total`, rounded
/// half up, which is one more than the kernel's inclusive upper bound. The router takes the first member whose
/// threshold is above the hash.
///
/// # Panics
/// Panics if `total` is zero.
pub const fn threshold(part: u64, total: u64) -> u64 {
    ((part << 31) + total / 2) / total
}

/// Number of 64-bit words of the kernel's flow keys that are hashed, with IPv4 addresses.
const FLOW_KEY_WORDS: u64 = 6;
/// Number of these words with IPv6 addresses, each twelve bytes longer.
const FLOW_KEY_WORDS6: u64 = 9;

fn sorted<T: Ord>(a: T, b: T) -> (T, T) {
    if b < a { (b, a) } else { (a, b) }
}

/// The state of SipHash-2-4 (Aumasson and Bernstein 2012) over whole little-endian words.
#[derive(Clone, Copy, Debug)]
struct SipHash([u64; 4]);

impl SipHash {
    const fn new(k0: u64, k1: u64) -> Self {
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    const fn word(self, word: u64) -> Self {
        let Self([v0, v1, v2, v3]) = self;
        let Self([v0, v1, v2, v3]) = Self([v0, v1, v2, v3 ^ word]).round().round();
        Self([v0 ^ word, v1, v2, v3])
    }

    /// Returns the hash of the message, which has `words` words.
    #[inline]
    const fn finish(self, words: u64) -> u64 {
        let Self([v0, v1, v2, v3]) = self.word((words * 8) << 56);
        let Self([v0, v1, v2, v3]) = Self([v0, v1, v2 ^ 0xff, v3]).round().round().round().round();
        v0 ^ v1 ^ v2 ^ v3
    }

    #[inline]
    const fn round(self) -> Self {
        let Self([mut v0, mut v1, mut v2, mut v3]) = self;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        Self([v0, v1, v2, v3])
    }
}

/// `jhash_2words`: the final mix of Jenkins' lookup3 (2006).
const fn jhash_2words(a: u32, b: u32, init: u32) -> u32 {
    let start = init.wrapping_add(0xdead_beef + 8);
    let (mut a, mut b, mut c) = (a.wrapping_add(start), b.wrapping_add(start), start);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests;
