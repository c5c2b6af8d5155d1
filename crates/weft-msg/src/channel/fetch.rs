//! Large messages: their bodies are read from the sender's memory fragment by fragment, within the READ limit
//! of the whole context (X-RDMA, sections IV.C and V.C).

use weft_units::Instant;
use weft_wire::{FrameHeader, RemoteBody};

use super::Channel;
use crate::context::{Shared, WorkId};
use crate::event::{CloseReason, Message, ProtocolError};
use crate::memory::Block;
use crate::verbs::{Slice, Verbs, Work};

/// A large message in progress.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(super) seq: u64,
    pub(super) header: FrameHeader,
    /// The arrival time of its announcement; a trace's T2.
    pub(super) announced_at: Instant,
    pub(super) from: RemoteBody,
    /// Its destination; `None` until memory is available.
    pub(crate) to: Option<Block>,
    /// Number of bytes requested.
    pub(super) requested: u32,
    /// Number of bytes received.
    pub(super) done: u32,
}

impl Fetch {
    const fn len(&self) -> u32 {
        self.header.length
    }
}

impl Channel {
    /// Returns `true` if another fragment may be requested now.
    pub(crate) fn wants_to_read(&self, reads: u8) -> bool {
        self.reads.len() < usize::from(reads)
            && self.fetches.iter().any(|fetch| fetch.requested < fetch.len())
    }

    /// Returns the length of the next fragment to request; 0 if there is none.
    pub(crate) fn next_fragment(&self, fragment: u32) -> u32 {
        let lens = self.fetches.iter().map(|fetch| fetch.len() - fetch.requested);
        lens.into_iter().find(|&left| left > 0).unwrap_or(0).min(fragment)
    }

    /// Requests the next fragment. Returns `false` if none is left to request, or there is no memory for its message.
    pub(crate) fn read_fragment<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<bool, CloseReason> {
        let fragment = shared.config.fragment;
        let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.requested < fetch.len())
        else {
            return Ok(false);
        };
        if fetch.to.is_none() {
            // At the cache's limit the fetch waits; meanwhile the peer's window stays closed.
            fetch.to = shared.memory.allocate(&mut shared.verbs, fetch.len()).ok();
        }
        let Some(to) = &fetch.to else { return Ok(false) };
        let len = fragment.min(fetch.len() - fetch.requested);
        let to =
            Slice { address: to.slice().address + u64::from(fetch.requested), len, ..to.slice() };
        let address = fetch.from.address.wrapping_add(fetch.requested.into());
        let work = Work::Read { to, address, rkey: fetch.from.rkey };
        fetch.requested += len;
        let id = shared.work_id(WorkId::Read);
        let posted = shared.verbs.post_send(now, self.qp, id, work, true);
        posted.map_err(CloseReason::Device)?;
        self.reads.post(&mut shared.reads, now, len.into(), true);
        Ok(true)
    }

    /// Handles the arrival of the oldest requested fragment: READs of a queue pair complete in order.
    pub(crate) fn fragment_read<V: Verbs>(&mut self, now: Instant, shared: &mut Shared<V>) {
        if let Some(took) = self.reads.complete(&mut shared.reads, now, shared.poll_gap) {
            self.on_round_trip(now, took, shared.poll_gap, &shared.config);
        }
        let fragment = shared.config.fragment;
        if let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.done < fetch.requested) {
            fetch.done += fragment.min(fetch.len() - fetch.done);
        }
        self.deliver_fetched(now, shared);
    }

    /// Delivers complete messages, which may overtake earlier ones (section IV.D).
    fn deliver_fetched<V: Verbs>(&mut self, now: Instant, shared: &mut Shared<V>) {
        while let Some(at) = self.fetches.iter().position(|fetch| fetch.done == fetch.len()) {
            let fetch = self.fetches.remove(at).expect("found just now");
            self.deliver_body(now, shared, fetch);
        }
    }

    /// Delivers a message whose body has arrived.
    fn deliver_body<V: Verbs>(&mut self, now: Instant, shared: &mut Shared<V>, fetch: Fetch) {
        let Fetch { seq, header, announced_at, to, .. } = fetch;
        let block = to.expect("its body was read or copied into it");
        let message = Message { call: header.call, block, at: 0, len: header.length };
        let delivered = self.deliver(now, shared, header.trace, message);
        self.stats.large += u64::from(delivered);
        self.amend_received_at(&header, announced_at);
        self.finish_message(now, shared, seq);
    }

    /// Sets a request's arrival time to that of its announcement instead of its body.
    fn amend_received_at(&mut self, header: &FrameHeader, announced_at: Instant) {
        let request = header.call.request().and_then(|id| self.to_answer.get_mut(id));
        if let Some(Some(stamp)) = request {
            stamp.received_at = announced_at.as_nanos();
        }
    }

    /// Cancels READs after the queue pair failed: the bodies arrive on the stream.
    pub(super) fn cancel_reads<V: Verbs>(&mut self, shared: &mut Shared<V>) {
        self.reads.abandon(&mut shared.reads);
        self.cancelled.extend(self.fetches.drain(..));
    }

    /// Completes a large message whose body arrived on the stream; another frame was received before. Returns `false` if there
    /// is no memory for it yet.
    ///
    /// # Errors
    /// The body does not have the announced length.
    pub(super) fn complete_fetch<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        seq: u64,
        body: &[u8],
    ) -> Result<bool, CloseReason> {
        let Some(at) = self.cancelled.iter().position(|fetch| fetch.seq == seq) else {
            return Ok(true);
        };
        let fetch = &mut self.cancelled[at];
        let (stated, got) = (fetch.len(), u32::try_from(body.len()).unwrap_or(u32::MAX));
        if got != stated {
            return Err(CloseReason::Protocol(ProtocolError::Length { stated, got }));
        }
        if fetch.to.is_none() {
            fetch.to = shared.memory.allocate(&mut shared.verbs, stated).ok();
        }
        let Some(to) = &fetch.to else { return Ok(false) };
        let slice = Slice { len: stated, ..to.slice() };
        shared.verbs.bytes_mut(slice).copy_from_slice(body);
        let fetch = self.cancelled.remove(at).expect("found just now");
        self.deliver_body(now, shared, fetch);
        Ok(true)
    }
}
