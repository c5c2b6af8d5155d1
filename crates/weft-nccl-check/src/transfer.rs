//! Messages on a comm, as NCCL's progress thread posts and tests them: a window of requests, tested oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_nccl_abi::NCCL_NET_MAX_REQUESTS;

use crate::memory::Buffer;
use crate::net::{Comm, Net, Registration, Request};
use crate::rank::{Rank, at_once};

/// The value of bytes behind a message.
const BEHIND: u8 = 0xa5;

/// The content of a comm's messages is numbered from here, so that two comms differ.
pub(crate) type Base = u64;

/// A message: its size and the size of its receive, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) size: usize,
    pub(crate) room: usize,
}

/// Messages on one comm.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) messages: Vec<Message>,
    /// Requests in progress at a time.
    pub(crate) window: usize,
    pub(crate) base: Base,
    /// `true` if receives are posted as NCCL posts those of LL and LL128.
    pub(crate) watched: bool,
}

impl Plan {
    pub(crate) fn new(messages: Vec<Message>) -> Self {
        Self { messages, window: NCCL_NET_MAX_REQUESTS, base: 0, watched: false }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.size).sum()
    }

    /// Returns the size of a slot of the window's memory, bytes: the longest message, on a page of its own.
    fn slot(&self) -> usize {
        let longest =
            self.messages.iter().map(|message| message.room.max(message.size)).max().unwrap_or(0);
        longest.next_multiple_of(4_096).max(4_096)
    }
}

/// One side of a plan.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    rank: &'a Rank<'a>,
    net: &'a Net,
    comm: Comm,
    plan: &'a Plan,
    sends: bool,
    memory: Arc<Buffer>,
    registration: Registration,
    open: VecDeque<Request>,
    posted: usize,
    done: usize,
    /// Calls that returned no request.
    pub(crate) refused: u64,
}

impl<'a> Side<'a> {
    /// Registers the memory of a window on a comm.
    ///
    /// # Errors
    /// The plugin refuses it.
    pub(crate) fn new(
        rank: &'a Rank<'a>,
        comm: Comm,
        plan: &'a Plan,
        sends: bool,
    ) -> Result<Self, String> {
        let (net, memory) = (rank.net()?, rank.buffer(plan.slot() * plan.window));
        let registration = net.register(comm, memory.at(0), memory.len())?;
        Ok(Self {
            rank,
            net,
            comm,
            plan,
            sends,
            memory,
            registration,
            open: VecDeque::new(),
            posted: 0,
            done: 0,
            refused: 0,
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done == self.plan.messages.len()
    }

    /// Returns the memory of a message.
    fn offset(&self, number: usize) -> usize {
        number % self.plan.window * self.plan.slot()
    }

    /// Posts requests while the plugin and the window take them, then tests the oldest. Returns `true` if there was progress.
    ///
    /// # Errors
    /// A call fails or blocks, or a message is wrong.
    pub(crate) fn advance(&mut self) -> Result<bool, String> {
        let before = (self.posted, self.done);
        while self.posted < self.plan.messages.len() && self.open.len() < self.plan.window {
            match self.post()? {
                Some(request) => self.open.push_back(request),
                None => {
                    self.refused += 1;
                    break;
                }
            }
            self.posted += 1;
        }
        if let Some(&oldest) = self.open.front()
            && let Some(size) = at_once("test", || Ok(self.net.test(oldest)?))?
        {
            self.open.pop_front();
            self.complete(size)?;
            self.done += 1;
        }
        Ok(before != (self.posted, self.done))
    }

    fn post(&self) -> Result<Option<Request>, String> {
        let (number, message) = (self.posted, self.plan.messages[self.posted]);
        let at = self.offset(number);
        if self.sends {
            self.memory.fill(at, message.size, self.plan.base + number as u64);
            return at_once("isend", || {
                Ok(self.net.send(self.comm, self.memory.at(at), message.size, self.registration)?)
            });
        }
        self.memory.clear(at, message.room, BEHIND);
        let data = self.memory.at(at);
        at_once("irecv", || {
            Ok(self.net.receive(
                self.comm,
                data,
                message.room,
                self.registration,
                self.plan.watched,
            )?)
        })
    }

    fn complete(&self, size: usize) -> Result<(), String> {
        let (number, message) = (self.done, self.plan.messages[self.done]);
        if size != message.size {
            let side = if self.sends { "sender" } else { "receiver" };
            return Err(format!(
                "test reports {size} bytes to the {side} of message {number}, which has {}",
                message.size
            ));
        }
        if self.sends {
            return Ok(());
        }
        self.memory.check(
            self.offset(number),
            message.size,
            self.plan.base + number as u64,
            message.room,
            BEHIND,
        )
    }

    /// Returns the state of this side, for an error's text.
    pub(crate) fn state(&self) -> String {
        let side = if self.sends { "sends" } else { "receives" };
        format!(
            "{} of {} {side} complete, {} posted",
            self.done,
            self.plan.messages.len(),
            self.posted
        )
    }

    /// Ends the registration and frees the memory.
    ///
    /// # Errors
    /// The plugin refuses.
    pub(crate) fn finish(self) -> Result<(), String> {
        self.net.deregister(self.comm, self.registration)?;
        self.rank.free(&self.memory);
        Ok(())
    }
}

/// Runs the sides of this rank until all are done.
///
/// # Errors
/// A call fails or blocks, a message is wrong, or there is no progress.
pub(crate) fn run_all(rank: &Rank<'_>, sides: &mut [Side<'_>]) -> Result<(), String> {
    let mut watch = rank.stopwatch();
    while !sides.iter().all(Side::is_done) {
        let mut progressed = false;
        for side in sides.iter_mut().filter(|side| !side.is_done()) {
            progressed |= side.advance()?;
        }
        if progressed {
            watch.restart();
        } else {
            watch.wait(|| sides.iter().map(Side::state).collect::<Vec<_>>().join("; "))?;
        }
    }
    Ok(())
}

/// Sends a plan's messages from rank 0 to rank 1, on the comms that both have opened.
///
/// # Errors
/// Returns the errors of [`run_all`].
pub(crate) fn one_way(
    rank: &Rank<'_>,
    pair: crate::rank::Pair,
    plan: &Plan,
) -> Result<u64, String> {
    let sends = rank.number == 0;
    let comm = if sends { pair.send } else { pair.receive };
    let mut side = [Side::new(rank, comm, plan, sends)?];
    run_all(rank, &mut side)?;
    let [side] = side;
    let refused = side.refused;
    side.finish()?;
    Ok(refused)
}
