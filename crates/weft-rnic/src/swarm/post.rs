//! Random requests that must succeed.

use alloc::vec::Vec;
use core::ops::Range;

use weft_units::Rng;

use super::case::Case;
use super::count;
use super::pool::{Pool, memory_of};
use super::side::{
    InFlight, MAX_POSTED, Posted, RESULT_SLOT, SOURCE, TARGET, result_slot, split_sge,
};
use super::windows::{Use, WindowState};
use crate::{
    Access, AtomicKind, AtomicOperation, Data, Extra, Operation, Remote, SendRequest, Sge, WorkKind,
};

/// A drawn request, and its expected result.
pub(super) struct Draft {
    pub(super) operation: Operation,
    /// The range of the sender's memory that is sent or filled.
    pub(super) source: Range<usize>,
    /// The range of the peer's memory that it reads: no request may change it before the response.
    pub(super) reads: Option<Range<usize>>,
    pub(super) fence: bool,
    /// The local key, if it is not the usual one.
    pub(super) lkey: Option<u32>,
    pub(super) posted: Posted,
}

impl Draft {
    pub(super) fn new(operation: Operation, source: Range<usize>, posted: Posted) -> Self {
        Self { operation, source, reads: None, fence: false, lkey: None, posted }
    }
}

/// Returns the name of an operation in the tally.
fn name(operation: &Operation, unreliable: bool) -> &'static str {
    match (operation, unreliable) {
        (Operation::Send, false) => "SEND",
        (Operation::SendWithImmediate(_), false) => "SEND_WITH_IMM",
        (Operation::SendWithInvalidate(_), _) => "SEND_WITH_INV",
        (Operation::Write(_), false) => "WRITE",
        (Operation::WriteWithImmediate(..), false) => "WRITE_WITH_IMM",
        (Operation::Send, true) => "SEND (UC)",
        (Operation::SendWithImmediate(_), true) => "SEND_WITH_IMM (UC)",
        (Operation::Write(_), true) => "WRITE (UC)",
        (Operation::WriteWithImmediate(..), true) => "WRITE_WITH_IMM (UC)",
        (Operation::Read(_), _) => "READ",
        (Operation::Atomic { operation, .. }, _) => operation.opcode().name(),
        (Operation::LocalInvalidate(_), _) => "LOCAL_INV",
        (Operation::BindWindow { .. }, _) => "BIND_MW",
    }
}

impl Posted {
    pub(super) fn new(wr_id: u64, kind: WorkKind) -> Self {
        Self {
            wr_id,
            kind,
            signaled: true,
            answer: None,
            effect: None,
            message: None,
            window: None,
            fails: None,
        }
    }
}

/// Draws a range of at most `max_len` bytes in `within`.
pub(super) fn draw_range(within: &Range<usize>, max_len: usize, rng: &mut Rng) -> Range<usize> {
    let length = if rng.chance(1, 16) { 0 } else { rng.index(max_len + 1) };
    let start = within.start + rng.index(within.len() - length + 1);
    start..start + length
}

impl Case {
    /// Posts a random request from one end to its peer, and updates the model.
    pub(super) fn post(&mut self, at: usize) {
        if self.sides[at].posted.len() >= MAX_POSTED {
            return;
        }
        let kinds = if self.sides[at].reliable { 12 } else { 7 };
        let drafted = match self.rng.below(kinds) {
            0..3 => Some(self.draft_write(at, false)),
            3 => self.may_take_receive(at).then(|| self.draft_write(at, true)),
            4..7 => self.may_take_receive(at).then(|| self.draft_send(at)),
            7..9 => Some(self.draft_read(at)),
            9..11 => Some(self.draft_atomic(at)),
            _ => self.draft_window(at),
        };
        if let Some(draft) = drafted {
            self.submit(at, draft);
        }
    }

    /// Returns `true` if the end may post a message that consumes a receive request of the peer.
    fn may_take_receive(&mut self, at: usize) -> bool {
        let me = &self.sides[at];
        if me.reliable && me.rnr_retry == 7 {
            return !self.pool_of(at ^ 1).starved;
        }
        // With a limit of RNR retries a receive request must be available; UC drops the message otherwise.
        let unreliable = !me.reliable && self.rng.chance(1, 4);
        unreliable || self.pool_of(at ^ 1).has_room()
    }

    /// Returns the model of the next request of an end, and assigns its number.
    pub(super) fn next(&mut self, at: usize, kind: WorkKind) -> Posted {
        let me = &mut self.sides[at];
        me.next += 1;
        Posted::new(me.next - 1, kind)
    }

    /// Returns a range of an end's memory.
    pub(super) fn bytes(&self, at: usize, range: Range<usize>) -> Vec<u8> {
        let end = &self.sides[at].end;
        memory_of(&self.network, end.host, end.owner)[range].to_vec()
    }

    fn draft_write(&mut self, at: usize, with_word: bool) -> Draft {
        let max_len = if self.rng.chance(1, 8) { 6000 } else { RESULT_SLOT };
        let source = draw_range(&SOURCE, max_len, &mut self.rng);
        let mut posted = self.next(at, WorkKind::Write);
        let (remote, target) =
            self.draft_target(at, source.len(), Access::REMOTE_WRITE, &mut posted);
        let data = self.bytes(at, source.clone());
        let word = self.rng.next_u32();
        let operation = match with_word {
            true => Operation::WriteWithImmediate(remote, word),
            false => Operation::Write(remote),
        };
        let me = &self.sides[at];
        let fence = me.has_read(&target);
        let certain = if with_word { self.is_certain(at) } else { !me.may_be_lost() };
        let peer = &mut self.sides[at ^ 1];
        let effect = peer.image.change(target.start, &data);
        if !certain {
            peer.image.allow_either(&effect);
        }
        if with_word {
            posted.message = Some(Vec::new());
            let extra = Some(Extra::Immediate(word));
            let effect = Some(effect.clone());
            let in_flight = InFlight { data: None, length: data.len(), extra, effect, certain };
            self.expect(at ^ 1, in_flight);
        }
        posted.effect = certain.then_some(effect);
        Draft { fence, ..Draft::new(operation, source, posted) }
    }

    /// Draws a location in the peer's memory, through a window or not.
    fn draft_target(
        &mut self,
        at: usize,
        length: usize,
        access: Access,
        posted: &mut Posted,
    ) -> (Remote, Range<usize>) {
        let reliable = self.sides[at].reliable;
        let peer = &mut self.sides[at ^ 1];
        let window = peer.open_window(access, &mut self.rng).filter(|_| reliable);
        if let Some(index) = window.filter(|&index| peer.windows[index].range.len() >= length) {
            let window = &mut peer.windows[index];
            let start = window.range.start + self.rng.index(window.range.len() - length + 1);
            window.users += 1;
            posted.window = Some(Use::Through(index));
            return (window.remote(start), start..start + length);
        }
        let start = self.rng.index(TARGET.end - length + 1);
        (peer.remote(start, &mut self.rng), start..start + length)
    }

    fn draft_send(&mut self, at: usize) -> Draft {
        let source = draw_range(&SOURCE, super::pool::SLOT, &mut self.rng);
        let mut posted = self.next(at, WorkKind::Send);
        let data = self.bytes(at, source.clone());
        let word = self.rng.next_u32();
        let (me, peer) = (&self.sides[at], &self.sides[at ^ 1]);
        let (mut fence, mut operation, mut extra) = (false, Operation::Send, None);
        match peer.remotely_invalidated().filter(|_| me.reliable && self.rng.chance(1, 4)) {
            Some(index) => {
                // READs through the window must be done first.
                fence = true;
                let window = &mut self.sides[at ^ 1].windows[index];
                window.state = WindowState::Changing;
                posted.window = Some(Use::Invalidate(index));
                extra = Some(Extra::Invalidated(window.key));
                operation = Operation::SendWithInvalidate(window.key);
            }
            // Messages that may be lost must be distinguishable.
            None if self.rng.chance(1, 2) || !me.reliable && data.len() < 8 => {
                extra = Some(Extra::Immediate(word));
                operation = Operation::SendWithImmediate(word);
            }
            None => {}
        }
        posted.message = Some(data.clone());
        let certain = self.is_certain(at);
        let length = data.len();
        self.expect(at ^ 1, InFlight { data: Some(data), length, extra, effect: None, certain });
        Draft { fence, ..Draft::new(operation, source, posted) }
    }

    fn draft_read(&mut self, at: usize) -> Draft {
        let length = self.rng.index(RESULT_SLOT + 1);
        let mut posted = self.next(at, WorkKind::Read);
        let (remote, target) = self.draft_target(at, length, Access::REMOTE_READ, &mut posted);
        posted.answer = Some(self.sides[at ^ 1].image.bytes[target.clone()].to_vec());
        let slot = result_slot(posted.wr_id);
        let (operation, source) = (Operation::Read(remote), slot..slot + length);
        Draft { reads: Some(target), ..Draft::new(operation, source, posted) }
    }

    fn draft_atomic(&mut self, at: usize) -> Draft {
        let adds = self.rng.chance(1, 2);
        let kind = if adds {
            WorkKind::Atomic(AtomicKind::FetchAdd)
        } else {
            WorkKind::Atomic(AtomicKind::CompareSwap)
        };
        let mut posted = self.next(at, kind);
        let word = self.rng.index(TARGET.end / 8) * 8;
        let target = word..word + 8;
        let peer = &mut self.sides[at ^ 1];
        let remote = peer.remote(word, &mut self.rng);
        let fence = self.sides[at].has_read(&target);
        let peer = &mut self.sides[at ^ 1];
        let found: [u8; 8] = peer.image.bytes[target.clone()].try_into().expect("eight bytes");
        let before = u64::from_ne_bytes(found);
        let (operand, expected) = (self.rng.next_u64(), self.rng.chance(1, 2));
        let (operation, after) = if adds {
            (
                Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: operand } },
                before.wrapping_add(operand),
            )
        } else {
            let compare = if expected { before } else { !before };
            let after = if expected { operand } else { before };
            (
                Operation::Atomic {
                    remote,
                    operation: AtomicOperation::CompareSwap { compare, swap: operand },
                },
                after,
            )
        };
        posted.answer = Some(found.to_vec());
        posted.effect = Some(peer.image.change(word, &after.to_ne_bytes()));
        // The next request may write there before the response is read.
        let slot = result_slot(posted.wr_id);
        let draft = Draft::new(operation, slot..slot + 8, posted);
        Draft { reads: Some(target), fence, ..draft }
    }

    fn draft_window(&mut self, at: usize) -> Option<Draft> {
        let (operation, used) = self.sides[at].change_window(&mut self.rng)?;
        let kind = match operation {
            Operation::BindWindow { .. } => WorkKind::BindWindow,
            _ => WorkKind::LocalInvalidate,
        };
        let posted = Posted { window: Some(used), ..self.next(at, kind) };
        Some(Draft::new(operation, 0..0, posted))
    }

    /// Returns `true` if a message from the end certainly arrives.
    fn is_certain(&self, at: usize) -> bool {
        let me = &self.sides[at];
        me.reliable || !me.may_be_lost() && self.pool_of(at ^ 1).has_room()
    }

    /// Returns the receive requests of an end.
    pub(super) fn pool_of(&self, at: usize) -> &Pool {
        &self.pools[self.sides[at].pool]
    }

    /// Adds a message to those that an end is expected to receive.
    pub(super) fn expect(&mut self, at: usize, in_flight: InFlight) {
        let side = &mut self.sides[at];
        let pool = &mut self.pools[side.pool];
        pool.in_flight += 1;
        if pool.is_shared() || side.may_be_lost() {
            pool.left.extend(in_flight.data.clone());
        }
        side.in_flight.push_back(in_flight);
    }

    /// Posts a drawn request.
    pub(super) fn submit(&mut self, at: usize, draft: Draft) {
        let Self { sides, network, rng, tally, .. } = self;
        let me = &mut sides[at];
        let Draft { operation, source, reads, fence, lkey, mut posted } = draft;
        let fence = fence || rng.chance(1, 10);
        if fence {
            me.reads.clear();
        }
        me.reads.extend(reads);
        // The last request that fits is signalled; otherwise earlier unsignalled ones would never be retired.
        posted.signaled =
            posted.fails.is_some() || me.posted.len() + 1 >= MAX_POSTED || rng.chance(3, 4);
        let local = matches!(posted.kind, WorkKind::BindWindow | WorkKind::LocalInvalidate);
        let whole = me.sge(source.start, source.len());
        let sges = split_sge(Sge { lkey: lkey.unwrap_or(whole.lkey), ..whole }, rng);
        let carries = matches!(posted.kind, WorkKind::Send | WorkKind::Write);
        let inline = carries && posted.fails.is_none() && source.len() <= 64 && rng.chance(1, 2);
        let bytes = match inline {
            true => memory_of(network, me.end.host, me.end.owner)[source].to_vec(),
            false => Vec::new(),
        };
        let data = match inline {
            true => Data::Inline(&bytes),
            false => Data::Gather(if local { &[] } else { &sges }),
        };
        let request = SendRequest {
            fence,
            signaled: posted.signaled,
            solicited: rng.chance(1, 4),
            ..SendRequest::new(posted.wr_id, operation, data)
        };
        network.post(&me.end, &request);
        count(&mut tally.requests, name(&operation, !me.reliable));
        for (is_set, flag) in
            [(inline, "inline"), (fence, "fenced"), (!posted.signaled, "unsignalled")]
        {
            if is_set {
                count(&mut tally.flags, flag);
            }
        }
        me.posted.push_back(posted);
    }
}
