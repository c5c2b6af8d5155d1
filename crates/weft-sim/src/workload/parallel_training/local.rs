//! A first lane that uses no network: its events inside servers are known, so that a skip executes them one by one.
//!
//! The lane of a job without pipeline, whose tensor parallelism is inside servers, waits for nothing but computation and
//! the servers' own links. It needs no unit that repeats: a skip of any length advances it exactly. For that the job
//! remembers the wake-ups it has requested. After a skip it requests those that are left again, at their new places in
//! network time; the old ones come later, find nothing, and are ignored.

use std::collections::BTreeSet;

use super::job::{Job, MESSAGE};
use super::local_events::LocalEvents;
use super::rank::Inlet;
use crate::time::SimTime;
use crate::traffic::{ChannelId, SendRequest};
use crate::world::{Session, Stage};
use weft_topo::NodeId;

/// A time inside a skip. Nothing is sent in it, and wake-ups are only remembered.
#[derive(Debug)]
struct Inside(SimTime);

impl Stage for Inside {
    fn now(&self) -> SimTime {
        self.0
    }

    fn open(&mut self, _workload: u32, _from: NodeId, _to: NodeId) -> ChannelId {
        unreachable!("channels open at the start")
    }

    fn send(&mut self, _workload: u32, _request: SendRequest) {
        unreachable!("the lane uses no network")
    }

    fn close(&mut self, _channel: ChannelId) {}

    fn wake(&mut self, _workload: u32, _at: SimTime, _token: u64) {}

    fn wake_at(&mut self, _workload: u32, _host: NodeId, _at: SimTime, _token: u64) {}
}

impl Job {
    /// Returns `false` if a wake-up belongs to the first lane and a skip has executed it.
    pub(super) fn is_due(&mut self, token: u64, now: SimTime) -> bool {
        let Some(local) = &mut self.local else { return true };
        let is_first = token & MESSAGE == 0 || Inlet::from_tag(token & !MESSAGE).1.lane == 0;
        !is_first || local.take(now, token)
    }

    /// Executes the events of the first lane until now, and requests the later ones again.
    pub(super) fn catch_up(&mut self, session: &mut Session<'_>) {
        let Some(local) = &mut self.local else { return };
        let mut waiting: BTreeSet<_> = local.drain().collect();
        while let Some((at, token)) = waiting.pop_first() {
            if at > session.now() {
                waiting.insert((at, token));
                break;
            }
            self.execute(token, &mut Session::new(&mut Inside(at), 0));
            waiting.extend(self.local.iter_mut().flat_map(LocalEvents::drain));
        }
        for (at, token) in waiting {
            let rank = if token & MESSAGE == 0 { token } else { (token & !MESSAGE) >> 36 };
            let host = self.ranks[usize::try_from(rank).expect("a rank")].host;
            self.local.iter_mut().for_each(|local| local.add(at, token));
            session.wake_at(host, at, token);
        }
        // A lane that waits for a record may find it set.
        self.representatives.ranks().for_each(|rank| self.advance(rank, session));
    }

    /// Executes one event of the first lane, and what follows in that lane at the same time.
    fn execute(&mut self, token: u64, session: &mut Session<'_>) {
        let rank = if token & MESSAGE == 0 {
            let rank = u32::try_from(token).expect("a rank");
            self.end_computation(rank, session);
            rank
        } else {
            self.ingest(token & !MESSAGE)
        };
        while self.step(rank, 0, session) {}
    }
}
