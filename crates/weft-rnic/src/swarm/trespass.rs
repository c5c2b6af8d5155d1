//! Forbidden requests, and the status with which each must fail.

use alloc::vec::Vec;
use core::ops::Range;

use super::case::Case;
use super::count;
use super::network::{BASE, LENGTH};
use super::pool::SLOT;
use super::post::{Draft, draw_range};
use super::side::{Condition, InFlight, MAX_POSTED, SOURCE, TARGET, result_slot};
use super::windows::WindowState;
use crate::{
    Access, AtomicKind, AtomicOperation, Attributes, Bind, Operation, Remote, State, Status,
    WindowKind, WorkKind,
};

/// A forbidden access to remote memory, and the reason.
struct Forbidden {
    why: &'static str,
    remote: Remote,
    right: Access,
}

const WRITES: Access = Access::REMOTE_WRITE;
const READS: Access = Access::REMOTE_READ;
const ATOMICS: Access = Access::REMOTE_ATOMIC;

impl Case {
    /// Posts a forbidden request, if the drawn kind is possible now; the pair of ends fails with it.
    pub(super) fn post_forbidden(&mut self, at: usize) {
        let me = &self.sides[at];
        if me.condition != Condition::Healthy || me.posted.len() + 2 >= MAX_POSTED {
            return;
        }
        let drafted = match (me.reliable, self.rng.below(16)) {
            (false, _) => return self.post_forbidden_unreliable(at),
            (_, 0..7) => self.forbidden(at).map(|forbidden| self.reach(at, forbidden)),
            (_, 7) => Some(self.unaligned(at)),
            (_, 8) => self.too_long(at),
            (_, 9) => self.unwritable_receive(at),
            (_, 10) => self.wrong_key_invalidated(at),
            (_, 11 | 12) => Some(self.own_memory(at)),
            (_, 13) => Some(self.window_that_cannot_be(at)),
            (_, 14) => self.starve(at),
            _ => return self.end_peer(at),
        };
        let Some((why, draft)) = drafted else { return };
        self.fail_pair(at, why);
        self.sides[at].expected_status = draft.posted.fails;
        self.submit(at, draft);
    }

    /// Marks a pair of ends as failing, for this reason.
    fn fail_pair(&mut self, at: usize, why: &'static str) {
        count(&mut self.tally.refusals, why);
        self.sides[at].condition = Condition::Failing;
        self.sides[at ^ 1].condition = Condition::Failing;
        self.sides[at ^ 1].peer_may_fail = true;
    }

    /// Draws a forbidden access; returns `None` if the drawn kind is not possible now.
    fn forbidden(&mut self, at: usize) -> Option<Forbidden> {
        let peer = &self.sides[at ^ 1];
        let right = [WRITES, READS, ATOMICS][self.rng.index(3)];
        let inside = peer.end.remote(self.rng.below(TARGET.end as u64 / 8 - 1000) * 8);
        let through = |rkey| Remote { rkey, ..inside };
        let (why, remote) = match self.rng.below(12) {
            0 => ("unknown key", through(peer.end.key ^ 0x80)),
            1 => ("key of nothing", through(0xffff_ff00)),
            2 => {
                let short = if right == ATOMICS { 0 } else { self.rng.below(8) };
                ("past the end", peer.end.remote(LENGTH - short))
            }
            3 => ("before the start", Remote { address: BASE - 8, ..inside }),
            4 => ("past the address space", Remote { address: u64::MAX - 7, ..inside }),
            5 => ("another domain's key", through(peer.keys.foreign)),
            6 => ("key of before", through(peer.keys.gone)),
            7 if right != READS => ("not to be written", through(peer.keys.readable)),
            8 if right != WRITES => ("not to be read", through(peer.keys.writable)),
            9 => {
                let window =
                    peer.windows.iter().find(|window| window.state == WindowState::Bound)?;
                let end = window.range.end.next_multiple_of(8);
                return Some(Forbidden {
                    why: "outside the window",
                    remote: window.remote(end),
                    right: [WRITES, READS, ATOMICS].into_iter().find(|&r| window.allows(r))?,
                });
            }
            10 => {
                let open = |window: &&super::windows::Window| {
                    window.state == WindowState::Bound && !window.access.contains(right)
                };
                let window = peer.windows.iter().find(open)?;
                if window.range.len() < 1024 {
                    return None;
                }
                ("not through the window", window.remote(window.range.start.next_multiple_of(8)))
            }
            11 => {
                let gone = |window: &&super::windows::Window| {
                    window.state == WindowState::Idle && !window.range.is_empty()
                };
                let window = peer.windows.iter().find(gone)?;
                ("window of before", window.remote(window.range.start.next_multiple_of(8)))
            }
            _ => {
                let host = peer.end.host;
                let others = self.sides.iter().enumerate();
                let foreign = others
                    .filter(|(other, side)| *other != at ^ 1 && side.end.host == host)
                    .flat_map(|(_, side)| &side.windows)
                    .find(|w| w.kind == WindowKind::Type2 && w.allows(right))?;
                (
                    "another queue pair's window",
                    foreign.remote(foreign.range.start.next_multiple_of(8)),
                )
            }
        };
        Some(Forbidden { why, remote, right })
    }

    /// Drafts the request of a forbidden access.
    fn reach(&mut self, at: usize, forbidden: Forbidden) -> (&'static str, Draft) {
        let Forbidden { why, remote, right } = forbidden;
        let length = 8 + self.rng.index(1000);
        let (operation, kind) = if right == WRITES {
            (Operation::Write(remote), WorkKind::Write)
        } else if right == READS {
            (Operation::Read(remote), WorkKind::Read)
        } else {
            (
                Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } },
                WorkKind::Atomic(AtomicKind::FetchAdd),
            )
        };
        let mut posted = self.next(at, kind);
        posted.fails = Some(Status::RemoteAccess);
        let slot = result_slot(posted.wr_id);
        let source = match kind {
            WorkKind::Write => SOURCE.start..SOURCE.start + length,
            WorkKind::Read => slot..slot + length,
            _ => slot..slot + 8,
        };
        (why, Draft::new(operation, source, posted))
    }

    fn unaligned(&mut self, at: usize) -> (&'static str, Draft) {
        let offset = self.rng.below(100) * 8 + 1 + self.rng.below(7);
        let remote = self.sides[at ^ 1].end.remote(offset);
        let mut posted = self.next(at, WorkKind::Atomic(AtomicKind::FetchAdd));
        posted.fails = Some(Status::RemoteInvalidRequest);
        let slot = result_slot(posted.wr_id);
        let operation =
            Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } };
        ("atomic across words", Draft::new(operation, slot..slot + 8, posted))
    }

    /// Drafts a SEND that must fail with a status. The receive request that it consumes must be available.
    fn failing_send(
        &mut self,
        at: usize,
        operation: Operation,
        source: Range<usize>,
        fails: Status,
    ) -> Draft {
        let mut posted = self.next(at, WorkKind::Send);
        posted.fails = Some(fails);
        posted.message = Some(Vec::new());
        let (length, data) = (source.len(), None);
        let (extra, effect, certain) = (None, None, true);
        self.expect(at ^ 1, InFlight { data, length, extra, effect, certain });
        Draft::new(operation, source, posted)
    }

    fn too_long(&mut self, at: usize) -> Option<(&'static str, Draft)> {
        if !self.pool_of(at ^ 1).has_room() {
            return None;
        }
        let length = SLOT + 1 + self.rng.index(3000);
        let source = SOURCE.start..SOURCE.start + length;
        let status = Status::RemoteInvalidRequest;
        let draft = self.failing_send(at, Operation::Send, source, status);
        self.sides[at ^ 1].receive_fails = Some(Status::LocalLength);
        Some(("message too long", draft))
    }

    fn unwritable_receive(&mut self, at: usize) -> Option<(&'static str, Draft)> {
        let Self { sides, pools, network, rng, .. } = self;
        let pool = &mut pools[sides[at ^ 1].pool];
        let is_next = !pool.is_shared() && pool.in_flight == pool.posted.len();
        if !is_next || !pool.post_bad(network, rng) {
            return None;
        }
        let source = SOURCE.start..SOURCE.start + 1 + rng.index(SLOT);
        let draft = self.failing_send(at, Operation::Send, source, Status::RemoteOperation);
        self.sides[at ^ 1].receive_fails = Some(Status::LocalProtection);
        Some(("receive request's memory not writable", draft))
    }

    fn wrong_key_invalidated(&mut self, at: usize) -> Option<(&'static str, Draft)> {
        if !self.pool_of(at ^ 1).has_room() {
            return None;
        }
        let peer = &self.sides[at ^ 1];
        let key = [peer.end.key, peer.keys.gone, peer.keys.foreign][self.rng.index(3)];
        let source = draw_range(&SOURCE, SLOT, &mut self.rng);
        let message = self.bytes(at, source.clone());
        let operation = Operation::SendWithInvalidate(key);
        let mut draft = self.failing_send(at, operation, source, Status::RemoteAccess);
        draft.posted.message = Some(message);
        Some(("key that is not to be invalidated", draft))
    }

    /// Drafts a request with invalid local memory, which is not sent.
    fn own_memory(&mut self, at: usize) -> (&'static str, Draft) {
        let (me, peer) = (&self.sides[at], &self.sides[at ^ 1]);
        let remote = peer.end.remote(0);
        let keys = me.keys;
        let own = me.end.key;
        let (read, write) = (Operation::Read(remote), Operation::Write(remote));
        let end = usize::try_from(LENGTH).expect("a small memory");
        let past = end - 10..end + 10;
        let (why, operation, source, lkey, fails) = match self.rng.below(5) {
            0 => ("own key unknown", write, 0..100, own ^ 1, Status::LocalProtection),
            1 => ("own memory's end", write, past, own, Status::LocalProtection),
            2 => ("own key of another domain", read, 0..100, keys.foreign, Status::LocalProtection),
            3 => ("own memory not writable", read, 0..100, keys.readable, Status::LocalProtection),
            _ => {
                let add =
                    Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } };
                ("atomic of nine bytes", add, 0..9, own, Status::LocalLength)
            }
        };
        let kind = operation.kind();
        let mut posted = self.next(at, kind);
        posted.fails = Some(fails);
        (why, Draft { lkey: Some(lkey), ..Draft::new(operation, source, posted) })
    }

    fn window_that_cannot_be(&mut self, at: usize) -> (&'static str, Draft) {
        let me = &self.sides[at];
        let window = me.windows[0].key;
        let bind = |region, address, access| {
            let bind = Bind { region, address, length: 8, access };
            Operation::BindWindow { window, key: None, bind }
        };
        let (why, operation) = match self.rng.below(4) {
            0 => ("window past its region", bind(me.end.key, BASE + LENGTH - 7, READS)),
            1 => ("window over what allows none", bind(me.keys.readable, BASE, READS)),
            2 => ("window of another domain", bind(me.keys.foreign, BASE, READS)),
            _ => ("own key that is not to be invalidated", Operation::LocalInvalidate(me.end.key)),
        };
        let mut posted = self.next(at, operation.kind());
        posted.fails = Some(Status::MwBind);
        (why, Draft::new(operation, 0..0, posted))
    }

    /// Drafts a message to a peer that will have no receive request.
    fn starve(&mut self, at: usize) -> Option<(&'static str, Draft)> {
        let retries_forever = self.sides[at].rnr_retry == 7;
        let pool = &mut self.pools[self.sides[at ^ 1].pool];
        if retries_forever || pool.is_shared() || pool.has_room() {
            return None;
        }
        pool.starved = true;
        let source = draw_range(&SOURCE, SLOT, &mut self.rng);
        let fails = Status::RnrRetryExceeded;
        Some(("no receive request", self.failing_send(at, Operation::Send, source, fails)))
    }

    /// Puts the end in error, of which its peer must be notified.
    fn end_peer(&mut self, at: usize) {
        self.fail_pair(at, "peer in error");
        let end = self.sides[at].end;
        let error = Attributes { state: Some(State::Error), ..Attributes::default() };
        self.network.modify(&end, &error);
    }

    /// Posts a forbidden WRITE on UC, which drops it.
    fn post_forbidden_unreliable(&mut self, at: usize) {
        let length = 1 + self.rng.index(1000);
        let peer = &self.sides[at ^ 1];
        let offset = self.rng.below(TARGET.end as u64 - 1000);
        let keys = [peer.keys.foreign, peer.keys.gone, peer.keys.readable, peer.end.key ^ 0x80];
        let remote = Remote { rkey: keys[self.rng.index(4)], ..peer.end.remote(offset) };
        let posted = self.next(at, WorkKind::Write);
        count(&mut self.tally.refusals, "not allowed (UC)");
        let source = SOURCE.start..SOURCE.start + length;
        self.submit(at, Draft::new(Operation::Write(remote), source, posted));
    }
}
