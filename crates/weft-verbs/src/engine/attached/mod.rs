//! A daemon's device in a process that is attached to it: commands go over the control socket, work requests and
//! completions through shared memory. This side refuses the requests that the device would refuse, so that programs get
//! the error at once; if the daemon dies, this side flushes the posted requests.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::event::poll;
use weft_rnic::{
    Arm, Completion, CompletionQueue, QueuePairNumber, ReceiveRequest, SendRequest,
    SharedReceiveQueue,
};
use weft_udp::Clock;
use weft_units::Duration;

use super::command::{Command, Reply};
use super::commands::Post;
use super::{Watchers, fork, timespec};
use crate::attach::{
    Answer, Attachment, Awaited, CallError, Caller, Consumer, Corrupt, Notice, Page, Posted,
    Producer, Request, Signal, Work, daemon_socket, decode, encode,
};
use crate::device::DEVICE;
use crate::errno::{Errno, Outcome};
use crate::guest::inside::{self, Registered};
use queues::Queues;

mod queues;
mod service;

/// Maximum number of records taken from the ring at a time: a program that polls one queue need not wait for all the
/// others'.
const MAX_RECORDS: usize = 256;

/// The maximum wait for room in a full ring. A daemon that has not made room by then is stopped.
const MAX_RING_WAIT: Duration = Duration::from_secs(2);

/// The maximum wait for a daemon that has ended to start again, and the interval of attempts. The unit's start takes less.
const MAX_START: Duration = Duration::from_secs(2);
const START_CHECKS: Duration = Duration::from_millis(20);

/// Number of consecutive empty polls after which each further one yields the processor, perhaps to the daemon.
const EAGER_POLLS: u32 = 16;

/// A daemon's device.
#[derive(Debug)]
pub(crate) struct Attached {
    caller: Mutex<Caller>,
    /// A duplicate of the caller's socket, to detect its end during a call.
    socket: OwnedFd,
    signal: Signal,
    page: Page,
    state: Mutex<State>,
    /// Number of consecutive empty polls.
    empty_polls: AtomicU32,
    /// `true` once the daemon has ended.
    dead: AtomicBool,
    /// The process it belongs to, as a count of forks.
    generation: u32,
    /// The descriptors that a child must close.
    descriptors: [RawFd; 3],
    /// In a virtual machine, the memory that the host was given.
    guest: Option<Registered>,
}

/// The state under the lock.
#[derive(Debug)]
struct State {
    work: Producer,
    notices: Consumer,
    queues: Queues,
    watchers: Watchers,
    /// A buffer for records, kept for its memory.
    record: Vec<u8>,
}

impl Attached {
    /// Attaches this process to a device; `again` if its daemon has ended and may be starting: then it waits for a moment.
    ///
    /// # Errors
    /// There is no daemon, or it refuses: standard error names the cause.
    pub(super) fn open(name: &str, again: bool) -> Outcome<Self> {
        let until = Clock.now() + if again { MAX_START } else { Duration::ZERO };
        loop {
            match Self::attach(name) {
                Err(CallError::NoDaemon { .. } | CallError::Gone(_)) if Clock.now() < until => {
                    // An interrupted wait is a short one.
                    let _ = poll(&mut [], Some(&timespec(START_CHECKS)));
                }
                attached => return attached.map_err(|error| report(name, &error)),
            }
        }
    }

    /// Attaches this process to the device that its virtual machine has.
    ///
    /// # Errors
    /// There is no port for it, or the host refuses: standard error names the cause.
    pub(super) fn open_in_guest(name: &str) -> Outcome<Self> {
        Self::attach_in_guest(name).map_err(|error| report(name, &error))
    }

    fn attach_in_guest(name: &str) -> Result<Self, CallError> {
        let inside::Attachment { caller, signal, page, memory } = inside::attach(name)?;
        let mut attached = Self::new(caller, page, signal)?;
        attached.guest = Some(memory);
        Ok(attached)
    }

    fn attach(name: &str) -> Result<Self, CallError> {
        Self::attach_at(&daemon_socket(), name)
    }

    /// Attaches to a device of the daemon at this path.
    ///
    /// # Errors
    /// There is no daemon, or it refuses.
    pub(super) fn attach_at(socket: &Path, name: &str) -> Result<Self, CallError> {
        let mut caller = Caller::connect(socket)?;
        let Attachment { rings, signal } = caller.attach(name, None)?;
        let no_memory =
            |errno: rustix::io::Errno| CallError::kernel("no shared memory", &errno.into());
        Self::new(caller, Page::open(rings).map_err(no_memory)?, signal)
    }

    fn new(caller: Caller, page: Page, signal: Signal) -> Result<Self, CallError> {
        let socket = caller.as_fd().try_clone_to_owned().map_err(CallError::Gone)?;
        let descriptors = [caller.as_fd(), socket.as_fd(), signal.as_fd()];
        let descriptors = descriptors.map(|descriptor| descriptor.as_raw_fd());
        Ok(Self {
            caller: Mutex::new(caller),
            socket,
            signal,
            page,
            state: Mutex::new(State {
                work: Producer::new(Page::WORK),
                notices: Consumer::new(Page::NOTICES),
                queues: Queues::default(),
                watchers: Watchers::default(),
                record: Vec::new(),
            }),
            empty_polls: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            generation: fork::generation(),
            descriptors,
            guest: None,
        })
    }

    pub(super) fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Returns the descriptors that a child must close: the daemon reclaims a process's objects when the last one is
    /// closed.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.descriptors.to_vec()
    }

    /// Locks the state.
    ///
    /// # Errors
    /// `EIO`: the process has forked and this is its parent's, or a thread panicked.
    fn state(&self) -> Outcome<MutexGuard<'_, State>> {
        if self.is_inherited() {
            return Err(Errno(libc::EIO));
        }
        self.state.lock().map_err(|_| Errno(libc::EIO))
    }

    pub(super) fn control(&self, command: &Command) -> Outcome<Reply> {
        if self.is_inherited() {
            return Err(Errno(libc::EIO));
        }
        if let Command::ResizeCq(cq, capacity) = *command {
            self.state()?.queues.check_resize(cq, capacity)?;
        }
        let mut caller = self.caller.lock().map_err(|_| Errno(libc::EIO))?;
        let guest = self.guest.as_ref();
        let pinned = guest.map(|guest| guest.prepare(&mut caller, command)).transpose();
        // A program gets only an error number, which does not name the cause.
        let pinned = pinned.map_err(|error| report(DEVICE.name(), &error))?.flatten();
        let reply = match caller.call(&Request::Command(*command), &[]) {
            Ok((Answer::Reply(reply), _)) => reply,
            Ok(_) => return Err(Errno(libc::EPROTO)),
            // Nothing of it is left: a program can give up what it has on a device that is gone.
            Err(CallError::Gone(_)) if command.ends_object() => Reply::Done,
            Err(error) => return Err(error.errno()),
        };
        if let Some(guest) = guest {
            guest.follow(command, &reply, pinned);
        }
        let mut state = self.state()?;
        // The daemon appended its records before it answered, so they come first.
        self.ingest_all(&mut state)?;
        state.queues.follow(command, &reply);
        Ok(reply)
    }

    pub(super) fn watch(&self, change: impl FnOnce(&mut Watchers)) -> Outcome<()> {
        change(&mut self.state()?.watchers);
        Ok(())
    }

    pub(super) fn has_unseen(&self, qp: QueuePairNumber) -> Outcome<bool> {
        let mut state = self.state()?;
        self.ingest_all(&mut state)?;
        Ok(state.queues.has_unseen(qp))
    }

    /// Arms a completion queue. The process sets its signal flag itself, so that no completion comes between arming and
    /// waiting.
    pub(super) fn arm_cq(&self, cq: CompletionQueue, arm: Arm) -> Outcome<()> {
        let mut state = self.state()?;
        self.refuse_if_dead()?;
        self.ingest_all(&mut state)?;
        state.queues.arm(cq, arm)?;
        self.page.ask_for_signal(Page::PROCESS_WAITS);
        self.ingest_all(&mut state)
    }

    pub(super) fn poll_cq(
        &self,
        cq: CompletionQueue,
        max: usize,
        mut each: impl FnMut(Completion),
    ) -> Outcome<usize> {
        let mut state = self.state()?;
        let mut taken = state.queues.poll(cq, max, &mut each)?;
        if taken == 0 {
            if self.ingest(&mut state)? {
                taken = state.queues.poll(cq, max, &mut each)?;
            } else {
                self.refuse_if_dead()?;
                drop(state);
                self.on_empty_poll();
                return Ok(0);
            }
        }
        self.empty_polls.store(0, Ordering::Relaxed);
        Ok(taken)
    }

    /// Handles some of the daemon's records. Returns `true` if there were any.
    fn ingest(&self, state: &mut State) -> Outcome<bool> {
        let any = state.take(&self.page).map_err(|Corrupt| Errno(libc::EIO))?;
        if any && self.page.wants_signal(Page::DAEMON_STALLS) {
            self.signal.give();
        }
        Ok(any)
    }

    /// Handles all of the daemon's records.
    fn ingest_all(&self, state: &mut State) -> Outcome<()> {
        while self.ingest(state)? {}
        Ok(())
    }

    /// Counts an empty poll. The daemon has the work, and may be waiting for a processor.
    fn on_empty_poll(&self) {
        if self.empty_polls.fetch_add(1, Ordering::Relaxed) >= EAGER_POLLS {
            std::thread::yield_now();
        }
    }

    fn refuse_if_dead(&self) -> Outcome<()> {
        if self.dead.load(Ordering::Relaxed) { Err(Errno(libc::EIO)) } else { Ok(()) }
    }

    /// Appends work for the daemon, without waking it.
    fn append(&self, state: &mut State, work: &Work<'_>) -> Outcome<()> {
        encode(work, &mut state.record);
        let mut until = None;
        while !state.work.push(&self.page, &state.record).map_err(|Corrupt| Errno(libc::EIO))? {
            self.refuse_if_dead()?;
            let now = Clock.now();
            if now >= *until.get_or_insert(now + MAX_RING_WAIT) {
                return Err(Errno(libc::ENOMEM));
            }
            self.ring();
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Wakes the daemon, if it sleeps, for the appended work.
    fn ring(&self) {
        if self.page.wants_signal(Page::DAEMON_SLEEPS) {
            self.signal.give();
        }
    }

    fn send(
        &self,
        state: &mut State,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
    ) -> Outcome<()> {
        let number = state.queues.check_send(qp, request)?;
        self.append(state, &Work::Send(qp, Posted::numbered(number, request)))?;
        state.queues.record_send(qp, request.wr_id);
        Ok(())
    }

    pub(super) fn post_sends(
        &self,
        qp: QueuePairNumber,
        next: impl FnOnce(Post<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut state = self.state()?;
        self.refuse_if_dead()?;
        let outcome = next(&mut |request| self.send(&mut state, qp, request));
        self.ring();
        outcome
    }

    pub(super) fn post_all(
        &self,
        qp: QueuePairNumber,
        requests: &[SendRequest<'_>],
    ) -> Outcome<()> {
        let mut state = self.state()?;
        self.refuse_if_dead()?;
        state.queues.check_room(qp, requests.len())?;
        for request in requests {
            state.queues.check_send(qp, request)?;
        }
        let sent = requests.iter().try_for_each(|request| self.send(&mut state, qp, request));
        self.ring();
        sent
    }

    pub(super) fn post_receive(
        &self,
        qp: QueuePairNumber,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        let mut state = self.state()?;
        self.refuse_if_dead()?;
        let number = state.queues.check_receive(qp, request)?;
        self.append(&mut state, &Work::Receive(qp, Awaited::numbered(number, request)))?;
        state.queues.record_receive(qp, request.wr_id);
        self.ring();
        Ok(())
    }

    pub(super) fn post_srq_receive(
        &self,
        srq: SharedReceiveQueue,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        self.refuse_if_dead()?;
        if self.state()?.queues.is_full(srq) {
            // Requests may have been removed with queue pairs that ended: the device knows their number.
            self.control(&Command::Waiting(srq))?;
        }
        let mut state = self.state()?;
        state.queues.check_shared_receive(srq, request)?;
        self.append(
            &mut state,
            &Work::SharedReceive(srq, Awaited::numbered(request.wr_id, request)),
        )?;
        state.queues.record_shared_receive(srq);
        self.ring();
        Ok(())
    }
}

/// Writes the cause of an error to standard error, and returns its number, which would not name it.
fn report(name: &str, error: &CallError) -> Errno {
    eprintln!("weft: device {name}: {error}");
    error.errno()
}

impl Drop for Attached {
    fn drop(&mut self) {
        fork::forget(&self.descriptors);
    }
}

impl State {
    /// Handles some of the daemon's records. Returns `true` if there were any.
    fn take(&mut self, page: &Page) -> Result<bool, Corrupt> {
        let mut taken = 0;
        while taken < MAX_RECORDS && self.notices.pop(page, &mut self.record)? {
            taken += 1;
            match decode(&self.record).ok_or(Corrupt)? {
                Notice::Completion(cq, completion) => {
                    if let Some(event) = self.queues.complete(cq, completion) {
                        self.watchers.notify(event);
                    }
                }
                Notice::Event(event) => self.watchers.notify(event),
            }
        }
        Ok(taken > 0)
    }
}
