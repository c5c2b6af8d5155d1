//! Large messages: their bodies are read from the sender's memory, a fragment at a time and no more at once
//! than the whole context may (X-RDMA, sections IV.C and V.C).

use weft_units::Instant;
use weft_wire::{FrameHeader, RemoteBody};

use super::Channel;
use crate::context::{Shared, WorkId};
use crate::event::{CloseReason, Message};
use crate::memory::Block;
use crate::verbs::{Slice, Verbs, Work};

/// A large message on its way.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(super) seq: u64,
    pub(super) header: FrameHeader,
    /// When its announcement came; a trace's T2.
    pub(super) came_at: Instant,
    pub(super) from: RemoteBody,
    /// Where it goes; `None` while there is no memory.
    pub(crate) to: Option<Block>,
    /// Bytes asked for, and bytes that are here.
    pub(super) asked: u32,
    pub(super) done: u32,
}

impl Fetch {
    const fn len(&self) -> u32 {
        self.header.length
    }
}

impl Channel {
    /// Whether another fragment could be asked for now.
    pub(crate) fn wants_to_read(&self, reads: u8) -> bool {
        self.reading < reads && self.fetches.iter().any(|fetch| fetch.asked < fetch.len())
    }

    /// Asks for the next fragment; false when there is no memory for its message.
    pub(crate) fn read_fragment<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<bool, CloseReason> {
        let fragment = shared.config.fragment;
        let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.asked < fetch.len()) else {
            return Ok(false);
        };
        if fetch.to.is_none() {
            // The cache's limit is waited for; the peer's window holds it back meanwhile.
            fetch.to = shared.memory.allocate(&mut shared.verbs, fetch.len()).ok();
        }
        let Some(to) = &fetch.to else { return Ok(false) };
        let len = fragment.min(fetch.len() - fetch.asked);
        let to = Slice { address: to.slice().address + u64::from(fetch.asked), len, ..to.slice() };
        let address = fetch.from.address.wrapping_add(fetch.asked.into());
        let work = Work::Read { to, address, rkey: fetch.from.rkey };
        fetch.asked += len;
        self.reading += 1;
        shared.reading += 1;
        let id = shared.work_id(WorkId::Read);
        let posted = shared.verbs.post_send(now, self.qp, id, work, true);
        posted.map_err(CloseReason::Device)?;
        Ok(true)
    }

    /// The oldest fragment that was asked for is here: READs of a queue pair complete in order.
    pub(crate) fn fragment_read<V: Verbs>(&mut self, now: Instant, shared: &mut Shared<V>) {
        self.reading -= 1;
        shared.reading -= 1;
        let fragment = shared.config.fragment;
        if let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.done < fetch.asked) {
            fetch.done += fragment.min(fetch.len() - fetch.done);
        }
        self.deliver_fetched(now, shared);
    }

    /// Hands over the messages that are complete. They need not wait for those before them (section IV.D).
    fn deliver_fetched<V: Verbs>(&mut self, now: Instant, shared: &mut Shared<V>) {
        while let Some(at) = self.fetches.iter().position(|fetch| fetch.done == fetch.len()) {
            let fetch = self.fetches.remove(at).expect("found just now");
            let Fetch { seq, header, came_at, to, .. } = fetch;
            let block = to.expect("it was read into");
            let body = Slice { len: header.length, ..block.slice() };
            let message = Message { call: header.call, block, body };
            self.deliver(now, shared, &header, message);
            self.amend_received_at(&header, came_at);
            self.finish_message(now, shared, seq);
        }
    }

    /// A request had come when it was announced, not when its body was here.
    fn amend_received_at(&mut self, header: &FrameHeader, came_at: Instant) {
        let request = header.call.request().and_then(|id| self.to_answer.get_mut(id));
        if let Some(Some(stamp)) = request {
            stamp.received_at = came_at.as_nanos();
        }
    }

    /// The queue pair is gone: what was not read comes by the stream.
    pub(super) fn forget_reads<V: Verbs>(&mut self, shared: &mut Shared<V>) {
        shared.reading -= u32::from(self.reading);
        self.reading = 0;
        for fetch in &mut self.fetches {
            // Nothing more is asked for.
            (fetch.asked, fetch.done) = (fetch.len(), 0);
        }
    }

    /// The body of a large message came by the stream; false when there is no memory for it yet.
    pub(super) fn complete_fetch<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        seq: u64,
        body: &[u8],
    ) -> bool {
        let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.seq == seq) else {
            return true;
        };
        if fetch.to.is_none() {
            fetch.to = shared.memory.allocate(&mut shared.verbs, fetch.len()).ok();
        }
        let Some(to) = &fetch.to else { return false };
        if body.len() == fetch.len() as usize {
            let slice = Slice { len: fetch.len(), ..to.slice() };
            shared.verbs.bytes_mut(slice).copy_from_slice(body);
            (fetch.asked, fetch.done) = (fetch.len(), fetch.len());
            self.deliver_fetched(now, shared);
        }
        true
    }
}
