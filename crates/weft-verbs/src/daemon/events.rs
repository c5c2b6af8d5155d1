//! The events that the daemon reports to its owner, for a log. Things that a program can repeat are counted by cause, and reported once in
//! ten seconds: no program fills a log.

use std::collections::BTreeMap;
use std::path::PathBuf;

use weft_rnic::{Event, Status};
use weft_units::{Duration, Instant};

use crate::attach::Refusal;

/// The interval in which things are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// An event of a daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum DaemonEvent {
    /// The devices of the last daemon are there again.
    DevicesRestored {
        /// Number of devices.
        devices: u32,
        /// The file that keeps them.
        file: PathBuf,
    },
    /// Things of one kind happened in an interval, for one cause.
    Counted(CountedEvent),
}

/// The things of one kind and cause in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedEvent {
    /// Their kind.
    pub kind: EventKind,
    /// Their cause.
    pub cause: &'static str,
    /// Their number.
    pub count: u64,
    /// The interval, seconds.
    pub seconds: f64,
    /// The last one's device, process and user.
    pub last: Subject,
}

/// The kinds of things that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A connection, or a process that wanted to attach, was refused.
    ClientRefused,
    /// A limit of a device, or a quota of a user, refused an object or memory.
    LimitReached,
    /// The daemon ended a process.
    ProcessEnded,
    /// A process ended without destroying its queue pairs.
    ProcessLost,
    /// A queue pair failed.
    QueuePairFailed,
    /// A change of the devices was not made, because it could not be kept.
    ChangeNotKept,
}

/// The subject of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The device; empty if there is none.
    pub device: String,
    /// The process; 0 if it is unknown.
    pub process: u32,
    /// Its user.
    pub user: u32,
}

/// A function that takes a daemon's events. The thread of the device calls it: it must not block.
pub type OnEvent = fn(&DaemonEvent);

/// Prints an event on standard error: an owner that wants them elsewhere says so.
pub(super) fn print(event: &DaemonEvent) {
    // Devices that are back are no fault.
    let DaemonEvent::Counted(CountedEvent { kind, cause, count, last, .. }) = event else { return };
    let Subject { device, process, user } = last;
    eprintln!(
        "weft: {kind:?}, {cause}: {count}; the last one: device {device}, process {process}, user {user}"
    );
}

/// The numbers since the last report. Kinds and causes are few, whatever programs do.
#[derive(Debug)]
pub(super) struct EventCounts {
    counts: BTreeMap<(EventKind, &'static str), (u64, Subject)>,
    reported_at: Instant,
}

impl EventCounts {
    pub(super) fn new(now: Instant) -> Self {
        Self { counts: BTreeMap::new(), reported_at: now }
    }

    /// Counts something.
    pub(super) fn add(&mut self, kind: EventKind, cause: &'static str, subject: Subject) {
        let (count, last) = self.counts.entry((kind, cause)).or_default();
        *count += 1;
        *last = subject;
    }

    /// Returns what was counted in the last interval, if that is over.
    pub(super) fn take(&mut self, now: Instant) -> Vec<DaemonEvent> {
        if now.since(self.reported_at) < COUNT_INTERVAL {
            return Vec::new();
        }
        self.take_all(now)
    }

    /// Returns what was counted since the last report.
    pub(super) fn take_all(&mut self, now: Instant) -> Vec<DaemonEvent> {
        let seconds = now.since(self.reported_at).as_secs_f64();
        self.reported_at = now;
        let counts = core::mem::take(&mut self.counts).into_iter();
        let event = |((kind, cause), (count, last))| {
            DaemonEvent::Counted(CountedEvent { kind, cause, count, seconds, last })
        };
        counts.map(event).collect()
    }
}

/// Returns the cause for which a process may not attach.
pub(super) const fn cause_of(refusal: &Refusal) -> &'static str {
    match refusal.errno {
        libc::EPROTO => "protocol",
        libc::ENODEV => "no-such-device",
        libc::EPERM | libc::EACCES => "permission",
        libc::EUSERS => "processes",
        libc::EBUSY => "busy",
        _ => "no-room",
    }
}

/// Returns the cause for which a request's queue pair failed. Requests that are flushed failed with it.
pub(super) const fn failure_of(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::Success | Status::WrFlush => return None,
        Status::LocalLength => "local-length",
        Status::LocalQpOperation => "local-qp-operation",
        Status::LocalProtection => "local-protection",
        Status::MwBind => "mw-bind",
        Status::BadResponse => "bad-response",
        Status::LocalAccess => "local-access",
        Status::RemoteInvalidRequest => "remote-invalid-request",
        Status::RemoteAccess => "remote-access",
        Status::RemoteOperation => "remote-operation",
        Status::RetryExceeded => "retry-exceeded",
        Status::RnrRetryExceeded => "rnr-retry-exceeded",
        Status::RemoteAborted => "remote-aborted",
        Status::Fatal => "fatal",
        Status::General => "general",
    })
}

/// Returns the cause for which a queue pair without a failed request failed.
pub(super) const fn failure_by(event: Event) -> Option<&'static str> {
    Some(match event {
        Event::QpFatal { .. } => "fatal",
        Event::QpRequestError { .. } => "invalid-request",
        Event::QpAccessError { .. } => "invalid-access",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_that_programs_repeat_are_one_event_for_each_cause_and_interval() {
        let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
        let subject = |process| Subject { device: "a".into(), process, user: 7 };
        let mut counts = EventCounts::new(at(0));
        for process in 0..5_000 {
            let cause = if process % 5 == 0 { "protocol" } else { "processes" };
            counts.add(EventKind::ClientRefused, cause, subject(process));
        }
        assert_eq!(counts.take(at(9)), []);
        let event = |cause, count, process| {
            let (kind, last) = (EventKind::ClientRefused, subject(process));
            DaemonEvent::Counted(CountedEvent { kind, cause, count, seconds: 10.0, last })
        };
        let expected = [event("processes", 4_000, 4_999), event("protocol", 1_000, 4_995)];
        assert_eq!(counts.take(at(10)), expected);
        assert_eq!(counts.take(at(20)), []);
        counts.add(EventKind::ClientRefused, "protocol", subject(1));
        assert_eq!(counts.take_all(at(30)), [event("protocol", 1, 1)], "at the end");
    }
}
