//! The execution of a block's steps.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::ToString;
use core::ops::Range;

use weft_plan::collective::{Chunks, Reduction, Schedule, Step};

use super::{ActiveCall, CHANNELS, Channel, Group, index};
use crate::header::{HEADER_LEN, Kind};
use crate::{Call, Collective, Error, Link, Op};

/// A block in progress on a channel.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) call: u64,
    pub(super) block: u32,
    /// The block's number on its channel.
    ordinal: u64,
    /// Number of completed steps.
    pub(super) at: usize,
}

/// The result of a step.
enum Outcome {
    Done,
    /// The step waits for a message, for room on the link, or for the receiver's progress.
    Waits,
}

/// Returns the byte range of a block's piece of a chunk. Lengths differ by at most one element.
fn piece(chunk: Range<usize>, block: u32, blocks: u32, size: usize) -> Range<usize> {
    let cut = |block: u32| {
        let part = chunk.len() as u128 * u128::from(block) / u128::from(blocks);
        (chunk.start + usize::try_from(part).expect("a part of a chunk")) * size
    };
    cut(block)..cut(block + 1)
}

/// The pieces of chunks that belong to a block.
struct Pieces<'a> {
    schedule: &'a Schedule,
    call: &'a Call,
    block: u32,
    blocks: u32,
}

impl Pieces<'_> {
    /// Returns the byte range of a chunk's piece.
    fn of(&self, chunk: usize) -> Range<usize> {
        let chunk = self.schedule.chunk(chunk, self.call.elements);
        piece(chunk, self.block, self.blocks, self.call.data_type.size())
    }

    /// Returns the length of a message of these chunks' pieces in bytes.
    fn bytes(&self, chunks: Chunks) -> usize {
        chunks.iter().map(|chunk| self.of(chunk).len()).sum()
    }

    /// Returns the message of these chunks' pieces.
    fn gather<'b>(&self, chunks: Chunks, buffer: &'b [u8]) -> Cow<'b, [u8]> {
        match (chunks.count(), chunks.iter().next()) {
            (1, Some(chunk)) => buffer[self.of(chunk)].into(),
            _ => chunks.iter().flat_map(|chunk| &buffer[self.of(chunk)]).copied().collect(),
        }
    }

    /// Overwrites these chunks' pieces with a message of their length.
    fn scatter(&self, chunks: Chunks, message: &[u8], buffer: &mut [u8]) {
        let mut rest = message;
        for range in chunks.iter().map(|chunk| self.of(chunk)) {
            let (piece, behind) = rest.split_at(range.len());
            buffer[range].copy_from_slice(piece);
            rest = behind;
        }
    }
}

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// Performs all possible steps. Returns `true` if there was progress.
    pub(super) fn run_blocks<L: Link<Message = M>>(&mut self, link: &mut L) -> bool {
        let mut progressed = false;
        for channel in CHANNELS {
            progressed |= self.begin_blocks(channel);
            let mut place = 0;
            while let Some(running) = self.channels[index(channel)].running.get(place) {
                let mut running = running.clone();
                let before = running.at;
                let done = self.run_block(channel, &mut running, link);
                if self.failed.is_some() {
                    return false;
                }
                progressed |= running.at > before || done;
                if done {
                    self.finish_block(channel, place);
                } else {
                    self.channels[index(channel)].running[place].at = running.at;
                    place += 1;
                }
            }
        }
        progressed
    }

    /// Starts waiting blocks. Returns `true` if one was started.
    fn begin_blocks(&mut self, channel: Channel) -> bool {
        let state = &mut self.channels[index(channel)];
        let mut begun = false;
        while state.running.len() < self.config.max_in_flight as usize
            && let Some((call, block)) = state.waiting.pop_front()
        {
            state.running.push(Running { call, block, ordinal: state.begun, at: 0 });
            state.begun += 1;
            begun = true;
        }
        begun
    }

    /// Performs a block's steps until one must wait. Returns `true` if the block is complete.
    fn run_block<L: Link<Message = M>>(
        &mut self,
        channel: Channel,
        running: &mut Running,
        link: &mut L,
    ) -> bool {
        loop {
            let active = self.active_call(running.call).expect("blocks belong to active calls");
            let steps = &active.schedule(running.block).steps[self.rank];
            let Some(&step) = steps.get(running.at) else { return true };
            match self.run_step(channel, running, step, link) {
                Ok(Outcome::Done) => running.at += 1,
                Ok(Outcome::Waits) => return false,
                Err(error) => {
                    self.fail(error);
                    return false;
                }
            }
        }
    }

    fn run_step<L: Link<Message = M>>(
        &mut self,
        channel: Channel,
        running: &Running,
        step: Step,
        link: &mut L,
    ) -> Result<Outcome, Error> {
        match step {
            Step::Copy { chunk, to } => {
                let (pieces, buffer) = self.pieces(running);
                buffer.copy_within(pieces.of(chunk), pieces.of(to).start);
                Ok(Outcome::Done)
            }
            Step::Send { to, chunks } => self.send(channel, running, to, chunks, link),
            Step::Receive { from, chunks } => self.receive(running, from, chunks, None, link),
            Step::Reduce { from, chunk } => {
                let call = self.active_call(running.call).expect("an active call").call;
                let reduction = Some(call.op.reduction());
                self.receive(running, from, Chunks::one(chunk), reduction, link)
            }
        }
    }

    /// Returns the pieces of a block, and the buffer that they are in.
    fn pieces(&mut self, running: &Running) -> (Pieces<'_>, &mut [u8]) {
        let place = usize::try_from(running.call - self.first).expect("an active call");
        let ActiveCall { call, schedules, blocks, buffer, .. } = &mut self.calls[place];
        // All have the same chunks.
        let pieces =
            Pieces { schedule: &schedules[0], call, block: running.block, blocks: *blocks };
        (pieces, buffer.as_mut())
    }

    /// Takes the next message of a rank, and overwrites chunks with it, or reduces it into the only chunk.
    fn receive<L: Link<Message = M>>(
        &mut self,
        running: &Running,
        from: usize,
        chunks: Chunks,
        reduction: Option<Reduction>,
        link: &mut L,
    ) -> Result<Outcome, Error> {
        let Some(message) = self.next_message(running, from)? else { return Ok(Outcome::Waits) };
        let body = &link.bytes(&message)[HEADER_LEN..];
        let (pieces, buffer) = self.pieces(running);
        let (got, want) = (body.len(), pieces.bytes(chunks));
        if got == want {
            match reduction {
                None => pieces.scatter(chunks, body, buffer),
                Some(reduction) => chunks.iter().for_each(|chunk| {
                    pieces.call.data_type.reduce(reduction, &mut buffer[pieces.of(chunk)], body);
                }),
            }
        }
        link.release(message);
        if got != want {
            let why = format!("a piece of {got} bytes in place of {want}");
            return Err(Error::Protocol { rank: from, why });
        }
        Ok(Outcome::Done)
    }

    /// Sends pieces of a block, unless the receiver is a window behind or the link has no room.
    fn send<L: Link<Message = M>>(
        &mut self,
        channel: Channel,
        running: &Running,
        to: usize,
        chunks: Chunks,
        link: &mut L,
    ) -> Result<Outcome, Error> {
        if self.peers[to].left {
            return Err(self.left_error(to, running.call));
        }
        let state = &self.channels[index(channel)];
        // The peer may have reported any number.
        let ahead = running.ordinal.saturating_sub(state.peers[to].done);
        if ahead >= u64::from(self.config.window) {
            return Ok(Outcome::Waits);
        }
        let call = self.active_call(running.call).expect("an active call").call;
        let header = self.header(Kind::Data, call, running.call, running.block, channel);
        let (pieces, buffer) = self.pieces(running);
        let body = pieces.gather(chunks, buffer);
        match link.send(to, channel, running.ordinal, &header.emit(), &body) {
            Ok(true) => {
                self.channels[index(channel)].peers[to].reported = header.done;
                Ok(Outcome::Done)
            }
            Ok(false) => Ok(Outcome::Waits),
            Err(why) => {
                self.peers[to].gone = true;
                Err(Error::Gone { rank: to, why: why.to_string() })
            }
        }
    }

    /// Returns the next message of a rank for a block, if it has arrived.
    fn next_message(&mut self, running: &Running, from: usize) -> Result<Option<M>, Error> {
        let step = (running.call, running.block, from);
        let Some(waiting) = self.inbox.get_mut(&step) else {
            return if self.peers[from].left {
                Err(self.left_error(from, running.call))
            } else {
                Ok(None)
            };
        };
        let message = waiting.pop_front();
        self.peers[from].waiting -= 1;
        if waiting.is_empty() {
            self.inbox.remove(&step);
        }
        Ok(message)
    }

    /// Returns the error of a call that needs a rank that left.
    fn left_error(&self, rank: usize, call: u64) -> Error {
        let what = self.active_call(call).map_or(Call::barrier(), |active| active.call);
        Error::Left { rank, call, what }
    }

    /// Finishes a block, which may require a progress message and may complete its call.
    fn finish_block(&mut self, channel: Channel, place: usize) {
        let state = &mut self.channels[index(channel)];
        let running = state.running.remove(place);
        state.finished_ahead.insert(running.ordinal);
        while state.finished_ahead.remove(&state.done) {
            state.done += 1;
        }
        match channel {
            Channel::Inner => self.share.inner += 1,
            Channel::Network => self.share.network += 1,
        }
        let call = usize::try_from(running.call - self.first).expect("an active call");
        self.divide(call, running.block);
        let active = &mut self.calls[call];
        active.finished += 1;
        if let Some(sharing) = &mut active.sharing {
            sharing.finished(channel, self.now);
        }
    }

    /// Divides a block's integer sums by the number of ranks.
    fn divide(&mut self, place: usize, block: u32) {
        let ranks = u32::try_from(self.ranks()).unwrap_or(u32::MAX);
        let active = &mut self.calls[place];
        let Call { collective, data_type, op, elements, .. } = active.call;
        if op != Op::Average || !collective.reduces() || data_type.is_float() {
            return;
        }
        for chunk in 0..active.schedules[0].chunks {
            // Other chunks hold partial results that are never read.
            if collective == Collective::ReduceScatter && chunk != self.rank {
                continue;
            }
            let chunk = active.schedules[0].chunk(chunk, elements);
            let bytes = piece(chunk, block, active.blocks, data_type.size());
            data_type.divide(ranks, &mut active.buffer.as_mut()[bytes]);
        }
    }
}
