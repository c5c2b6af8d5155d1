//! One run on several threads, with the same result on any number.
//!
//! The network is divided into parts ([`partition`]), one for each thread. In each window the parts serve their own
//! nodes side by side ([`part`]): what a node does reaches the nodes of another part only in later windows, so its
//! events wait in a mailbox. What concerns the whole world is done by one thread at a time:
//!
//! * *Messages and workloads.* A host's turn stops at the first event that concerns them, unless workloads only take
//!   note of it. The stopped turns continue one after another, in order of host, as they would on one thread: a part
//!   continues its own when all parts before it have, and serves its switches meanwhile.
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
use part::{Cause, Left, Part};
use partition::Partition;

/// The network while its parts have the hosts and the events.
#[derive(Debug)]
struct Divided {
    partition: Partition,
    parts: Vec<Mutex<Part>>,
    /// The whole network's queue, without events while there are parts.
    whole: Events,
}

/// The state that all threads of a run share.
struct Whole<'a> {
    /// The world, whose network is an empty one while there are parts. In a window, the parts have it one after another.
    world: Mutex<&'a mut World>,
    gate: Gate,
    partition: &'a Partition,
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
        let one_leaf = || !partition::can_divide(&fabric.topology);
        found.or_else(|| one_leaf().then_some("all hosts are at one leaf"))
    }

    /// Returns `true` if a run can use several threads, and may.
    pub(super) fn may_divide(&self) -> bool {
        self.threads > NonZeroUsize::MIN && self.runs_alone_because().is_none()
    }

    /// Runs to the next end on several threads; returns `false` if this run takes one.
    pub(super) fn go_in_parts(&mut self, watcher: &mut dyn Watcher) -> bool {
        if !self.may_divide() {
            return false;
        }
        let partition = Partition::new(&self.network.fabric.topology, self.threads.get());
        let takes_notes = self.workloads.iter().all(|it| it.acts_only_when_acknowledged());
        let divided = self.network.divide(partition, takes_notes);
        let Some(divided) = divided else { return false };
        self.run_parts(&divided, watcher);
        self.network.unite(divided);
        true
    }

    fn run_parts(&mut self, divided: &Divided, watcher: &mut dyn Watcher) {
        let Divided { partition, parts, .. } = divided;
        let whole = &Whole { world: Mutex::new(self), gate: Gate::new(), partition };
        let work = |part: &Mutex<Part>| lock(part).work(whole);
        thread::scope(|scope| {
            let help = |part| scope.spawn(move || whole.gate.help(|| work(part)));
            let helpers = parts[1..].iter().map(help).map(|helper| helper.thread().clone());
            let _closing = whole.gate.admit(helpers.collect());
            whole.gate.run(|| work(&parts[0]));
            lock(&whole.world).end_beginning(parts);
            loop {
                let mut locked: Vec<_> = parts.iter().map(lock).collect();
                let mut world = lock(&whole.world);
                if world.ended_at.is_some() || world.check_cancel() {
                    return;
                }
                let limit = world.network.global_events.next_at().expect("the end is on it");
                if !advance(&mut locked, &mut world.network.events, limit) {
                    world.serve_global_events_of(&mut locked, partition);
                    continue;
                }
                drop((world, locked));
                whole.gate.run(|| work(&parts[0]));
                let mut locked: Vec<_> = parts.iter().map(lock).collect();
                deliver(&mut locked);
                lock(&whole.world).end_window(&locked, watcher);
            }
        });
    }

    /// Ends the round that submits the messages that were put off until the run begins.
    fn end_beginning(&mut self, parts: &[Mutex<Part>]) {
        let mut parts: Vec<_> = parts.iter().map(lock).collect();
        for part in &mut parts {
            self.network.wait_for_engines(std::mem::take(&mut part.refused));
        }
        deliver(&mut parts);
    }

    /// Advances the time to the end of the window that all parts have served.
    fn end_window(&mut self, parts: &[MutexGuard<'_, Part>], watcher: &mut dyn Watcher) {
        self.network.now = self.network.events.until();
        if watcher.wants_progress() {
            let networks = parts.iter().map(|part| &part.network);
            watcher.on_progress(Progress::of(&self.network, self.limit, networks));
        }
    }

    /// Does what a part's hosts have left for the whole world, and finishes their turns.
    fn finish_turns(&mut self, network: &mut Network, left: &mut Vec<Left>) {
        self.exchange(network);
        left.drain(..).for_each(|each| self.finish_turn(each));
        self.exchange(network);
    }

    /// Puts a part's network in place of the whole one, with all that the whole world shares; or the reverse.
    fn exchange(&mut self, network: &mut Network) {
        std::mem::swap(&mut self.network, network);
        self.network.exchange_globals(network);
    }

    /// Handles an event that a host has left, and finishes the host's turn if it waits for that.
    fn finish_turn(&mut self, Left { host, at, cause, turn }: Left) {
        let network = &mut self.network;
        (network.now, network.current_host) = (at, Some(host));
        network.takes_note = turn.is_none();
        if let Some(turn) = turn {
            network.events.resume(turn);
        }
        match cause {
            Cause::Host(event) => network.handle(event),
            Cause::Engine(event) => {
                network.on_engine_event(host, event);
                if !network.takes_note {
                    network.service(host);
                }
            }
        }
        self.deliver_notices();
        self.network.takes_note = false;
        // After a note no event is left in the turn.
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

/// Locks a part, or the whole world. No thread waits for it: either one thread has all, or each has its own part, and
/// the one whose turn it is has the world.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("a thread that panics ends the run")
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
    fn divide(&mut self, partition: Partition, takes_notes: bool) -> Option<Divided> {
        let part = |number| Part::new(self, number, &partition, takes_notes);
        let parts = (0..partition.count()).map(part);
        let mut parts: Vec<Part> = parts.collect::<Option<_>>()?;
        let no_events = self.events.part(|_| false);
        let mut whole = std::mem::replace(&mut self.events, no_events);
        let mut mail = boxes(partition.count());
        whole.send_all(&partition.part_of, &mut mail);
        for (number, part) in parts.iter_mut().enumerate().rev() {
            part.network.hosts = self.hosts.split_off(partition.hosts[number].start);
            part.network.receive_mail(&mut mail[number]);
        }
        for submission in self.take_put_off() {
            let part = usize::from(partition.part_of[submission.host.index()]);
            parts[part].put_off.get_or_insert_default().push(submission);
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
