//! The host's end of one port: it attaches to the daemon for the guest's process that has the port, and passes on
//! commands, answers and signals. It trusts no byte of the guest, which can only delay or end its own device: the
//! daemon waits for no relay, and each port has a thread of its own.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use weft_udp::Clock;
use weft_udp::wait::timespec;
use weft_units::{Duration, Instant};

use super::ram::Mapping;
use super::translation::translate;
use super::{Parts, slot_offset};
use crate::attach::{
    Answer, Attachment, CallError, Caller, PROTOCOL, Page, Probe, Refusal, Request, Run, Signal,
    decode, encode,
};
use crate::engine::command::Command;
use crate::guest::frames::{Frame, Frames};
use crate::guest::regions::Regions;

/// The interval of checks that the guest's process lives.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The maximum time without a sign of life. A process adds to its count four times a second. A guest that is reset takes
/// its guardians with it, and for so long its next kernel shares its pages with peers.
const MAX_SILENCE: Duration = Duration::from_secs(3);

/// Maximum number of runs of pages of one region.
const MAX_RUNS: usize = 64 << 10;

/// The relay of one connection to a port.
#[derive(Debug)]
pub(super) struct Relay<'a> {
    parts: &'a Parts,
    /// The port's number, and its slot's.
    port: usize,
    frames: Frames,
    /// The session of the last frame.
    session: Option<u32>,
    /// The pages for the next request.
    pages: Vec<Run>,
    process: Option<Process>,
    message: Vec<u8>,
}

/// The attachment for a guest's process.
#[derive(Debug)]
struct Process {
    caller: Caller,
    signal: Signal,
    regions: Regions<Mapping>,
    beats: u32,
    /// The time at which the count was first seen.
    alive_at: Instant,
}

/// The reason that the relay closes a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("its port failed: {0}")]
    Port(#[from] io::Error),
    #[error("the daemon ended its device")]
    Daemon,
    #[error("it has ended, or its guest stands still")]
    Silent,
}

/// The descriptors that are ready.
struct Ready {
    stop: bool,
    port: bool,
    signal: bool,
    daemon_ended: bool,
}

impl<'a> Relay<'a> {
    pub(super) const fn new(parts: &'a Parts, port: usize, frames: Frames) -> Self {
        let (session, process) = (None, None);
        Self { parts, port, frames, session, pages: Vec::new(), process, message: Vec::new() }
    }

    /// Serves the guest until its end of the port closes, or the relay is stopped.
    ///
    /// # Errors
    /// See [`Ended`].
    pub(super) fn run(mut self) -> Result<(), Ended> {
        let outcome = self.serve();
        self.detach();
        outcome
    }

    fn serve(&mut self) -> Result<(), Ended> {
        loop {
            let ready = self.wait()?;
            if ready.stop {
                return Ok(());
            }
            if ready.daemon_ended {
                return Err(Ended::Daemon);
            }
            if let (true, Some(process), Some(session)) =
                (ready.signal, &self.process, self.session)
            {
                process.signal.take();
                self.frames.send(session, &[])?;
            }
            if ready.port {
                if !self.frames.receive()? {
                    return Ok(());
                }
                while let Some(frame) = self.frames.pop()? {
                    self.handle(&frame)?;
                }
            }
            self.check_life()?;
        }
    }

    /// Waits until any descriptor is ready, or the next check of the process's life is due.
    fn wait(&self) -> io::Result<Ready> {
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        let mut watched = vec![
            PollFd::new(&self.parts.stop, PollFlags::IN),
            PollFd::new(&self.frames, PollFlags::IN),
        ];
        if let Some(Process { caller, signal, .. }) = &self.process {
            watched.push(PollFd::new(signal, PollFlags::IN));
            watched.push(PollFd::new(caller, gone));
        }
        match poll(&mut watched, Some(&timespec(CHECK_EVERY))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let events = |at: usize| watched.get(at).map_or(PollFlags::empty(), PollFd::revents);
        Ok(Ready {
            stop: !events(0).is_empty(),
            port: !events(1).is_empty(),
            signal: events(2).contains(PollFlags::IN),
            // A daemon whose thread a tenant blocks has the socket still, but not the signal.
            daemon_ended: events(2).intersects(gone) || events(3).intersects(gone),
        })
    }

    fn check_life(&mut self) -> Result<(), Ended> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let (now, beats) = (Clock.now(), self.parts.slots[self.port].beats());
        if beats != process.beats {
            (process.beats, process.alive_at) = (beats, now);
        }
        if now.since(process.alive_at) > MAX_SILENCE { Err(Ended::Silent) } else { Ok(()) }
    }

    /// Handles a frame. The first one of another session is of another process.
    fn handle(&mut self, frame: &Frame) -> io::Result<()> {
        if self.session != Some(frame.session) {
            self.detach();
            self.pages.clear();
            self.session = Some(frame.session);
        }
        if frame.body.is_empty() {
            self.process.iter().for_each(|process| process.signal.give());
            return Ok(());
        }
        let answer = match decode(&frame.body) {
            Some(request) => self.answer(request),
            None => Err(Refusal::new(
                libc::EPROTO,
                "the relay cannot decode this message: it is of another version of Weft",
            )),
        };
        encode::<Result<Answer, Refusal>>(&answer, &mut self.message);
        self.frames.send(frame.session, &self.message)
    }

    fn answer(&mut self, request: Request) -> Result<Answer, Refusal> {
        match request {
            Request::Describe { .. } => {
                let describe = Request::Describe { name: self.parts.device.clone() };
                let called =
                    self.parts.connect().and_then(|mut caller| caller.call(&describe, &[]));
                called.map(|(answer, _)| answer).map_err(refusal_on_host)
            }
            Request::Pages(runs) => self.add_pages(&runs),
            Request::Attach { protocol, .. } if protocol != PROTOCOL => Err(Refusal::new(
                libc::EPROTO,
                "the guest's libibverbs.so.1 is of another version of Weft than its host's relay",
            )),
            Request::Attach { probe, .. } => self.attach(probe),
            Request::Command(command) => self.command(command),
            Request::Create { .. }
            | Request::List { .. }
            | Request::Show { .. }
            | Request::Delete { .. }
            | Request::CreateAll { .. }
            | Request::DeleteAll { .. }
            | Request::States { .. }
            | Request::State { .. }
            | Request::Totals => {
                Err(Refusal::new(libc::EPERM, "a guest's device is made and shown on its host"))
            }
        }
    }

    /// Adds pages for the next request. After a refusal that request has none.
    fn add_pages(&mut self, runs: &[Run]) -> Result<Answer, Refusal> {
        let checked = self.check_pages(runs);
        if checked.is_ok() {
            self.pages.extend(runs);
        } else {
            self.pages.clear();
        }
        checked.map(|()| Answer::Done)
    }

    fn check_pages(&self, runs: &[Run]) -> Result<(), Refusal> {
        if self.pages.len() + runs.len() > MAX_RUNS {
            let reason = format!("a region has more than {MAX_RUNS} pieces: use huge pages");
            return Err(Refusal::new(libc::ENOMEM, reason));
        }
        for &run in runs {
            let checked = self.parts.ram.check(run);
            checked.map_err(|error| Refusal::new(libc::EFAULT, error.to_string()))?;
        }
        Ok(())
    }

    /// Attaches to the daemon for the guest's process, whose probe lies in the page that came before.
    fn attach(&mut self, probe: Probe) -> Result<Answer, Refusal> {
        let pages = core::mem::take(&mut self.pages);
        if self.process.is_some() {
            return Err(Refusal::new(libc::EBUSY, "this process is attached already"));
        }
        if self.parts.ram.word(&pages, probe.address) != Some(probe.value) {
            let reason = "the relay does not find the process's memory at its page: start QEMU with \
                          all options that `weft device guest` prints";
            return Err(Refusal::new(libc::EFAULT, reason));
        }
        let kernel =
            |error: io::Error| refusal(CallError::kernel("the relay has no more room", &error));
        let offset = slot_offset(self.port);
        rustix::io::pwrite(&self.parts.bar, &[0; Page::LEN], offset)
            .map_err(|errno| kernel(errno.into()))?;
        let mut caller = self.parts.connect().map_err(refusal_on_host)?;
        let rings = Some((self.parts.bar.as_fd(), offset));
        let Attachment { signal, .. } =
            caller.attach(&self.parts.device, rings).map_err(refusal_on_host)?;
        let (beats, alive_at) = (self.parts.slots[self.port].beats(), Clock.now());
        let regions = Regions::default();
        self.process = Some(Process { caller, signal, regions, beats, alive_at });
        Ok(Answer::Attached)
    }

    fn command(&mut self, command: Command) -> Result<Answer, Refusal> {
        let pages = core::mem::take(&mut self.pages);
        let Some(process) = &mut self.process else {
            return Err(Refusal::new(libc::EINVAL, "not attached"));
        };
        let (command, mapping) = translate(&self.parts.ram, command, &pages)?;
        let called = process.caller.call(&Request::Command(command), &[]);
        let (answer, _) = called.map_err(refusal)?;
        if let Answer::Reply(reply) = &answer {
            process.regions.follow(&command, reply, mapping);
        }
        Ok(answer)
    }

    /// Ends the device of the guest's process. Returns when the daemon no longer uses its rings and its memory, which
    /// the next process may use.
    fn detach(&mut self) {
        let Some(Process { caller, signal, regions, .. }) = self.process.take() else { return };
        drop(caller);
        signal.wait_for_end();
        drop(regions);
    }
}

/// Returns an error as the relay's answer, for a reader in the guest, who can do nothing about the daemon.
fn refusal_on_host(error: CallError) -> Refusal {
    let Refusal { errno, reason } = refusal(error);
    Refusal::new(errno, format!("on this guest's host, for its `weft device guest`: {reason}"))
}

/// Returns an error of a call as the relay's answer.
fn refusal(error: CallError) -> Refusal {
    match error {
        CallError::Refused { errno, reason } => Refusal { errno, reason },
        error => Refusal::new(error.errno().0, error.to_string()),
    }
}
