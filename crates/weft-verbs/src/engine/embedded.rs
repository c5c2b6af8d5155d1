//! The embedded engine: the device in this process, over its own sockets. The thread that calls a verb runs the engine;
//! otherwise a sleeping thread wakes to run it, so that a program that never polls still answers READs.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use weft_rnic::{
    Arm, Completion, CompletionQueue, QueuePairNumber, ReceiveRequest, SendRequest,
    SharedReceiveQueue,
};
use weft_udp::Budget;
use weft_units::Instant;

use super::command::{Command, Reply};
use super::commands::Post;
use super::links::port_of;
use super::pace::Pace;
use super::planned::Planned;
use super::{Host, OWNER, Posted, Settings, Watchers, fork, own_limits};
use crate::device::DEVICE;
use crate::errno::{Errno, Outcome};

/// Maximum number of glances in a poll, each at one packet of each neighbour, before a full turn.
const MAX_GLANCES: u32 = 16;

/// One device and its sockets.
#[derive(Debug)]
pub(crate) struct Embedded {
    pub(super) host: Mutex<Host>,
    /// Wakes the thread.
    pub(super) kick: OwnedFd,
    /// Readable when a packet has arrived.
    pub(super) arrivals: OwnedFd,
    pub(super) pace: Pace,
    /// Number of the program's threads that wait for the lock.
    pub(super) wanted: AtomicU32,
    /// `true` while the exit of the process waits for the lock; no other thread begins to wait for it then.
    pub(super) exits: AtomicBool,
    /// The process it belongs to, as a count of forks.
    generation: u32,
}

impl Embedded {
    /// Opens the engine.
    ///
    /// # Errors
    /// The kernel has no more sockets, or no port is free.
    pub(super) fn open() -> Outcome<Self> {
        let host = Host::open(
            &DEVICE.addresses,
            own_limits(),
            Budget::default(),
            true,
            &Settings::from_environment()?,
        )?;
        Ok(Self {
            arrivals: host.arrivals().map_err(Errno::from)?,
            host: Mutex::new(host),
            kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(Errno::from)?,
            pace: Pace::default(),
            wanted: AtomicU32::new(0),
            exits: AtomicBool::new(false),
            generation: fork::generation(),
        })
    }

    /// Returns the descriptors that a child must close: open ones would occupy the parent's port for as long as the
    /// child lives, and hide the parent's end from its peers.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.host.lock().map_or_else(|_| Vec::new(), |host| host.descriptors())
    }

    /// Locks the device for a thread of the program.
    ///
    /// # Errors
    /// `EIO`: the process has forked and this is its parent's engine, or the engine panicked.
    fn host(&self) -> Outcome<MutexGuard<'_, Host>> {
        if self.generation != fork::generation() {
            return Err(Errno(libc::EIO));
        }
        let exits = || self.exits.load(Ordering::Relaxed);
        if !exits()
            && let Ok(host) = self.host.try_lock()
        {
            return Ok(host);
        }
        self.wanted.fetch_add(1, Ordering::Relaxed);
        while exits() {
            thread::yield_now();
        }
        let host = self.host.lock();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        host.map_err(|_| Errno(libc::EIO))
    }

    /// Wakes the thread if it would sleep past the next timeout.
    fn wake_if_due(&self, host: &Host) {
        if self.pace.oversleeps(|| host.next_due()) {
            self.wake();
        }
    }

    fn wake(&self) {
        // A full counter wakes the thread too.
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// Runs `act` on the device, then the work that follows from it.
    fn act<T>(&self, act: impl FnOnce(&mut Host, Instant) -> Outcome<T>) -> Outcome<T> {
        let mut host = self.host()?;
        let now = host.now();
        let outcome = act(&mut host, now);
        host.transmit(now);
        host.deliver();
        self.wake_if_due(&host);
        outcome
    }

    pub(super) fn control(&self, command: &Command) -> Outcome<Reply> {
        self.act(|host, now| host.execute(now, OWNER, command))
    }

    /// Returns the UDP port at which it receives; 0 in a child of `fork`.
    pub(super) fn receive_port(&self) -> u16 {
        self.host().map_or(0, |host| port_of(u32::from(host.driver.sockets.share()) << 16))
    }

    /// Makes packets leave from the ports of another plan.
    pub(super) fn plan(&self, planned: &Planned) -> Outcome<()> {
        self.act(|host, _| host.driver.sockets.plan(planned).map_err(Errno::from_socket))
    }

    pub(super) fn watch(&self, change: impl FnOnce(&mut Watchers)) -> Outcome<()> {
        change(&mut self.host()?.watchers);
        Ok(())
    }

    pub(super) fn has_unseen(&self, qp: QueuePairNumber) -> Outcome<bool> {
        self.act(|host, now| {
            host.ingest_arrived(now);
            Ok(host.device.has_unseen(qp))
        })
    }

    pub(super) fn arm_cq(&self, cq: CompletionQueue, arm: Arm) -> Outcome<()> {
        self.act(|host, _| host.device.arm_cq(cq, arm).map_err(Errno::from))?;
        if self.pace.is_left_alone() {
            self.wake();
        }
        Ok(())
    }

    pub(super) fn poll_cq(
        &self,
        cq: CompletionQueue,
        max: usize,
        mut each: impl FnMut(Completion),
    ) -> Outcome<usize> {
        let mut host = self.host()?;
        let now = host.now();
        self.pace.polls(now);
        let mut take = |host: &mut Host| -> Outcome<usize> {
            let mut taken = 0;
            while taken < max
                && let Some(completion) = host.device.poll_cq(cq)?
            {
                each(completion);
                taken += 1;
            }
            Ok(taken)
        };
        let mut taken = take(&mut host)?;
        // While the thread leaves all work to the program, a glance may suffice to find the awaited packet.
        let glances = taken == 0 && self.pace.is_left_alone() && host.neighbours_only();
        if glances {
            host.watch_rings();
        }
        let mut glance = 0;
        while glances && taken == 0 && glance < MAX_GLANCES && host.glance(now) {
            glance += 1;
            taken = take(&mut host)?;
        }
        if taken == 0 && !(glances && host.glance_suffices(now)) {
            let handled = host.turn(now);
            host.deliver();
            if handled > 0 {
                self.pace.handled(handled, now, host.now());
            }
            taken = take(&mut host)?;
        }
        self.pace.found(taken > 0);
        self.wake_if_due(&host);
        Ok(taken)
    }

    pub(super) fn post_srq_receive(
        &self,
        srq: SharedReceiveQueue,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        self.host()?.device.post_srq_receive(srq, request).map_err(Errno::from)
    }

    pub(super) fn post_sends(
        &self,
        qp: QueuePairNumber,
        next: impl FnOnce(Post<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut host = self.host()?;
        let (now, mut queued) = (host.now(), false);
        let posted = next(&mut |request| {
            request.datagram.into_iter().for_each(|datagram| host.meet(datagram.address));
            queued |= host.post_send(now, qp, request)? == Posted::Queued;
            Ok(())
        });
        if queued {
            host.transmit(now);
        }
        host.deliver();
        if queued {
            self.wake_if_due(&host);
        }
        posted
    }

    pub(super) fn post_all(
        &self,
        qp: QueuePairNumber,
        requests: &[SendRequest<'_>],
    ) -> Outcome<()> {
        if let [only] = requests {
            return self.post_sends(qp, |post| post(only));
        }
        self.act(|host, now| {
            let datagrams = requests.iter().filter_map(|request| request.datagram);
            datagrams.for_each(|datagram| host.meet(datagram.address));
            host.device.post_sends(now, qp, requests).map_err(Errno::from)
        })
    }

    pub(super) fn post_receive(
        &self,
        qp: QueuePairNumber,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        let mut host = self.host()?;
        host.device.post_receive(qp, request)?;
        host.deliver();
        Ok(())
    }
}
