//! The delivery of complete messages to the owner, and the record of calls.

use weft_units::Instant;
use weft_wire::{CallRole, FrameHeader, FrameKind};

use super::{Channel, PendingCall, Stamp};
use crate::context::Shared;
use crate::event::{Event, Message, Slow};
use crate::filter::{Direction, Fault};
use crate::journal::NoteKind;
use crate::verbs::Verbs;

impl Channel {
    /// Delivers a complete message to the owner, unless a filter rule drops or delays it.
    pub(super) fn deliver<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        header: &FrameHeader,
        message: Message,
    ) {
        let len = u64::from(message.len());
        let fault = shared.filter.verdict(Direction::In, message.call, &mut shared.rng);
        if fault == Some(Fault::Drop) || !self.note_call(now, shared, header) {
            return shared.memory.release(now, message.block);
        }
        match fault {
            Some(Fault::Corrupt) => shared.corrupt(message.body),
            Some(Fault::Delay(delay)) => return shared.hold_back(now + delay, message),
            Some(Fault::Drop) | None => {}
        }
        self.stats.received += 1;
        self.stats.received_bytes += len;
        self.stats.large += u64::from(header.kind == FrameKind::Large);
        shared.events.push_back(Event::Message { channel: shared.current, message });
    }

    /// Records a call. Returns `false` for a response without a request.
    fn note_call<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        header: &FrameHeader,
    ) -> bool {
        let channel = shared.current;
        match header.call {
            CallRole::OneWay => true,
            CallRole::Request(id) => {
                let stamp = |id| Stamp { id, received_at: now.as_nanos() };
                self.to_answer.insert(id, header.trace.map(|trace| stamp(trace.id)));
                true
            }
            CallRole::Response(id) => {
                let Some(PendingCall { at, sent_at }) = self.pending_calls.remove(id) else {
                    return false;
                };
                if let (Some(trace), Some(sent)) = (&header.trace, sent_at) {
                    let time = self.clock.decompose(sent, trace, now);
                    shared.traced.record(&time);
                    shared.events.push_back(Event::Traced { channel, id, time });
                }
                let took = now.since(at);
                self.calls.record(took);
                if took > shared.config.slow_threshold {
                    shared.stats.slow_calls += 1;
                    shared.note(now, Some(self.peer.gid), NoteKind::SlowCall(took));
                    shared.events.push_back(Event::Slow(Slow::Call { channel, id, took }));
                }
                true
            }
        }
    }
}
