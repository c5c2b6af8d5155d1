//! Two channels for one collective: the fast links inside a server and, beside them, the network
//! (Astral, section 3.3).
//!
//! The buffer is cut into blocks, and each block is a collective of its own on one channel, so that
//! neither waits for the other step by step: with latencies of 200 ns and 4 us it would run at the
//! slower one's pace. One channel takes windows of blocks from the front, the other from the back, a
//! new window whenever it has finished one, until they meet. A channel that slows down takes fewer;
//! nobody has to know why.

use core::ops::Range;

/// A channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Inside of the server; from the front.
    Inner,
    /// Over the network; from the back.
    Network,
}

/// Which blocks are left, and how many each channel takes at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    left: Range<usize>,
    inner: usize,
    network: usize,
}

impl Windows {
    /// So many blocks, with windows in proportion to what the channels carry: 100 and 50 GB/s give
    /// windows of 2 and 1 (the paper's example). The slower channel's window is one block.
    ///
    /// A rate of zero closes its channel.
    pub fn new(blocks: usize, inner_rate: u64, network_rate: u64) -> Self {
        let slower = inner_rate.min(network_rate).max(1);
        let window =
            |rate: u64| usize::try_from((rate + slower / 2) / slower).unwrap_or(usize::MAX);
        Self { left: 0..blocks, inner: window(inner_rate), network: window(network_rate) }
    }

    /// Blocks of the message of so many bytes that are worth it: the network channel is closed for
    /// messages that its latency alone makes slower than the other channel is with all of them.
    ///
    /// `network_latency_ns` is for a whole collective of one block, rates are in bytes per second.
    pub fn for_message(
        bytes: u64,
        blocks: usize,
        inner_rate: u64,
        network_rate: u64,
        network_latency_ns: u64,
    ) -> Self {
        let alone = u128::from(bytes) * 1_000_000_000 / u128::from(inner_rate.max(1));
        let block = bytes / (blocks as u64).max(1);
        let transfer = u128::from(block) * 1_000_000_000 / u128::from(network_rate.max(1));
        let pays = u128::from(network_latency_ns) + transfer < alone;
        Self::new(blocks, inner_rate, if pays { network_rate } else { 0 })
    }

    /// The next blocks for a channel that has finished what it had; none when all are taken.
    pub fn next(&mut self, channel: Channel) -> Option<Range<usize>> {
        let Range { start, end } = self.left;
        let window = match channel {
            Channel::Inner => self.inner,
            Channel::Network => self.network,
        };
        let taken = window.min(end - start);
        if taken == 0 {
            return None;
        }
        match channel {
            Channel::Inner => {
                self.left.start += taken;
                Some(start..start + taken)
            }
            Channel::Network => {
                self.left.end -= taken;
                Some(end - taken..end)
            }
        }
    }
}
