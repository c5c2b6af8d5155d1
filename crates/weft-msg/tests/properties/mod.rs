//! A context whose peer's frames come from a script, on the queue pair and on the stream. Tests and the fuzz target
//! call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_msg::{
    CallRole, Carrier, ChannelId, ChannelState, Config, Context, Event, MemoryUse, Message,
    Payload, Qp,
};
use weft_rnic::Status;
use weft_units::{Duration, Instant, Seed};
use weft_wire::{ChannelOffer, FrameHeader, FrameKind, RemoteBody, SequenceWord, TraceExtension};

mod device;
#[path = "../../../weft-units/tests/inputs/mod.rs"]
pub mod inputs;

use device::Scripted;
use inputs::Script;

/// Plays a script against a context with one channel. Returns `true` if a message was received.
///
/// # Panics
/// If the context panics, posts more requests than a queue holds, uses memory that is not registered, delivers an
/// invalid message, or keeps memory after its shutdown.
pub fn peer(bytes: &[u8]) -> bool {
    let mut script = Script::new(bytes);
    let Some(mut scene) = Scene::open(&mut script) else { return false };
    while let Some(step) = script.byte() {
        scene.play(step, &mut script);
        scene.poll();
    }
    scene.end()
}

struct Scene {
    now: Instant,
    context: Context<Scripted>,
    channel: ChannelId,
    qp: Qp,
    /// The next sequence number of a peer that counts correctly.
    seq: u16,
    received: Vec<Message>,
    asked: Vec<u64>,
    /// `true` if a message was received.
    any_message: bool,
    /// `true` until the channel's `Closed` event.
    open: bool,
}

fn config() -> Config {
    Config {
        depth: 8,
        ack_every: 2,
        small: 256,
        longest: 64 << 10,
        fragment: 4096,
        memory_region: 64 << 10,
        memory_limit: 1 << 20,
        backlog: 16,
        unanswered: 4,
        trace_every: 2,
        ..Config::default()
    }
}

/// Returns the peer's offer, possibly with invalid fields.
fn offer(script: &mut Script<'_>, good: ChannelOffer) -> ChannelOffer {
    match script.below(4) {
        0 => ChannelOffer { depth: script.half(), ack_frames: script.half(), ..good },
        1 => ChannelOffer { small: script.word(), longest: script.word(), ..good },
        2 => ChannelOffer { shared: true, ..good },
        _ => good,
    }
}

impl Scene {
    fn open(script: &mut Script<'_>) -> Option<Self> {
        let now = Instant::from_nanos(1_000_000_000);
        let context = Context::new(config(), Scripted::default(), Seed(1), [7; 16]);
        let mut context = context.expect("the parameters are in range");
        // The valid offer of the peer is that of another context.
        let mut other = Context::new(config(), Scripted::default(), Seed(2), [8; 16]);
        let (_, good) = other.as_mut().expect("likewise").offer(now).expect("there is room");
        let channel = if script.below(2) == 0 {
            let (channel, _) = context.offer(now).expect("there is room");
            context.establish(now, channel, &offer(script, good)).ok()?;
            channel
        } else {
            context.accept(now, &offer(script, good)).ok()?.0
        };
        let qp = context.status(channel)?.qp;
        let (received, asked) = (Vec::new(), Vec::new());
        let (seq, any_message, open) = (0, false, true);
        Some(Self { now, context, channel, qp, seq, received, asked, any_message, open })
    }

    fn play(&mut self, step: u8, script: &mut Script<'_>) {
        let (now, channel, qp) = (self.now, self.channel, self.qp);
        match step % 16 {
            0 => {
                let immediate = (script.below(8) != 0).then(|| script.word());
                self.context.verbs_mut().receive(qp, script.piece(), immediate);
            }
            1..=4 => {
                let (word, bytes) = self.frame(script);
                self.context.verbs_mut().receive(qp, &bytes, Some(word.immediate()));
            }
            5 => self.context.handle_stream(now, channel, script.piece()),
            6 | 7 => {
                let (word, bytes) = self.frame(script);
                let len = u32::try_from(bytes.len()).expect("a short frame").to_be_bytes();
                let framed = [&len[..], &word.immediate().to_be_bytes(), &bytes].concat();
                let cut = script.below(framed.len() + 1);
                self.context.handle_stream(now, channel, &framed[..cut]);
                self.context.handle_stream(now, channel, &framed[cut..]);
            }
            8 => self.context.handle_stream(now, channel, &[0xff; 8]),
            9 => {
                let fill = script.byte().unwrap_or(0);
                (0..=script.below(8)).for_each(|_| self.context.verbs_mut().complete(qp, fill));
            }
            10 => {
                let statuses = [Status::RemoteAccess, Status::RetryExceeded, Status::WrFlush];
                self.context.verbs_mut().fail(qp, statuses[script.below(3)]);
            }
            11 => self.command(script),
            12 => self.submit(script),
            13 => {
                while let Some(message) = self.received.pop() {
                    self.context.release(now, message);
                }
            }
            14 => {
                let mut out = vec![0; usize::from(script.half())];
                let len = self.context.poll_stream(channel, &mut out);
                assert!(len <= out.len());
            }
            _ => self.now = now + Duration::from_micros(u64::from(script.half()) * 50),
        }
    }

    /// Executes a command of the owner on the channel or the device.
    fn command(&mut self, script: &mut Script<'_>) {
        let (now, channel) = (self.now, self.channel);
        match script.below(7) {
            0 => _ = self.context.attach_stream(channel),
            1 => _ = self.context.switch(now, channel, Carrier::Stream),
            2 => _ = self.context.switch(now, channel, Carrier::Rdma),
            3 => self.context.handle_stream_end(now, channel),
            4 => self.context.request_ack(now, channel),
            5 => self.context.close(now, channel),
            _ => {
                let device = self.context.verbs_mut();
                device.full = !device.full;
            }
        }
    }

    /// Sends a message, a request or a response of the owner, or declines a request.
    fn submit(&mut self, script: &mut Script<'_>) {
        let (now, channel) = (self.now, self.channel);
        let body = vec![3; usize::from(script.half())];
        let body = Payload::Copy(&body);
        match script.below(4) {
            0 => _ = self.context.send(now, channel, body),
            1 => _ = self.context.request(now, channel, body),
            2 => _ = self.asked.pop().map(|id| self.context.respond(now, channel, id, body)),
            _ => _ = self.asked.pop().map(|id| self.context.decline(now, channel, id)),
        }
    }

    /// Returns a frame of the peer, possibly with invalid fields.
    fn frame(&mut self, script: &mut Script<'_>) -> (SequenceWord, Vec<u8>) {
        let wrong = script.byte().unwrap_or(0);
        let kind = FrameKind::ALL[script.below(FrameKind::ALL.len())];
        let id = u64::from(script.byte().unwrap_or(0) % 8);
        let call =
            [CallRole::OneWay, CallRole::Request(id), CallRole::Response(id)][script.below(3)];
        let body = script.take(script_len(wrong));
        let remote = RemoteBody { address: 1 << 20, rkey: 5 };
        let mut rest = body.to_vec();
        let mut length = u32::try_from(rest.len()).expect("a short one");
        if kind == FrameKind::Large {
            rest = vec![0; RemoteBody::LEN];
            remote.emit(&mut rest);
            length = u32::from(script.half()) + 256;
        }
        if wrong & 1 != 0 && wrong & 2 != 0 {
            length = script.word();
        }
        let known = if wrong & 4 != 0 { script.half() } else { 0 };
        let trace = (wrong & 0x18 == 0x18).then(|| TraceExtension {
            id: 1,
            sent_at: script.word().into(),
            received_at: script.word().into(),
        });
        let header = FrameHeader { kind, call, known, length, trace };
        let mut bytes = vec![0; header.len()];
        header.emit(&mut bytes);
        bytes.extend_from_slice(&rest);
        let ack = if wrong & 0x20 == 0 { 0 } else { script.half() % 32 };
        let seq = if wrong & 0xc0 == 0xc0 { script.half() } else { self.seq };
        if kind != FrameKind::Ack {
            self.seq = self.seq.wrapping_add(1);
        }
        (SequenceWord { seq, ack }, bytes)
    }

    /// Polls the context and checks its invariants.
    fn poll(&mut self) {
        let polls = (0..100).find(|_| !self.context.poll(self.now));
        assert!(polls.is_some(), "it never comes to an end");
        while let Some(event) = self.context.poll_event() {
            match event {
                Event::Message { channel, message } => {
                    assert!(self.open && channel == self.channel);
                    assert!(message.len() <= self.context.config().longest);
                    assert_eq!(self.context.body(&message).len(), message.len() as usize);
                    if let CallRole::Request(id) = message.call {
                        self.asked.push(id);
                    }
                    self.any_message = true;
                    self.received.push(message);
                }
                Event::Closed { channel, reason } => {
                    assert!(core::mem::take(&mut self.open) && channel == self.channel);
                    assert!(!reason.to_string().contains('\n'), "a reason is one line");
                }
                _ => {}
            }
        }
        let MemoryUse { registered, used } = self.context.memory();
        assert!(used <= registered && registered <= self.context.config().memory_limit);
        let status = self.context.status(self.channel);
        assert_eq!(status.is_some(), self.open, "who is closed is gone");
        if let Some(status) = status {
            assert!(status.in_flight <= status.depth.max(1), "{status:?}");
            assert!(status.to_answer <= self.context.config().unanswered + 8, "{status:?}");
            assert!(status.state != ChannelState::Offered);
        }
        let due = self.context.poll_timeout();
        assert!(due.is_none_or(|due| due > self.now), "what is due has been done");
    }

    /// Shuts the context down and checks that it keeps no memory. Returns `true` if a message was received.
    fn end(mut self) -> bool {
        self.context.verbs_mut().full = false;
        for message in core::mem::take(&mut self.received) {
            self.context.release(self.now, message);
        }
        while let Some(event) = self.context.poll_event() {
            if let Event::Message { message, .. } = event {
                self.context.release(self.now, message);
            }
        }
        self.context.shut_down(self.now);
        assert_eq!(self.context.memory(), MemoryUse::default(), "it keeps memory");
        self.any_message
    }
}

/// Returns the length of a body in bytes, from the bits that select invalid fields.
const fn script_len(wrong: u8) -> usize {
    if wrong & 1 != 0 { 256 } else { 5 }
}
