//! Which channel takes which block. Where there is one channel, it takes all. Where there are two, a long call's blocks
//! are shared by the windows of Astral's section 3.3: one channel takes them from the front, the other from the back, a
//! new window whenever it has nearly finished one. All ranks must agree; rank 0 decides by its own clock and tells the
//! others, over the inner channel, some blocks before they are needed.

use alloc::string::String;
use alloc::vec::Vec;

use weft_units::Instant;

use super::{Asked, BOTH, Channel, Group, Windows, index};
use crate::head::{Head, Kind};

/// Blocks that are assigned at a time: as many as keep a channel busy while each waits for its next message.
const PART: u32 = 4;
/// A channel is given its next window when so many blocks or fewer are left of what it has: the others must hear of it
/// before they need it.
const AHEAD: u32 = 8 * PART;
/// Calls of no more blocks are the inner channel's, without a word: to share them would take longer.
const LONG: u32 = 16 * PART;
/// Blocks that the network is given in a call before it is known what it carries: of the shortest such call a tenth, which
/// does not keep the others waiting even where the inner channel is seven times as fast.
const TRIAL: u32 = 2 * PART;

/// What the channels carried of the last long calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Bytes a second of each channel; 0 before it is known.
    bytes: [u64; 2],
    /// The shortest time that the network took for a part, ns.
    latency: u64,
}

/// How a call is shared: the leader's books.
#[derive(Debug)]
pub(super) struct Sharing {
    windows: Windows,
    began: Instant,
    /// Blocks that each channel was given, and has finished.
    given: [u32; 2],
    finished: [u32; 2],
    /// When each channel finished its last, and its first part.
    last: [Instant; 2],
    first: [Option<Instant>; 2],
}

impl Sharing {
    pub(super) fn finished(&mut self, channel: Channel, now: Instant) {
        let channel = index(channel);
        self.finished[channel] += 1;
        self.last[channel] = now;
        if self.finished[channel] == PART {
            self.first[channel] = Some(now);
        }
    }

    const fn open(&self, channel: usize) -> u32 {
        self.given[channel] - self.finished[channel]
    }

    /// Whether a channel is to have its next window now: when it has nearly finished what it has, and unless the other
    /// would be done with all that is left before.
    fn pays(&self, channel: usize, left: u32, rates: &Rates) -> bool {
        let other = 1 - channel;
        let time = |channel: usize, blocks: u32| {
            u128::from(blocks) * u128::from(u32::MAX) / u128::from(rates.bytes[channel].max(1))
        };
        let late = if rates.are_known() {
            time(channel, self.open(channel) + PART) > time(other, self.open(other) + left)
        } else {
            channel == index(Channel::Network) && self.given[channel] >= TRIAL
        };
        self.open(channel) <= AHEAD && !late
    }
}

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// Gives channels the blocks they may take next, call after call.
    pub(super) fn assign(&mut self) {
        while let Some(asked) = self.calls.get(self.assigning) {
            let long = self.shares() && asked.blocks > LONG;
            match (long, self.rank) {
                (false, _) => self.assign_to_one(),
                (true, 0) => self.assign_by_windows(),
                (true, _) => self.assign_as_told(),
            }
            let Some(asked) = self.calls.get(self.assigning) else { return };
            if self.failed.is_some() || asked.assigned < asked.blocks {
                return;
            }
            self.assigning += 1;
        }
    }

    fn assign_to_one(&mut self) {
        let channel = self.config.only.unwrap_or(Channel::Inner);
        let number = self.first + self.assigning as u64;
        let waiting = &mut self.channels[index(channel)].waiting;
        let asked = &mut self.calls[self.assigning];
        // As many as are soon begun: of a call of gigabytes the rest need not stand there.
        while asked.assigned < asked.blocks && waiting.len() < self.config.under_way as usize {
            waiting.push_back((number, asked.assigned));
            asked.assigned += 1;
        }
    }

    fn assign_by_windows(&mut self) {
        let asked = &mut self.calls[self.assigning];
        let (parts, bytes) = (asked.blocks.div_ceil(PART), asked.call.bytes() as u64);
        let (rates, now) = (self.rates, self.now);
        let sharing = asked.sharing.get_or_insert_with(|| Sharing {
            windows: rates.windows(bytes, parts as usize),
            began: now,
            given: [0; 2],
            finished: [0; 2],
            last: [now; 2],
            first: [None; 2],
        });
        let mut taken = Vec::new();
        let mut more = true;
        while more {
            more = false;
            for channel in BOTH {
                let left = asked.blocks - sharing.given[0] - sharing.given[1];
                if !sharing.pays(index(channel), left, &rates) {
                    continue;
                }
                let Some(window) = sharing.windows.next(channel) else { continue };
                let block = |part: usize| u32::try_from(part).unwrap_or(u32::MAX) * PART;
                let range = block(window.start)..block(window.end).min(asked.blocks);
                sharing.given[index(channel)] += range.end - range.start;
                taken.push((channel, range));
                more = true;
            }
        }
        let call = asked.call;
        let number = self.first + self.assigning as u64;
        for (channel, range) in taken {
            let count = range.end - range.start;
            let head = self.head(Kind::Assign, call, number, range.start, channel);
            let head = Head { count, ..head };
            let mine = self.rank;
            let others = self.peers.iter_mut().enumerate().filter(|(peer, _)| *peer != mine);
            others.for_each(|(_, peer)| peer.notices.push_back((head, String::new())));
            self.give(&head);
        }
    }

    fn assign_as_told(&mut self) {
        let number = self.first + self.assigning as u64;
        while let Some(head) = self.announced.pop_front_if(|head| head.number == number) {
            let asked = &self.calls[self.assigning];
            if head.call != asked.call {
                return self.refuse(0, number, asked.call, head.call);
            }
            let end = head.block.checked_add(head.count);
            if end.is_none_or(|end| end > asked.blocks)
                || head.count > asked.blocks - asked.assigned
            {
                return self.refuse(0, number, asked.call, asked.call);
            }
            self.give(&head);
        }
    }

    fn give(&mut self, head: &Head) {
        let waiting = &mut self.channels[usize::from(head.channel)].waiting;
        waiting.extend((head.block..head.block + head.count).map(|block| (head.number, block)));
        self.calls[self.assigning].assigned += head.count;
    }

    /// Learns from a call that was shared.
    pub(super) fn note_rates(&mut self, asked: &Asked<B>) {
        let Some(sharing) = &asked.sharing else { return };
        for channel in 0..BOTH.len() {
            let took = sharing.last[channel].since(sharing.began).as_nanos();
            let blocks = u128::from(sharing.finished[channel]);
            if blocks < u128::from(PART) || took == 0 {
                continue;
            }
            let bytes = asked.call.bytes() as u128 * blocks / u128::from(asked.blocks.max(1));
            let rate = u64::try_from(bytes * 1_000_000_000 / u128::from(took)).unwrap_or(u64::MAX);
            let known = &mut self.rates.bytes[channel];
            *known = if *known == 0 { rate } else { *known / 4 * 3 + rate / 4 };
        }
        if let Some(first) = sharing.first[index(Channel::Network)] {
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

    /// Windows for a call, as large as the channels are fast; before that is known as if the inner one were far faster.
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
