//! One collective over two channels: the fast links inside a server and, in parallel, the network (Astral,
//! section 3.3).
//!
//! The buffer is cut into blocks. Each block is a collective of its own on one channel, so that no channel
//! waits for the other at each step: with latencies of 200 ns and 4 us both would run at the slower pace. One
//! channel takes windows of blocks from the front and the other from the back, a new window whenever it has
//! finished one, until they meet. A channel that slows down for any reason takes fewer blocks.

use core::ops::Range;

/// A channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The links inside the server; it takes blocks from the front.
    Inner,
    /// The network; it takes blocks from the back.
    Network,
}

/// The remaining blocks, and the window size of each channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    remaining: Range<usize>,
    inner: usize,
    network: usize,
}

impl Windows {
    /// Returns windows over `blocks` blocks, in proportion to the channels' rates: 100 and 50 GB/s give windows
    /// of 2 and 1 (the paper's example). The slower channel's window is one block.
    ///
    /// A rate of zero closes its channel.
    pub fn new(blocks: usize, inner_rate: u64, network_rate: u64) -> Self {
        let slower = inner_rate.min(network_rate).max(1);
        let window =
            |rate: u64| usize::try_from((rate + slower / 2) / slower).unwrap_or(usize::MAX);
        Self { remaining: 0..blocks, inner: window(inner_rate), network: window(network_rate) }
    }

    /// Returns windows for a message of `bytes` bytes. The network channel is closed if one block over it takes
    /// longer than the whole message over the other channel.
    ///
    /// `network_latency_ns` is the latency of a collective of one block; rates are in bytes per second.
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
        let is_faster = u128::from(network_latency_ns) + transfer < alone;
        Self::new(blocks, inner_rate, if is_faster { network_rate } else { 0 })
    }

    /// Returns the next blocks for a channel that has finished its window; `None` when all are taken.
    pub fn next(&mut self, channel: Channel) -> Option<Range<usize>> {
        let Range { start, end } = self.remaining;
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
                self.remaining.start += taken;
                Some(start..start + taken)
            }
            Channel::Network => {
                self.remaining.end -= taken;
                Some(end - taken..end)
            }
        }
    }
}
