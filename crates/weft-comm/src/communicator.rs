//! A rank of a group, polled by its owner.

mod exchange;
mod meet;
mod plan;
mod servers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use meet::ChannelSetup;
use rustix::event::{PollFd, PollFlags};
use weft_coll::{
    Call, CallError, Collective, Error, Event, Group, GroupEvent, Lanes, MessageLink, Share,
};
use weft_units::{Duration, Instant};
use weft_xrdma::Node;

use crate::controller::Follower;
use crate::error::ranks;
use crate::link::{HostLink, Message};
use crate::rendezvous::{self, Member};
use crate::shared::{Received, Shared};
use crate::wait::wait;
use crate::{CommError, Options, secret};

/// The time for which a waiting rank polls after the last event, before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// The time without an event after which a call counts as stopped.
const STALL_TIME: Duration = Duration::from_millis(50);
/// Maximum time that a leaving rank waits until the others have received its messages.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for a group that failed.
const FAILED_LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A rank of a group, with buffers of type `B`.
#[derive(Debug)]
pub struct Communicator<B> {
    node: Node,
    lanes: Lanes,
    group: Group<Held<B>, Message>,
    options: Options,
    setup: Option<ChannelSetup>,
    shared: Option<Shared>,
    /// The ranks of each server.
    servers: Vec<Vec<usize>>,
    /// The thread that follows the route controller's plan, if there is one.
    follower: Option<Follower>,
    last_active: Instant,
}

/// The buffer of a call.
#[derive(Debug)]
enum Held<B> {
    /// Bytes that the rank itself exchanges with the others.
    Own(Vec<u8>),
    /// The caller's buffer.
    Caller(B),
}

impl<B: AsMut<[u8]>> AsMut<[u8]> for Held<B> {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Caller(buffer) => buffer.as_mut(),
        }
    }
}

/// Every address of this host, and any free port.
const EVERY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Returns the address on which a rank accepts channels, given the address `own` by which others reach it: `own` if it
/// is a loopback address, so that other hosts cannot reach it, else every address.
fn listen_address(own: IpAddr, options: &Options) -> IpAddr {
    let is_local = own.is_ipv4() && own.is_loopback() && options.node.device.address.is_none();
    if is_local { own } else { EVERY_ADDRESS.ip() }
}

impl<B: AsMut<[u8]>> Communicator<B> {
    /// Joins a group of `ranks`, which meet at the address of rank 0.
    ///
    /// # Errors
    /// Returns `NoToken` if other hosts reach that address and the job has no token, `Token` if the token cannot be
    /// read, `Rank` for an invalid number, `Options` for an invalid option, `Node` if there is no device, `Missing` if
    /// ranks do not join in time, `Refused` or `Options` if their options differ, `Channel`, `Shared` or `NotShared` if
    /// they cannot reach each other, and `NoPlan` if a required route controller does not plan the group.
    pub fn join(
        at: SocketAddr,
        rank: usize,
        ranks: usize,
        mut options: Options,
    ) -> Result<Self, CommError> {
        options.find_tokens()?;
        rendezvous::check_token(options.token.as_ref(), &[at])?;
        // Rank 0 sees the others at the first address of the loopback interface.
        let is_seen = rank > 0 && at.ip().is_loopback();
        let own = if is_seen { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { at.ip() };
        let listen = SocketAddr::new(listen_address(own, &options), 0);
        let (this, port) = Self::open(rank, ranks, options, listen)?;
        let address = this.options.node.device.address;
        let agreement = this.options.agreement(ranks);
        let Options { join_timeout, hello_timeout, .. } = this.options;
        let token = this.options.token.clone();
        let member = Member { rank, ranks, port, address, agreement, token, hello_timeout };
        let found = rendezvous::meet(at, &member, join_timeout)?;
        this.begin(found.addresses, found.group)
    }

    /// Joins a group whose ranks listen at these addresses, in the order of their numbers.
    ///
    /// # Errors
    /// Returns the errors of [`join`](Self::join), and `Node` if this rank's port is in use.
    pub fn join_at(
        addresses: &[SocketAddr],
        rank: usize,
        mut options: Options,
    ) -> Result<Self, CommError> {
        options.find_tokens()?;
        rendezvous::check_token(options.token.as_ref(), addresses)?;
        let ranks = addresses.len();
        let own = addresses.get(rank).ok_or(CommError::Rank { rank, ranks })?;
        let listen = SocketAddr::new(listen_address(own.ip(), &options), own.port());
        let (this, _) = Self::open(rank, ranks, options, listen)?;
        let group = this.number(addresses);
        this.begin(addresses.to_vec(), group)
    }

    /// Opens a rank's device and listens, for owners that exchange the ranks' addresses themselves. Returns the rank
    /// and its address; [`connect`](Self::connect) completes the group.
    ///
    /// # Errors
    /// Returns `Node` if there is no device, `Rank` or `Options` for an invalid number or option, or `NoToken` if other
    /// hosts reach the address and the job has no token.
    pub fn listen(
        rank: usize,
        ranks: usize,
        mut options: Options,
    ) -> Result<(Self, SocketAddr), CommError> {
        options.find_tokens()?;
        let (this, port) = Self::open(rank, ranks, options, EVERY_ADDRESS)?;
        let address = SocketAddr::new(this.node.address(), port);
        rendezvous::check_token(this.options.token.as_ref(), &[address])?;
        Ok((this, address))
    }

    /// Joins the group whose ranks listen at these addresses, in the order of their numbers.
    ///
    /// # Errors
    /// Returns `Options` if the number of addresses is not that of ranks, `NoToken` as for [`listen`](Self::listen),
    /// and `Channel`, `Shared` or `NotShared` if ranks do not join in time or cannot reach each other.
    pub fn connect(self, addresses: &[SocketAddr]) -> Result<Self, CommError> {
        let (rank, ranks) = (self.rank(), self.ranks());
        if addresses.len() != ranks {
            let why =
                format!("{} addresses for {ranks} ranks (this is rank {rank})", addresses.len());
            return Err(CommError::Options(why));
        }
        rendezvous::check_token(self.options.token.as_ref(), addresses)?;
        let group = self.number(addresses);
        self.begin(addresses.to_vec(), group)
    }

    /// Returns a number that is known only to ranks with the job's token.
    fn number(&self, addresses: &[SocketAddr]) -> u64 {
        let agreement = self.options.agreement(self.ranks());
        secret::group_number(self.options.token.as_ref(), addresses, &agreement)
    }

    fn open(
        rank: usize,
        ranks: usize,
        options: Options,
        listen: SocketAddr,
    ) -> Result<(Self, u16), CommError> {
        if rank >= ranks {
            return Err(CommError::Rank { rank, ranks });
        }
        let config = options.config(ranks)?;
        let mut node = Node::new(options.node_for(ranks))?;
        let port = node.listen(listen)?.port();
        let this = Self {
            last_active: node.now(),
            node,
            lanes: Lanes::new(ranks),
            group: Group::new(rank, config),
            options,
            setup: None,
            shared: None,
            servers: (0..ranks).map(|rank| vec![rank]).collect(),
            follower: None,
        };
        Ok((this, port))
    }

    fn begin(mut self, addresses: Vec<SocketAddr>, group: u64) -> Result<Self, CommError> {
        let until = self.node.now() + self.options.join_timeout;
        self.connect_all(addresses, group, until)?;
        let prepared = self.share_memory().and_then(|()| self.take_plan(group));
        match prepared {
            Ok(()) => Ok(self),
            Err(error) => {
                // The others have to receive the reason from this rank.
                self.leave();
                Err(error)
            }
        }
    }

    /// Returns this rank's number.
    pub const fn rank(&self) -> usize {
        self.group.rank()
    }

    /// Returns the number of ranks.
    pub const fn ranks(&self) -> usize {
        self.group.ranks()
    }

    /// Returns the ranks of each server, in the order of rings: those that share memory. With `Channels::Net`, which looks
    /// for none, each rank is a server.
    pub fn servers(&self) -> &[Vec<usize>] {
        &self.servers
    }

    /// Returns the traffic of each channel so far, in blocks.
    pub const fn share(&self) -> Share {
        self.group.share()
    }

    /// Returns the clock of all waits.
    pub fn now(&self) -> Instant {
        self.node.now()
    }

    /// Returns the ranks that the oldest call waits for, some tens of milliseconds after it has stopped.
    pub fn waits_for(&self) -> Vec<usize> {
        self.group.waits_for()
    }

    /// Starts a collective. [`wait`](Self::wait) returns its result, in the order of calls.
    ///
    /// # Errors
    /// Returns `Failed` if the group has failed, or else the first parameter of the call that does not fit.
    pub fn submit(&mut self, call: Call, buffer: B) -> Result<u64, CallError> {
        let number = self.group.submit(call, Held::Caller(buffer))?;
        self.advance();
        Ok(number)
    }

    /// Returns the result of the next call, if it arrives in time; also returns `None` when `wake`
    /// is readable.
    pub fn wait(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> Option<Event<B>> {
        let Event { call, result, buffer } = self.wait_held(wake, timeout)?;
        match buffer {
            Held::Caller(buffer) => Some(Event { call, result, buffer }),
            Held::Own(_) => unreachable!("`exchange` waits for its own calls"),
        }
    }

    fn wait_held(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> Option<Event<Held<B>>> {
        let until = timeout.map(|timeout| self.node.now() + timeout);
        loop {
            let moved = self.progress();
            if let Some(event) = self.group.poll_event() {
                return Some(event);
            }
            let now = self.node.now();
            if until.is_some_and(|until| until <= now) {
                return None;
            }
            let idle = now.since(self.last_active);
            if moved {
                self.last_active = now;
            } else if idle < SPIN_TIME {
                // The awaited rank may share this processor.
                std::thread::yield_now();
            } else {
                if idle >= STALL_TIME {
                    self.group.report_stall();
                    self.advance();
                }
                if self.sleep(wake, until.map_or(Duration::MAX, |until| until.since(now))) {
                    return None;
                }
            }
        }
    }

    /// Sleeps until an event. Returns `true` if `wake` is readable.
    fn sleep(&mut self, wake: Option<BorrowedFd<'_>>, left: Duration) -> bool {
        let Some(sleep) = self.arm() else { return false };
        let longest = if self.group.is_idle() { Duration::MAX } else { STALL_TIME };
        let readable = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        let mut descriptors = vec![PollFd::new(&self.node, PollFlags::IN)];
        descriptors.extend(self.shared.as_ref().map(|shared| readable(shared.descriptor())));
        descriptors.extend(wake.map(readable));
        wait(&mut descriptors, sleep.min(left).min(longest));
        let last = descriptors.last().map(|wake| !wake.revents().is_empty());
        let woken = wake.is_some() && last == Some(true);
        drop(descriptors);
        if let Some(shared) = &mut self.shared {
            shared.disarm();
        }
        self.node.process_event();
        woken
    }

    /// Requests wake-ups by the device and by ranks that share memory. Returns the maximum time to sleep, or `None` if
    /// there is work.
    fn arm(&mut self) -> Option<Duration> {
        let now = self.node.now();
        let sleep = match &mut self.shared {
            Some(shared) => shared.arm(now),
            None => Some(Duration::MAX),
        };
        // The device shows this rank as asleep: it comes last.
        let sleep = sleep.and_then(|sleep| Some(sleep.min(self.node.arm()?)));
        if let (None, Some(shared)) = (sleep, &mut self.shared) {
            shared.disarm();
        }
        sleep
    }

    /// Performs one collective and returns the buffer with its result. Results of earlier calls are discarded; each of
    /// them restarts `timeout`.
    ///
    /// # Errors
    /// Returns `Call` if the call is invalid, `Group` if the group failed, or `TimedOut` if no call completed for
    /// `timeout`.
    pub fn run(
        &mut self,
        call: Call,
        buffer: B,
        timeout: Option<Duration>,
    ) -> Result<B, CommError> {
        let number = self.submit(call, buffer)?;
        loop {
            let Some(event) = self.wait(None, timeout) else {
                return Err(self.timed_out(number, timeout.unwrap_or(Duration::MAX)));
            };
            if event.call == number {
                event.result?;
                return Ok(event.buffer);
            }
        }
    }

    /// Returns the error of a call that was not done in time.
    fn timed_out(&self, call: u64, after: Duration) -> CommError {
        CommError::TimedOut { call, after, whom: ranks(&self.waits_for()) }
    }

    /// Advances all transfers. Returns `true` if anything arrived.
    pub(crate) fn progress(&mut self) -> bool {
        self.node.poll();
        let mut left = Vec::new();
        let mut moved = false;
        while let Some(event) = self.node.poll_event() {
            moved = true;
            match event {
                weft_xrdma::Event::Channel(event) => left.extend(self.ingest(event)),
                other => self.on_setup_event(other),
            }
        }
        moved |= self.receive_shared();
        // A rank writes all of its messages before it leaves, so they were received above.
        left.into_iter().for_each(|rank| self.group.peer_left(rank));
        self.advance();
        moved
    }

    /// Handles an event of a channel. Returns a rank that left.
    fn ingest(&mut self, event: weft_msg::Event) -> Option<usize> {
        let now = self.node.now();
        if let weft_msg::Event::Message { channel, message } = event {
            if !self.lanes.has(channel) {
                self.on_hello(channel, message);
                return None;
            }
            let from = self.lanes.ingest(
                now,
                self.node.context(),
                weft_msg::Event::Message { channel, message },
            );
            if let Some(GroupEvent::Message { from, message }) = from {
                let Self { node, lanes, group, shared, .. } = self;
                let net = MessageLink { context: node.context(), lanes, now };
                let mut link = HostLink { net, shared: shared.as_mut() };
                group.handle_message(from, Message::Net(message), &mut link);
            }
            return None;
        }
        match self.lanes.ingest(now, self.node.context(), event) {
            Some(GroupEvent::Left { rank }) => Some(rank),
            Some(GroupEvent::Gone { rank, why }) => {
                self.group.peer_gone(rank, why.to_string());
                None
            }
            _ => None,
        }
    }

    /// Handles the messages that have arrived in shared memory. Returns `true` if there was one.
    fn receive_shared(&mut self) -> bool {
        let now = self.node.now();
        let Self { node, lanes, group, shared, .. } = self;
        let mut moved = false;
        for from in (0..group.ranks()).filter(|&from| from != group.rank()).collect::<Vec<_>>() {
            while let Some(received) = shared.as_mut().and_then(|shared| shared.receive(from, now))
            {
                let message = match received {
                    Received::Slot(slot) => Message::Slot(slot),
                    Received::Copied(bytes) => Message::Copied(bytes),
                };
                let net = MessageLink { context: node.context(), lanes, now };
                let mut link = HostLink { net, shared: shared.as_mut() };
                group.handle_message(from, message, &mut link);
                moved = true;
            }
        }
        moved
    }

    fn advance(&mut self) {
        let now = self.node.now();
        let Self { node, lanes, group, shared, .. } = self;
        let net = MessageLink { context: node.context(), lanes, now };
        group.advance(now, &mut HostLink { net, shared: shared.as_mut() });
    }

    /// Returns the group's failure, if it has one.
    pub const fn error(&self) -> Option<&Error> {
        self.group.error()
    }

    /// Fails this rank and notifies the others of the reason.
    pub fn abort(&mut self, why: &str) {
        self.group.abort(why);
        self.advance();
    }

    /// Waits until all ranks have called this. `empty` is a buffer of no bytes.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Self::run).
    pub fn barrier(&mut self, empty: B, timeout: Option<Duration>) -> Result<(), CommError> {
        let call = Call { collective: Collective::Barrier, ..Call::barrier() };
        self.run(call, empty, timeout).map(drop)
    }

    /// Leaves the group after the others have received what they need. Calls in progress are
    /// abandoned.
    pub fn leave(mut self) {
        let timeout =
            if self.group.error().is_some() { FAILED_LEAVE_TIMEOUT } else { LEAVE_TIMEOUT };
        let until = self.node.now() + timeout;
        if !self.group.is_idle() {
            let _ = self.wait_quietly(until, |this| this.group.is_idle());
        }
        let now = self.node.now();
        let all: Vec<_> = self.lanes.all().collect();
        all.into_iter().for_each(|channel| self.node.context().close(now, channel));
        let _ = self.wait_quietly(until, |this| this.lanes.all().next().is_none());
    }

    /// Polls until `done` returns `true`, or until `until`. Returns `true` if it is done.
    fn wait_quietly(&mut self, until: Instant, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            self.progress();
            if done(self) {
                return true;
            }
            if self.node.now() >= until {
                return false;
            }
            self.sleep(None, Duration::from_millis(10));
        }
    }
}
