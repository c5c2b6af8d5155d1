//! The node's record for `weft stat`, and the requests of `weft adm` (X-RDMA, section VI). The node serves both when it
//! polls its sockets.

use std::collections::VecDeque;
use std::path::PathBuf;

use rustix::event::epoll::EventFlags;
use slotmap::Key;
use weft_msg::{ChannelId, ConfigError, Context, NoteKind, Verbs};
use weft_stat::{
    Address, Carrier, ChannelRecord, ChannelState, ContextRecord, Control, EventKind, EventRecord,
    Folder, Kind, ProgramRecord, ProgramState, Request, Setting, StatusWriter, Text,
    UpdateSchedule,
};
use weft_units::{Duration, Instant};

use super::{Node, Source};
use crate::clock;
use crate::device::IbVerbs;

/// The visibility of a node's record.
#[derive(Clone, Debug, Default)]
pub struct Show {
    /// `true` if the node writes no record, as with `WEFT_STAT=off` in the environment.
    pub off: bool,
    /// The folder of the record; by default that of `WEFT_STAT`, or the user's.
    pub folder: Option<PathBuf>,
    /// The name in the record; by default the program's.
    pub name: Option<String>,
}

/// A node's record for `weft stat`.
#[derive(Debug)]
pub(super) struct NodeRecord {
    writer: StatusWriter,
    control: Option<Control>,
    name: String,
    started: Instant,
    pace: UpdateSchedule,
    /// The context's activity when the record was last written; `None` if a write is requested.
    written_activity: Option<u64>,
    /// The latest events, oldest first.
    events: VecDeque<EventRecord>,
    /// Total number of events.
    events_total: u64,
    /// The number of the last note of the context's journal among them.
    last_note: u64,
    /// Number of slow segments.
    slow_segments: u64,
}

/// Maximum number of events in the record.
const MAX_EVENTS: usize = 64;

impl NodeRecord {
    /// Creates the record. Returns `None` if it is off or cannot be created; the node runs without it.
    pub(super) fn open(show: &Show, now: Instant) -> Option<Self> {
        if show.off {
            return None;
        }
        let folder = show.folder.as_ref().map(Folder::at).or_else(Folder::own)?;
        folder.prepare().ok()?;
        folder.sweep();
        let writer = StatusWriter::create(&folder, "node").ok()?;
        let control = Control::beside(writer.path()).ok();
        let name = show.name.clone().or_else(program).unwrap_or_default();
        Some(Self {
            writer,
            control,
            name,
            started: now,
            pace: UpdateSchedule::default(),
            written_activity: None,
            events: VecDeque::new(),
            events_total: 0,
            last_note: 0,
            slow_segments: 0,
        })
    }

    /// Returns the time of the next write of the record, or `None` if the context had no activity since the last.
    pub(super) fn due(&self, context: &Context<IbVerbs>) -> Option<Instant> {
        (self.written_activity != Some(context.activity())).then(|| self.pace.due())
    }

    /// Records whether the node runs or is about to sleep.
    pub(super) fn set_state(&self, state: ProgramState) {
        self.writer.set_state(state);
    }

    /// Writes the record if it is due.
    fn refresh(&mut self, now: Instant, context: &Context<IbVerbs>, listens: &str) {
        self.writer.set_heartbeat(now);
        if self.due(context).is_none_or(|due| due > now) {
            return;
        }
        self.written_activity = Some(context.activity());
        let last_note = self.last_note;
        for (number, note) in context.journal().last().filter(|(number, _)| *number > last_note) {
            self.last_note = number;
            self.push_event(event(note));
        }
        let Self { writer, name, started, events, events_total, slow_segments, .. } = self;
        // A full file system may have room later; the last record stays.
        let _ = writer.publish(|draft| {
            draft.push(&ProgramRecord {
                kind: Kind::Node,
                pid: std::process::id().into(),
                started_at: started.as_nanos(),
                published_at: now.as_nanos(),
                name: Text::new(name),
                device: Text::new(context.verbs().name()),
                address: Address(context.verbs().gid().to_canonical()),
                listens: Text::new(listens),
                entries: context.channels().count() as u64,
                events: *events_total,
            });
            draft.push(&ContextRecord { slow_segments: *slow_segments, ..about(context) });
            let channels = context.channels().filter_map(|id| channel(now, context, id));
            channels.for_each(|it| draft.push(&it));
            events.iter().for_each(|event| draft.push(event));
        });
        self.pace.on_written(now, clock::now());
    }

    /// Records a segment that took longer than `slow_threshold`. Its event replaces the previous one of the same name and has the
    /// longest duration of all: a segment that is always slow leaves room for other events. Such a repetition is written with the
    /// next change, because a write may itself be slow.
    fn on_slow_segment(&mut self, now: Instant, name: &'static str, took: Duration) {
        self.slow_segments += 1;
        let (at, took, text) = (now.as_nanos(), took.as_nanos(), Text::new(name));
        let kind = EventKind::SlowSegment;
        let is_same = |event: &EventRecord| event.kind == kind && event.text.as_str() == name;
        let before = self.events.iter().position(is_same).and_then(|at| self.events.remove(at));
        let longest = before.as_ref().map_or(took, |before| before.took.max(took));
        if before.is_none() {
            self.written_activity = None;
        }
        self.push_event(EventRecord { at, kind, took: longest, text, ..EventRecord::default() });
    }

    /// Adds an event to the record, numbered from 1.
    fn push_event(&mut self, event: EventRecord) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events_total += 1;
        self.events.push_back(EventRecord { number: self.events_total, ..event });
    }

    /// Serves the requests of `weft adm`.
    fn serve_control(&mut self, now: Instant, context: &mut Context<IbVerbs>) {
        let Some(control) = &self.control else { return };
        let mut changed = Vec::new();
        control.serve(|request| -> Result<_, ConfigError> {
            match request {
                Request::List => Ok(settings(context)),
                Request::Set { name, value } => {
                    context.set(&name, &value)?;
                    let all = settings(context).into_iter();
                    let set: Vec<Setting> = all.filter(|setting| setting.name == name).collect();
                    changed.extend(set.iter().map(|set| format!("{} = {}", set.name, set.value)));
                    Ok(set)
                }
            }
        });
        for text in changed {
            let (at, kind, text) = (now.as_nanos(), EventKind::Changed, Text::new(&text));
            self.push_event(EventRecord { at, kind, text, ..EventRecord::default() });
            self.written_activity = None;
        }
    }
}

impl Node {
    /// Registers the socket of `weft adm` with epoll.
    pub(super) fn watch_control(&self) -> Result<(), super::NodeError> {
        let control = self.record.as_ref().and_then(|record| record.control.as_ref());
        control.map_or(Ok(()), |socket| self.watch(socket, Source::Control, 0, EventFlags::IN))
    }

    /// Serves requests of `weft adm` that arrived.
    pub(super) fn serve_control(&mut self) {
        if let Some(record) = &mut self.record {
            record.serve_control(clock::now(), &mut self.context);
        }
    }

    /// Writes the node's current state to its record if that is due.
    pub(super) fn show(&mut self) {
        if let Some(record) = &mut self.record {
            record.set_state(ProgramState::Running);
            record.refresh(clock::now(), &self.context, &self.listens);
        }
    }

    /// Records the segments of code that took long: those of the device since the last call, and the service of the sockets,
    /// which `began` then (X-RDMA, section VI.A, method III). The path of messages has no clock besides that of the poll.
    pub(super) fn check_segments(&mut self, began: Instant) {
        let now = clock::now();
        let threshold = self.context.config().slow_threshold;
        let device = self.context.verbs_mut().take_segments();
        let sockets = ("serving sockets", now.since(began));
        let Some(record) = &mut self.record else { return };
        let slow = device.into_iter().chain([sockets]).filter(|(_, took)| *took > threshold);
        slow.for_each(|(name, took)| record.on_slow_segment(now, name, took));
    }

    /// Schedules a write of the record after a change outside the context.
    pub(super) fn request_show(&mut self) {
        if let Some(record) = &mut self.record {
            record.written_activity = None;
        }
    }

    /// Returns the time until the record's next write, which limits the node's sleep.
    pub(super) fn until_next_show(&self, now: Instant) -> Duration {
        let due = self.record.as_ref().and_then(|record| record.due(&self.context));
        due.map_or(Duration::MAX, |due| due.since(now))
    }

    /// Records that the node sleeps.
    pub(super) fn show_asleep(&self) {
        if let Some(record) = &self.record {
            record.set_state(ProgramState::Asleep);
        }
    }

    /// Returns the file of the node's record, which `weft stat` reads; `None` if it has none.
    pub fn shown_at(&self) -> Option<&std::path::Path> {
        self.record.as_ref().map(|record| record.writer.path())
    }
}

/// Returns the name of this program's file.
fn program() -> Option<String> {
    let path = std::env::current_exe().ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// Returns the context's parameters for `weft adm`.
fn settings(context: &Context<IbVerbs>) -> Vec<Setting> {
    let all = context.parameters().into_iter();
    all.map(|parameter| Setting {
        name: parameter.name.into(),
        value: parameter.value,
        online: parameter.online,
        about: parameter.about.into(),
    })
    .collect()
}

/// Returns the record of the context.
fn about(context: &Context<IbVerbs>) -> ContextRecord {
    let (stats, memory) = (context.stats(), context.memory());
    let (flow, traced) = (context.flow(), context.traced());
    ContextRecord {
        memory_registered: memory.registered,
        memory_used: memory.used,
        memory_limit: context.config().memory_limit,
        qps_cached: context.cached_qps() as u64,
        qps_created: stats.qps_created,
        qps_reused: stats.qps_reused,
        channels_begun: stats.channels,
        channels_closed: stats.closed,
        slow_polls: stats.slow_polls,
        slow_calls: stats.slow_calls,
        filtered: stats.filtered,
        sends_limit: flow.sends_limit,
        sends_in_flight: flow.sends_in_flight,
        reads_limit: flow.reads_limit,
        reads_in_flight: flow.reads_in_flight,
        slow_segments: 0,
        request_time: traced.request.sum().as_nanos(),
        peer_time: traced.peer.sum().as_nanos(),
        response_time: traced.response.sum().as_nanos(),
        requests: (&traced.request).into(),
        peers: (&traced.peer).into(),
        responses: (&traced.response).into(),
    }
}

/// Returns the record of a channel; `None` if it has ended.
fn channel(now: Instant, context: &Context<IbVerbs>, id: ChannelId) -> Option<ChannelRecord> {
    let (status, calls) = (context.status(id)?, context.calls(id)?);
    let clock = context.clock(now, id);
    let stats = status.stats;
    Some(ChannelRecord {
        id: id.data().as_ffi(),
        peer: Address(status.peer.to_canonical()),
        qp: status.qp.0.into(),
        peer_qp: status.peer_qp.0.into(),
        state: state(status.state),
        carrier: carrier(status.carrier),
        in_flight: status.in_flight.into(),
        depth: status.depth.into(),
        backlog: status.backlog.into(),
        fetching: status.fetching.into(),
        asked: status.pending_calls.into(),
        memory: status.receive_bytes,
        clock_offset: clock.map(|clock| clock.offset),
        sent: stats.sent,
        sent_bytes: stats.sent_bytes,
        received: stats.received,
        received_bytes: stats.received_bytes,
        large: stats.large,
        acks: stats.acks,
        nops: stats.nops,
        probes: stats.probes,
        switches: stats.switches,
        frames_retransmitted: stats.frames_retransmitted,
        starved: stats.starved,
        call_time: calls.sum().as_nanos(),
        calls: calls.into(),
        clock_age: clock.map(|clock| clock.age.as_nanos()),
        clock_error: clock.map(|clock| clock.error.as_nanos()),
        round_trip: status.round_trip.map(Duration::as_nanos),
    })
}

const fn state(state: weft_msg::ChannelState) -> ChannelState {
    match state {
        weft_msg::ChannelState::Offered => ChannelState::Offered,
        weft_msg::ChannelState::Connected => ChannelState::Connected,
        weft_msg::ChannelState::Open => ChannelState::Open,
        weft_msg::ChannelState::Closing => ChannelState::Closing,
        weft_msg::ChannelState::PeerClosed => ChannelState::PeerClosed,
    }
}

const fn carrier(carrier: weft_msg::Carrier) -> Carrier {
    match carrier {
        weft_msg::Carrier::Rdma => Carrier::Rdma,
        weft_msg::Carrier::Stream => Carrier::Stream,
    }
}

/// Converts a note of the context's journal; the record numbers it.
fn event(note: &weft_msg::Note) -> EventRecord {
    let (kind, took, text) = match note.kind {
        NoteKind::Opened => (EventKind::Opened, Duration::ZERO, String::new()),
        NoteKind::Closed(reason) => (EventKind::Closed, Duration::ZERO, reason.to_string()),
        NoteKind::Switched(to) => {
            (EventKind::Switched, Duration::ZERO, format!("to {}", carrier(to)))
        }
        NoteKind::SlowCall(took) => (EventKind::SlowCall, took, String::new()),
        NoteKind::SlowPoll(took) => (EventKind::SlowPoll, took, String::new()),
        // A kind of note newer than this crate.
        _ => (EventKind::Opened, Duration::ZERO, String::new()),
    };
    let about = note.channel.map(|(id, peer)| (id.data().as_ffi(), Address(peer.to_canonical())));
    let (channel, peer) = about.unwrap_or_default();
    let (at, took, text) = (note.at.as_nanos(), took.as_nanos(), Text::new(&text));
    EventRecord { number: 0, at, kind, channel, peer, took, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_segments_that_alternate_are_one_event_each_and_leave_room_for_others() {
        let folder = std::env::temp_dir().join(format!("weft-record-{}", std::process::id()));
        let show = Show { folder: Some(folder.clone()), ..Show::default() };
        let mut record = NodeRecord::open(&show, Instant::EPOCH).expect("a folder");
        record.push_event(EventRecord { kind: EventKind::Closed, ..EventRecord::default() });
        for took in [7, 9, 8] {
            for name in ["one", "other"] {
                record.on_slow_segment(Instant::EPOCH, name, Duration::from_millis(took));
            }
        }
        let event = |it: &EventRecord| (it.number, it.kind, it.text.to_string(), it.took);
        let slow = |number, name: &str| (number, EventKind::SlowSegment, name.into(), 9_000_000);
        let closed = (1, EventKind::Closed, String::new(), 0);
        let events: Vec<_> = record.events.iter().map(event).collect();
        assert_eq!(events, [closed, slow(6, "one"), slow(7, "other")]);
        assert_eq!((record.slow_segments, record.events_total), (6, 7));
        // A new name makes a write due, a repetition does not.
        for (name, written) in [("one", Some(1)), ("third", None), ("third", Some(1))] {
            record.written_activity = Some(1);
            record.on_slow_segment(Instant::EPOCH, name, Duration::from_millis(1));
            assert_eq!(record.written_activity, written, "{name}");
        }
        drop(record);
        let _ = std::fs::remove_dir_all(folder);
    }
}
