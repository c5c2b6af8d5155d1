//! The event queue of a part of the world: it serves the part's nodes, and keeps events of other nodes until they are
//! taken out for the parts that serve those.
//!
//! All parts have the same clock: each is advanced to the same windows, by the first window in which any has events.

use super::calendar::{detach, free};
use super::{AtNode, CHUNK, Chunk, ELSEWHERE, EventQueue, NONE, Turn};
use crate::time::SimTime;

impl<E: Copy + Default + AtNode> EventQueue<E> {
    /// Returns a queue without events, with the same clock as this one, for the nodes of which `is_own` is `true`.
    pub fn part(&self, is_own: impl Fn(u32) -> bool) -> Self {
        let nodes = self.side_of.iter().zip(0..);
        let side_of = nodes.map(|(&side, node)| if is_own(node) { side } else { ELSEWHERE });
        let mut part = Self::with_sides(self.window_length, self.sides.len(), side_of.collect());
        part.follow(self);
        part
    }

    /// Sets the clock to that of another queue. No event may be before it.
    pub fn follow(&mut self, other: &Self) {
        self.current = other.current.clone();
        self.until = other.until;
        for (side, same) in self.sides.iter_mut().zip(&other.sides) {
            side.until = same.until;
        }
    }

    /// Returns the first window that has events of this part's nodes, or in which `mail` is due: its earliest event in
    /// a mailbox.
    pub fn next_window_with(&self, mail: Option<SimTime>) -> Option<u64> {
        self.next_window().into_iter().chain(mail.map(|at| self.window(at))).min()
    }

    /// Advances like [`Self::begin`] to the first window that has events in any part. [`Self::collect_nodes`] must
    /// follow.
    pub fn advance_to(&mut self, next: Option<u64>, limit: SimTime) -> bool {
        self.advance(next, limit)
    }

    /// Collects the nodes to serve; see [`Self::advance_to`].
    pub fn collect_nodes(&mut self) {
        self.gather();
    }

    /// Schedules an event of another part, after [`Self::advance_to`] and before [`Self::collect_nodes`].
    pub fn schedule_received(&mut self, at: SimTime, event: E) {
        debug_assert!(self.window(at) >= self.current.start, "mail comes before its window");
        self.put(at, event);
    }

    /// Suspends the turn of the node being served; [`Self::resume`] continues it.
    pub fn suspend(&mut self) -> Turn<E> {
        let mut idle = self.spare.pop().unwrap_or_else(|| self.turn.without_events());
        idle.start = self.turn.start;
        std::mem::replace(&mut self.turn, idle)
    }

    /// Continues a turn that was suspended in the current windows.
    pub fn resume(&mut self, turn: Turn<E>) {
        debug_assert!(self.turn.is_over(), "the last one was served");
        self.release();
        self.spare.push(std::mem::replace(&mut self.turn, turn));
    }

    /// Takes out the events of other parts' nodes, in the order of scheduling.
    pub fn take_elsewhere(&mut self, mut take: impl FnMut(SimTime, E)) {
        self.elsewhere.drain(..).for_each(|(at, event)| take(at, event));
    }

    /// Takes out all events; those of one node in the order of scheduling.
    pub fn take_all(&mut self, mut take: impl FnMut(SimTime, E)) {
        (0..self.sides.len()).for_each(|side| self.take_side(side, &mut take));
        while let Some(std::cmp::Reverse(next)) = self.far.pop() {
            take(next.at, next.event);
        }
        self.take_elsewhere(take);
    }

    /// Takes out the events of a side's nodes in the calendar.
    fn take_side(&mut self, side: usize, take: &mut impl FnMut(SimTime, E)) {
        while let Some(window) = self.next_occupied(&self.sides[side]) {
            let slot = self.slot(window);
            self.sides[side].occupied[slot / 64] &= !(1 << (slot % 64));
            for word in 0..self.words {
                let mut nodes =
                    std::mem::take(&mut self.sides[side].busy[slot * self.words + word]);
                while nodes != 0 {
                    let bit = nodes.trailing_zeros();
                    nodes &= nodes - 1;
                    let node = u32::try_from(word * 64).expect("fewer than 2^32 nodes") + bit;
                    self.take_events(window, node, take);
                }
            }
        }
    }

    /// Takes out a node's events of a window.
    fn take_events(&mut self, window: u64, node: u32, take: &mut impl FnMut(SimTime, E)) {
        let list = self.list(window, node);
        let end = std::mem::replace(&mut self.ends[list], NONE);
        let mut chunks = std::mem::take(&mut self.detached);
        detach(&mut self.before, end, &mut chunks);
        let start = self.start_of(window);
        for (index, &chunk) in chunks.iter().enumerate() {
            let Chunk(events) = &self.chunks[chunk as usize];
            let filled = if index == chunks.len() - 1 { (end - 1) % CHUNK + 1 } else { CHUNK };
            for &event in &events[..filled as usize] {
                take(super::turn::time(start, event), event.with_node(node));
            }
        }
        free(&mut self.before, &mut self.free, &mut chunks);
        self.detached = chunks;
    }
}
