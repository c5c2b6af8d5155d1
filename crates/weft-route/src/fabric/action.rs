//! The action of a range of addresses in one word, which lookups read.

/// The action of a range, with ports relative to the router's first port. Nearly all groups have consecutive ports with
/// equal weights, and then this word is all that a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RangeAction {
    /// Send to one port.
    Port(u32),
    /// Select one of `ports` ports from `first` on, by Linux's thresholds.
    Threshold {
        ports: u16,
        first: u32,
    },
    /// Select one of `ports` ports from `first` on, by a switch chip's modulus.
    Modulo {
        ports: u16,
        first: u32,
    },
    /// Select a member of this group.
    Group(u32),
    NoRoute,
    Unreachable,
    Blackhole,
}
