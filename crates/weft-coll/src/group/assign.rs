//! The assignment of blocks to channels. A single channel takes all blocks. With two channels, a long call's
//! blocks are shared by the windows of Astral's section 3.3: one channel takes blocks from the front, the other
//! from the back, and each receives a new window when it has nearly finished one. All ranks must agree; rank 0
//! decides by its own clock and notifies the others over the inner channel, some blocks in advance.

use alloc::string::String;
use alloc::vec::Vec;

use weft_units::Instant;

use super::{ActiveCall, CHANNELS, Channel, Group, Windows, index};
use crate::header::{Header, Kind};

/// Number of blocks assigned at a time, enough to keep a channel busy while each block waits for its next message.
const BLOCKS_PER_PART: u32 = 4;
/// The number of unfinished blocks at which a channel receives its next window: the assignment must reach the
/// other ranks before they need it.
const LOW_WATERMARK: u32 = 8 * BLOCKS_PER_PART;
/// Maximum number of blocks of a call that uses the inner channel only; sharing it would take longer.
const MAX_INNER_BLOCKS: u32 = 16 * BLOCKS_PER_PART;
/// Number of blocks assigned to the network in a call before its rate is known: a tenth of the shortest such
/// call, which delays no other block even if the inner channel is seven times as fast.
const TRIAL_BLOCKS: u32 = 2 * BLOCKS_PER_PART;

/// The measured rates of the channels in recent long calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// The rate of each channel in bytes per second; 0 if unknown.
    bytes: [u64; 2],
    /// The network's shortest time for one part, in nanoseconds; 0 if unknown.
    latency: u64,
}

/// The leader's state of a shared call.
#[derive(Debug)]
pub(super) struct Sharing {
    windows: Windows,
    began: Instant,
    /// Numbers of blocks of each channel that were assigned and finished.
    assigned: [u32; 2],
    finished: [u32; 2],
    /// The time at which each channel finished its last block, and its first part.
    last_finished_at: [Instant; 2],
    first_part_at: [Option<Instant>; 2],
}

impl Sharing {
    /// Records that a channel has finished a block.
    pub(super) fn finished(&mut self, channel: Channel, now: Instant) {
        let channel = index(channel);
        self.finished[channel] += 1;
        self.last_finished_at[channel] = now;
        if self.finished[channel] == BLOCKS_PER_PART {
            self.first_part_at[channel] = Some(now);
        }
    }

    /// Returns the number of assigned blocks of a channel that are not finished.
    const fn unfinished(&self, channel: usize) -> u32 {
        self.assigned[channel] - self.finished[channel]
    }

    /// Returns `true` if a channel shall receive its next window now: it has nearly finished its blocks, and
    /// the other channel would not finish all remaining blocks earlier.
    fn is_due(&self, channel: usize, unassigned: u32, rates: &Rates) -> bool {
        let other = 1 - channel;
        let time = |channel: usize, blocks: u32| {
            u128::from(blocks) * u128::from(u32::MAX) / u128::from(rates.bytes[channel].max(1))
        };
        let late = if rates.are_known() {
            time(channel, self.unfinished(channel) + BLOCKS_PER_PART)
                > time(other, self.unfinished(other) + unassigned)
        } else {
            channel == index(Channel::Network) && self.assigned[channel] >= TRIAL_BLOCKS
        };
        self.unfinished(channel) <= LOW_WATERMARK && !late
    }
}

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// Assigns the next blocks to channels, call by call.
    pub(super) fn assign(&mut self) {
        while let Some(active) = self.calls.get(self.assigning) {
            let long = self.shares() && active.blocks > MAX_INNER_BLOCKS;
            match (long, self.rank) {
                (false, _) => self.assign_to_one(),
                (true, 0) => self.assign_by_windows(),
                (true, _) => self.assign_as_announced(),
            }
            let Some(active) = self.calls.get(self.assigning) else { return };
            if self.failed.is_some() || active.assigned < active.blocks {
                return;
            }
            self.assigning += 1;
        }
    }

    /// Assigns the blocks of a call that one channel carries.
    fn assign_to_one(&mut self) {
        let channel = self.config.channel.unwrap_or(Channel::Inner);
        let number = self.first + self.assigning as u64;
        let waiting = &mut self.channels[index(channel)].waiting;
        let active = &mut self.calls[self.assigning];
        // Only blocks that start soon are queued, because a call of gigabytes has very many.
        while active.assigned < active.blocks && waiting.len() < self.config.max_in_flight as usize
        {
            waiting.push_back((number, active.assigned));
            active.assigned += 1;
        }
    }

    /// Assigns windows of blocks to the channels that are due, and announces them to the other ranks.
    fn assign_by_windows(&mut self) {
        let active = &mut self.calls[self.assigning];
        let (parts, bytes) = (active.blocks.div_ceil(BLOCKS_PER_PART), active.call.bytes() as u64);
        let (rates, now) = (self.rates, self.now);
        let sharing = active.sharing.get_or_insert_with(|| Sharing {
            windows: rates.windows(bytes, parts as usize),
            began: now,
            assigned: [0; 2],
            finished: [0; 2],
            last_finished_at: [now; 2],
            first_part_at: [None; 2],
        });
        let mut taken = Vec::new();
        let mut more = true;
        while more {
            more = false;
            for channel in CHANNELS {
                let unassigned = active.blocks - sharing.assigned[0] - sharing.assigned[1];
                if !sharing.is_due(index(channel), unassigned, &rates) {
                    continue;
                }
                let Some(window) = sharing.windows.next(channel) else { continue };
                let block = |part: usize| u32::try_from(part).unwrap_or(u32::MAX) * BLOCKS_PER_PART;
                let range = block(window.start)..block(window.end).min(active.blocks);
                sharing.assigned[index(channel)] += range.end - range.start;
                taken.push((channel, range));
                more = true;
            }
        }
        let call = active.call;
        let number = self.first + self.assigning as u64;
        for (channel, range) in taken {
            let count = range.end - range.start;
            let header = self.header(Kind::Assign, call, number, range.start, channel);
            let header = Header { count, ..header };
            let own_rank = self.rank;
            let others = self.peers.iter_mut().enumerate().filter(|(peer, _)| *peer != own_rank);
            others.for_each(|(_, peer)| peer.notices.push_back((header, String::new())));
            self.enqueue_blocks(&header);
        }
    }

    /// Assigns blocks as rank 0 has announced.
    fn assign_as_announced(&mut self) {
        let number = self.first + self.assigning as u64;
        while let Some(header) = self.announced.pop_front_if(|header| header.number == number) {
            let active = &self.calls[self.assigning];
            if header.call != active.call {
                return self.refuse(0, number, active.call, header.call);
            }
            let end = header.block.checked_add(header.count);
            if end.is_none_or(|end| end > active.blocks)
                || header.count > active.blocks - active.assigned
            {
                return self.refuse(0, number, active.call, active.call);
            }
            self.enqueue_blocks(&header);
        }
    }

    fn enqueue_blocks(&mut self, header: &Header) {
        let waiting = &mut self.channels[usize::from(header.channel)].waiting;
        waiting.extend(
            (header.block..header.block + header.count).map(|block| (header.number, block)),
        );
        self.calls[self.assigning].assigned += header.count;
    }

    /// Updates the rates after a shared call.
    pub(super) fn update_rates(&mut self, active: &ActiveCall<B>) {
        let Some(sharing) = &active.sharing else { return };
        for channel in 0..CHANNELS.len() {
            let took = sharing.last_finished_at[channel].since(sharing.began).as_nanos();
            let blocks = u128::from(sharing.finished[channel]);
            if blocks < u128::from(BLOCKS_PER_PART) || took == 0 {
                continue;
            }
            let bytes = active.call.bytes() as u128 * blocks / u128::from(active.blocks.max(1));
            let rate = u64::try_from(bytes * 1_000_000_000 / u128::from(took)).unwrap_or(u64::MAX);
            let known = &mut self.rates.bytes[channel];
            *known = if *known == 0 { rate } else { *known / 4 * 3 + rate / 4 };
        }
        if let Some(first) = sharing.first_part_at[index(Channel::Network)] {
            let took = first.since(sharing.began).as_nanos();
            let known = self.rates.latency;
            self.rates.latency = if known == 0 { took } else { known.min(took) };
        }
    }
}

impl Rates {
    const fn are_known(&self) -> bool {
        self.bytes[0] > 0 && self.bytes[1] > 0
    }

    /// Returns windows for a call in proportion to the channels' rates; until those are known, it assumes that
    /// the inner channel is far faster.
    fn windows(&self, bytes: u64, parts: usize) -> Windows {
        if !self.are_known() {
            return Windows::new(parts, 8, 1);
        }
        let [inner, network] = self.bytes;
        let part = bytes / parts.max(1) as u64;
        let transfer = u128::from(part) * 1_000_000_000 / u128::from(network);
        let transfer = u64::try_from(transfer).unwrap_or(u64::MAX);
        let latency = self.latency.saturating_sub(transfer);
        Windows::for_message(bytes, parts, inner, network, latency)
    }
}
