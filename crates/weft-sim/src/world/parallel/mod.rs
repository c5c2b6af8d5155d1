//! One run on several threads, with the same result on any number.
//!
//! The network is divided into parts ([`partition`]), one for each thread. In each window the parts serve their own
//! nodes side by side ([`part`]): what a node does reaches the nodes of another part only in later windows, so its
//! events wait in a mailbox. What concerns the whole world is done by one thread while the others wait:
//!
//! * *Messages and workloads.* A host's turn stops at the first event that concerns them. When all parts have served
//!   the window, the stopped turns continue one after another, in order of host, as they would on one thread.
//! * *Global events* ([`global_events`](super::global_events)). The network is whole while they are handled.
//!
//! The result does not depend on the parts, because nothing in it depends on the order in which different nodes are
//! served ([`EventQueue`](crate::EventQueue)), but for the order of the workloads' notices in one window, which is that
//! of hosts.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use super::{Network, Progress, Watcher, World};
use crate::event::{Events, Mailbox};
use crate::fabric::Share;
use crate::time::SimTime;

mod gate;
mod part;
mod partition;

use gate::Gate;
use part::{Cause, Part, Suspended};
use partition::Partition;

/// The network while its parts have the hosts and the events.
#[derive(Debug)]
struct Divided {
    partition: Partition,
    parts: Vec<Mutex<Part>>,
    /// The whole network's queue, without events while there are parts.
    whole: Events,
}

impl World {
    /// Sets the maximum number of threads of a run; the result is the same for any. See [`Self::runs_alone_because`].
    pub fn set_threads(&mut self, threads: NonZeroUsize) {
        self.threads = threads;
    }

    /// Returns the reason why a run takes one thread, whatever [`Self::set_threads`] allows; `None` if it can use
    /// several.
    pub fn runs_alone_because(&self) -> Option<&'static str> {
        let network = &self.network;
        let config = &network.config;
        let fabric = &network.fabric;
        let opens = || self.workloads.iter().any(|workload| workload.opens_during_run());
        let reasons = [
            (network.capture.is_some(), "the packets of hosts are captured"),
            (network.observer.is_some() || network.record.is_some(), "an observer follows it"),
            (network.reordering.is_some(), "the order of packets is measured"),
            (config.stack.is_some(), "channels belong to a stack above the transport"),
            (config.pcie.is_some(), "hosts have a bus to their memory"),
            (network.fast_forward.is_some(), "steady states are skipped"),
            (network.steering.is_some(), "a route controller reads samples of packets"),
            (fabric.holds_queues(), "ports hold queues"),
            (!fabric.forwards_by_hash(), "the switches' forwarding model keeps state"),
            (!network.only_forwards, "switches do more than forward"),
            (!config.handshake && opens(), "a workload opens channels without a handshake"),
        ];
        let found = reasons.into_iter().find(|(applies, _)| *applies).map(|(_, reason)| reason);
        let one_leaf = || Partition::new(&fabric.topology, 2).count() < 2;
        found.or_else(|| one_leaf().then_some("all hosts are at one leaf"))
    }

    /// Runs to the next end on several threads; returns `false` if this run takes one.
    pub(super) fn go_in_parts(&mut self, watcher: &mut dyn Watcher) -> bool {
        if self.threads == NonZeroUsize::MIN || self.runs_alone_because().is_some() {
            return false;
        }
        let partition = Partition::new(&self.network.fabric.topology, self.threads.get());
        let Some(divided) = self.network.divide(partition) else { return false };
        self.run_parts(&divided, watcher);
        self.network.unite(divided);
        true
    }

    fn run_parts(&mut self, divided: &Divided, watcher: &mut dyn Watcher) {
        let (partition, parts, gate) = (&divided.partition, &divided.parts, &Gate::new());
        let serve = |part: &Mutex<Part>| lock(part).serve(&partition.part_of);
        thread::scope(|scope| {
            let help = |part| scope.spawn(move || gate.help(|| serve(part))).thread().clone();
            let helpers: Vec<_> = parts[1..].iter().map(help).collect();
            let _closing = gate.closing(&helpers);
            while self.ended_at.is_none() && !self.check_cancel() {
                let limit = self.network.global_events.next_at().expect("the end is on it");
                let mut locked: Vec<_> = parts.iter().map(lock).collect();
                if advance(&mut locked, &mut self.network.events, limit) {
                    drop(locked);
                    gate.run(&helpers, || serve(&parts[0]));
                    locked = parts.iter().map(lock).collect();
                    self.finish_turns(&mut locked, &partition.part_of);
                    deliver(&mut locked);
                    self.network.now = self.network.events.until();
                    if watcher.wants_progress() {
                        let networks = locked.iter().map(|part| &part.network);
                        watcher.on_progress(Progress::of(&self.network, self.limit, networks));
                    }
                } else {
                    self.serve_global_events_of(&mut locked, partition);
                }
            }
        });
    }

    /// Finishes the turns of hosts that wait for the whole world.
    fn finish_turns(&mut self, parts: &mut [MutexGuard<'_, Part>], part_of: &[u16]) {
        for part in parts {
            if part.suspended.is_empty() {
                continue;
            }
            let mut suspended = std::mem::take(&mut part.suspended);
            self.exchange(&mut part.network);
            suspended.drain(..).for_each(|turn| self.finish_turn(turn));
            self.exchange(&mut part.network);
            part.suspended = suspended;
            part.send_mail(part_of);
        }
    }

    /// Puts a part's network in place of the whole one, with all that the whole world shares; or the reverse.
    fn exchange(&mut self, network: &mut Network) {
        std::mem::swap(&mut self.network, network);
        self.network.exchange_globals(network);
    }

    /// Finishes a host's turn.
    fn finish_turn(&mut self, Suspended { host, at, cause, turn }: Suspended) {
        let network = &mut self.network;
        network.events.resume(turn);
        (network.now, network.current_host) = (at, Some(host));
        match cause {
            Cause::Host(event) => network.handle(event),
            Cause::Engine(event) => {
                network.on_engine_event(host, event);
                network.service(host);
            }
        }
        self.deliver_notices();
        self.serve_host();
    }

    /// Handles the next global event, with the network whole.
    fn serve_global_events_of(
        &mut self,
        parts: &mut [MutexGuard<'_, Part>],
        partition: &Partition,
    ) {
        for (part, share) in parts.iter_mut().zip(&partition.shares) {
            self.network.take(&mut part.network, share);
        }
        self.serve_global_events();
        let mut mail = self.network.mail_for_parts(partition);
        for number in (0..parts.len()).rev() {
            let part = &mut *parts[number];
            self.network.fabric.give(&mut part.network.fabric, &partition.shares[number]);
            part.network.hosts = self.network.hosts.split_off(partition.hosts[number].start);
            part.receive_mail();
            part.network.receive_mail(&mut mail[number]);
        }
    }
}

/// Locks a part. No thread waits for it: either one thread has all parts, or each has its own.
fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().expect("a thread that panics ends the run")
}

/// Advances all parts to the next windows that have events before `limit`; returns `false` if there are none.
fn advance(parts: &mut [MutexGuard<'_, Part>], whole: &mut Events, limit: SimTime) -> bool {
    let next = parts.iter().filter_map(|part| part.next_window()).min();
    for part in parts {
        part.network.events.advance_to(next, limit);
    }
    whole.advance_to(next, limit)
}

/// Delivers the mail between parts.
fn deliver(parts: &mut [MutexGuard<'_, Part>]) {
    for from in 0..parts.len() {
        let mut outbox = std::mem::take(&mut parts[from].outbox);
        for (to, mail) in parts.iter_mut().zip(&mut outbox) {
            std::mem::swap(&mut to.inbox[from], mail);
        }
        parts[from].outbox = outbox;
    }
}

impl Network {
    /// Divides the network; `None` if its fabric cannot be divided.
    fn divide(&mut self, partition: Partition) -> Option<Divided> {
        let parts = (0..partition.count()).map(|number| Part::new(self, number, &partition));
        let mut parts: Vec<Part> = parts.collect::<Option<_>>()?;
        let no_events = self.events.part(|_| false);
        let mut whole = std::mem::replace(&mut self.events, no_events);
        let mut mail = boxes(partition.count());
        whole.send_all(&partition.part_of, &mut mail);
        for (number, part) in parts.iter_mut().enumerate().rev() {
            part.network.hosts = self.hosts.split_off(partition.hosts[number].start);
            part.network.receive_mail(&mut mail[number]);
        }
        let parts = parts.into_iter().map(Mutex::new).collect();
        Some(Divided { partition, parts, whole })
    }

    /// Makes the network whole again.
    fn unite(&mut self, divided: Divided) {
        let Divided { partition, parts, mut whole, .. } = divided;
        whole.follow(&self.events);
        self.events = whole;
        let (mut mail, only_part) = (boxes(1), vec![0; partition.part_of.len()]);
        for (part, share) in parts.into_iter().zip(&partition.shares) {
            let mut part = part.into_inner().expect("no thread panicked");
            part.receive_mail();
            part.network.events.send_all(&only_part, &mut mail);
            self.take(&mut part.network, share);
            self.receive_mail(&mut mail[0]);
        }
    }

    /// Returns the events that were scheduled while the network was whole, by part.
    fn mail_for_parts(&mut self, partition: &Partition) -> Vec<Mailbox> {
        let mut mail = boxes(partition.count());
        self.events.send_mail(&partition.part_of, &mut mail);
        mail
    }

    /// Schedules the events of a mailbox.
    fn receive_mail(&mut self, mail: &mut Mailbox) {
        self.events.receive_mail(mail);
    }

    /// Takes over the hosts and the state of a part.
    fn take(&mut self, part: &mut Self, share: &Share) {
        self.hosts.append(&mut part.hosts);
        self.fabric.take(&mut part.fabric, share);
        self.events_handled += std::mem::take(&mut part.events_handled);
    }
}

/// Returns empty mailboxes.
fn boxes(count: usize) -> Vec<Mailbox> {
    std::iter::repeat_with(Mailbox::default).take(count).collect()
}
