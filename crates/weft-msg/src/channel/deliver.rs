//! The delivery of complete messages to the owner, and the record of calls.

use weft_units::Instant;
use weft_wire::{CallRole, TraceExtension};

use super::{Channel, PendingCall, Stamp};
use crate::context::Shared;
use crate::event::{Event, Message, Slow};
use crate::filter::{Direction, Fault, corrupt};
use crate::journal::NoteKind;
use crate::verbs::Verbs;

impl Channel {
    /// Delivers a complete message to the owner, unless a filter rule drops or delays it. Returns `true` if it was delivered.
    #[inline(always)]
    pub(super) fn deliver<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        trace: Option<TraceExtension>,
        message: Message,
    ) -> bool {
        let fault = shared.filter.verdict(Direction::In, message.call, &mut shared.rng);
        if fault == Some(Fault::Drop) || !self.note_call(now, shared, message.call, trace) {
            shared.memory.release(now, message.block);
            return false;
        }
        match fault {
            Some(Fault::Corrupt) => {
                corrupt(shared.verbs.bytes_mut(message.body()), &mut shared.rng);
            }
            Some(Fault::Delay(delay)) => {
                shared.hold_back(now + delay, message);
                return false;
            }
            Some(Fault::Drop) | None => {}
        }
        self.stats.received += 1;
        self.stats.received_bytes += u64::from(message.len());
        shared.events.push_back(Event::Message { channel: shared.current, message });
        true
    }

    /// Records a call. Returns `false` for a response without a request.
    #[inline(always)]
    fn note_call<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        call: CallRole,
        trace: Option<TraceExtension>,
    ) -> bool {
        match call {
            CallRole::OneWay => true,
            CallRole::Request(id) => {
                let stamp = |id| Stamp { id, received_at: now.as_nanos() };
                self.to_answer.insert(id, trace.map(|trace| stamp(trace.id)));
                true
            }
            CallRole::Response(id) => self.on_response(now, shared, id, trace),
        }
    }

    /// Records the response to a request. Returns `false` if there is no such request.
    fn on_response<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        id: u64,
        trace: Option<TraceExtension>,
    ) -> bool {
        let channel = shared.current;
        let Some(PendingCall { at, sent_at }) = self.pending_calls.remove(id) else {
            return false;
        };
        if let (Some(trace), Some(sent)) = (trace, sent_at) {
            let time = self.clock.decompose(sent, &trace, now);
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
