//! A round: random requests under faults, in some rounds a partition of one host, then the end of faults, and the
//! checks of the idle state.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::take;

use weft_units::Duration;

use super::case::Case;
use super::image::Image;
use super::network::Fate;
use super::pool::memory_of;
use super::side::{Condition, Posted, Side, result_slot};
use super::{Checked, Tally, Violation, count, ensure};
use crate::{Attributes, Event, State};

/// Maximum steps after the end of faults, of 500 us each: longer than all retries.
const MAX_HEAL_STEPS: u32 = 16_000;

impl Case {
    /// Runs four rounds; returns the counts.
    pub(super) fn play(mut self) -> Result<Tally, Violation> {
        for round in 0..4 {
            self.storm()?;
            if self.partitions && round % 2 == 1 {
                self.partition_host()?;
            }
            self.heal()?;
            self.check_memory()?;
            self.restart();
        }
        let fates = self.network.fates;
        for (name, count) in ["packets passed", "packets late", "packets doubled", "packets lost"]
            .into_iter()
            .zip(fates)
        {
            *self.tally.faults.entry(name).or_default() += count;
        }
        Ok(self.tally)
    }

    /// Posts random requests under random faults.
    fn storm(&mut self) -> Checked {
        for _ in 0..400 {
            let at = self.rng.index(self.sides.len());
            match self.rng.below(80) {
                0..45 => self.post(at),
                45..64 => self.post_receive(),
                64..68 => {
                    let host = self.rng.index(self.hosts.len());
                    self.post_datagram(host);
                }
                68..70 => self.network.rule = self.faults(),
                70 => self.post_forbidden(at),
                _ => {
                    let span = Duration::from_nanos(self.rng.below(150_000));
                    self.network.run_for(span);
                    self.check_completions()?;
                }
            }
        }
        Ok(())
    }

    fn post_receive(&mut self) {
        let pool = self.rng.index(self.pools.len());
        if self.pools[pool].post(&mut self.network, &mut self.rng) {
            self.tally.receives += 1;
        }
    }

    /// Cuts a host off for longer than all timeouts.
    fn partition_host(&mut self) -> Checked {
        let silent = self.rng.index(self.hosts.len());
        count(&mut self.tally.faults, "silent hosts");
        for at in 0..self.sides.len() {
            if self.sides[at].end.host != silent && self.sides[at ^ 1].end.host != silent {
                continue;
            }
            let Self { sides, pools, .. } = self;
            let (first, second) = sides.split_at_mut(at.max(at ^ 1));
            let (low, high) = (&mut first[at & !1], &mut second[0]);
            let (me, peer) = if at % 2 == 0 { (low, high) } else { (high, low) };
            me.condition = Condition::Partitioned;
            if !me.reliable {
                for posted in &me.posted {
                    posted.effect.iter().for_each(|effect| peer.image.allow_either(effect));
                }
                for in_flight in &mut peer.in_flight {
                    in_flight.certain = false;
                    pools[peer.pool].left.extend(in_flight.data.clone());
                }
            }
        }
        self.partition_datagrams(silent);
        let cut_off = super::network::address(silent).ip();
        self.network.rule = Box::new(move |on_link| {
            if on_link.from == silent || on_link.to == cut_off { Fate::Drop } else { Fate::Pass }
        });
        for _ in 0..40 {
            let at = self.rng.index(self.sides.len());
            self.post(at);
            self.network.run_for(Duration::from_millis(20));
            self.check_completions()?;
        }
        Ok(())
    }

    /// Ends the faults, and runs until all requests are completed.
    fn heal(&mut self) -> Checked {
        self.network.rule = Box::new(|_| Fate::Pass);
        for _ in 0..MAX_HEAL_STEPS {
            (0..self.pools.len()).for_each(|_| self.post_receive());
            self.complete_all();
            self.network.run_for(Duration::from_micros(500));
            self.check_completions()?;
            if self.is_done() {
                break;
            }
        }
        ensure(self.is_done(), || format!("not everything was completed: {}", self.unfinished()))?;
        // Runs until delayed and duplicated packets have arrived.
        self.network.run_for(Duration::from_millis(5));
        self.check_completions()?;
        self.outlast_lost_closes()
    }

    /// Runs until keepalives have replaced lost Close packets. A queue pair that fails sends Close once; if that is lost, its
    /// peer holds packets until a keepalive is answered by a reset.
    ///
    /// # Errors
    /// A packet is held for a queue pair that did not fail.
    fn outlast_lost_closes(&mut self) -> Checked {
        let mut any = false;
        for (number, host) in self.network.hosts.iter().enumerate() {
            for packet in host.memory.held.keys() {
                let qp = host.device.carried_by(packet.connection);
                let at = qp.and_then(|qp| self.by_qp.get(&(number, qp)));
                let ends = at.is_some_and(|&at| self.sides[at].condition != Condition::Healthy);
                ensure(ends, || format!("host {number} still holds {packet:?} of {qp:?}"))?;
                any = true;
            }
        }
        if any {
            count(&mut self.tally.faults, "lost closes");
            // The end that accepted the connection sends its keepalive an eighth later.
            self.network.run_for(self.keepalive + self.keepalive / 8 + Duration::from_millis(5));
        }
        self.check_completions()
    }

    /// Posts a signalled request on every end that has only unsignalled ones.
    fn complete_all(&mut self) {
        for at in 0..self.sides.len() {
            let silent = |posted: &Posted| !posted.signaled;
            if !self.sides[at].posted.is_empty() && self.sides[at].posted.iter().all(silent) {
                self.post(at);
            }
        }
        for host in 0..self.hosts.len() {
            let posted = &self.datagram_ends[host].posted;
            if !posted.is_empty() && posted.iter().all(|posted| !posted.1) {
                self.post_datagram(host);
            }
        }
    }

    fn is_done(&self) -> bool {
        let sides = self.sides.iter().all(Side::is_done);
        sides && self.datagrams_done()
    }

    /// Describes the requests that are not completed.
    fn unfinished(&self) -> String {
        let open = self.sides.iter().filter(|side| !side.is_done());
        let open = open.map(|side| {
            let first = side.posted.front().map(|posted| (posted.wr_id, posted.kind));
            (side.end.host, side.end.qp, side.condition, side.posted.len(), first)
        });
        let open: Vec<_> = open.collect();
        format!("{open:?}; {}", self.unfinished_datagrams())
    }

    /// Compares every byte of every memory with the model.
    fn check_memory(&mut self) -> Checked {
        for at in 0..self.sides.len() {
            self.account(at)?;
        }
        for side in &mut self.sides {
            let memory = memory_of(&self.network, side.end.host, side.end.owner);
            let differs = side.image.differs(memory, |_| false);
            ensure(differs.is_none(), || {
                format!("host {}, {:?}: byte {differs:?} is wrong", side.end.host, side.end.qp)
            })?;
            side.image = Image::of(memory);
        }
        for pool in &mut self.pools {
            let differs = pool.differs(&self.network);
            ensure(differs.is_none(), || {
                format!("host {}, {:?}: received byte {differs:?} is wrong", pool.host, pool.queue)
            })?;
            pool.adopt(&self.network);
        }
        for (number, host) in self.network.hosts.iter_mut().enumerate() {
            let held = host.memory.held.len();
            ensure(held == 0, || format!("host {number} still holds {held} packets"))?;
            let (counted, entries) = (host.device.held_bytes(), host.device.datagram_entries());
            ensure(counted == entries, || {
                format!("host {number} counts {counted} held bytes, and has {entries}")
            })?;
            host.memory.writes.clear();
            let broken =
                |event: &&Event| matches!(event, Event::QpFatal { .. } | Event::CqError { .. });
            let broken = host.events.iter().find(broken);
            ensure(broken.is_none(), || format!("host {number}: {broken:?}"))?;
            host.events.clear();
        }
        Ok(())
    }

    /// Updates the model for an end's flushed requests, whose execution is unknown.
    fn account(&mut self, at: usize) -> Checked {
        let Self { sides, pools, .. } = self;
        let me = &mut sides[at];
        let about = format!("host {}, {:?}", me.end.host, me.end.qp);
        let expected_status =
            me.expected_status.take().filter(|_| me.condition != Condition::Partitioned);
        ensure(expected_status.is_none(), || {
            format!("{about}: nothing failed with {expected_status:?}")
        })?;
        let fails = me.receive_fails.take().filter(|_| me.condition != Condition::Partitioned);
        ensure(fails.is_none(), || format!("{about}: no receive request failed with {fails:?}"))?;
        let flushed = take(&mut me.flushed);
        for posted in &flushed {
            if posted.answer.is_some() {
                let slot = result_slot(posted.wr_id);
                me.image.forget(slot..slot + super::side::RESULT_SLOT);
            }
        }
        let reliable = me.reliable;
        let peer = &mut sides[at ^ 1];
        let messages = flushed.iter().filter(|posted| posted.takes_receive()).count();
        let missing = peer.in_flight.iter().filter(|in_flight| in_flight.certain).count();
        ensure(!reliable || missing <= messages, || {
            format!("{about}: {missing} messages are missing, and {messages} may be")
        })?;
        let pool = &mut pools[peer.pool];
        pool.in_flight -= peer.in_flight.len();
        peer.in_flight.clear();
        for posted in &flushed {
            posted.effect.iter().for_each(|effect| peer.image.allow_either(effect));
            pool.left.extend(posted.message.clone());
        }
        Ok(())
    }

    /// Resets or replaces the pairs that failed.
    fn restart(&mut self) {
        self.forget_datagrams();
        for at in (0..self.sides.len()).step_by(2) {
            if self.sides[at].condition == Condition::Healthy {
                continue;
            }
            let replace = self.rng.chance(1, 2);
            for at in [at, at + 1] {
                self.reset_or_replace(at, replace);
            }
            self.join(at);
        }
    }

    /// Resets a queue pair, or replaces it by a new one, and resets its model.
    fn reset_or_replace(&mut self, at: usize, replace: bool) {
        let end = self.sides[at].end;
        let pool = self.sides[at].pool;
        let windows = self.windows(end.host, end.domain);
        let shared = self.pools[pool].is_shared();
        let service = if self.sides[at].reliable {
            crate::Service::ReliableConnected
        } else {
            crate::Service::UnreliableConnected
        };
        let reset = Attributes { state: Some(State::Reset), ..Attributes::default() };
        self.network.modify(&end, &reset);
        let qp = if replace {
            let srq = shared.then_some(self.hosts[end.host].srq());
            let qp = self.create_qp(end.host, service, srq);
            let now = self.network.now;
            let device = &mut self.network.hosts[end.host].device;
            device.destroy_qp(now, end.qp).expect("it is there");
            self.by_qp.remove(&(end.host, end.qp));
            qp
        } else {
            end.qp
        };
        let side = &mut self.sides[at];
        let device = &mut self.network.hosts[end.host].device;
        for window in core::mem::replace(&mut side.windows, windows) {
            let ended = device.deallocate_window(window.key);
            ended.or_else(|_| device.deallocate_window(window.previous_key)).expect("it is there");
        }
        side.end.qp = qp;
        (side.condition, side.failed, side.peer_may_fail) = (Condition::Healthy, false, false);
        side.reads.clear();
        if !shared {
            self.pools[pool].reset_or_replace(qp);
        }
    }
}
