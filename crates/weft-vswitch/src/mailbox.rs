//! The messages between the threads of a daemon: closures that change a thread's state, and frames and packets that
//! one thread hands over to another. No lock is taken, and no thread waits for room.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};
use weft_ring::{Mapped, signal};
use weft_vpc::{Handover, PortId, Presence, Vni};
use weft_wire::MacAddr;

use crate::worker::Worker;

/// Largest number of handovers of one origin in transit to other threads: an origin that sends without limit loses
/// its own frames and no others.
const MAX_IN_TRANSIT: usize = 256;

/// A change that a thread makes between two turns.
pub(crate) type Order = Box<dyn FnOnce(&mut Worker) + Send>;

/// A message for a thread.
pub(crate) enum Mail {
    Order(Order),
    /// A handover, with the token that counts it until it is used.
    Handover(Handover, Arc<()>),
}

/// A waker of a sleeping thread, which costs no system call while the thread runs.
#[derive(Debug)]
pub(crate) struct Waker {
    event: OwnedFd,
    /// Set while the thread sleeps.
    asleep: AtomicU32,
}

impl Waker {
    fn new() -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, asleep: AtomicU32::new(0) })
    }

    fn wake(&self) {
        if signal::is_armed::<Mapped>(&self.asleep) {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Announces sleep: later calls to `wake` are seen; earlier messages are in the mailbox.
    pub(crate) fn begin_sleep(&self) {
        signal::arm::<Mapped>(&self.asleep);
    }

    pub(crate) fn end_sleep(&self) {
        if !signal::withdraw::<Mapped>(&self.asleep) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }

    /// Returns a descriptor that is readable after a wake.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The sending side of a thread's mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    mail: Sender<Mail>,
    waker: Arc<Waker>,
}

impl Address {
    /// Sends an order and wakes the thread. Returns `false` if the mailbox is gone.
    pub(crate) fn send(&self, order: Order) -> bool {
        let sent = self.mail.send(Mail::Order(order)).is_ok();
        self.waker.wake();
        sent
    }
}

/// The mailbox of a thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    mail: Receiver<Mail>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    /// Creates a mailbox and its address.
    pub(crate) fn open() -> rustix::io::Result<(Self, Address)> {
        let (sender, mail) = channel();
        let waker = Arc::new(Waker::new()?);
        let address = Address { mail: sender, waker: Arc::clone(&waker) };
        Ok((Self { mail, waker }, address))
    }

    pub(crate) fn next(&self) -> Option<Mail> {
        self.mail.try_recv().ok()
    }

    /// Blocks until there is a message; `None` if no sender is left.
    pub(crate) fn wait(&self) -> Option<Mail> {
        self.mail.recv().ok()
    }
}

/// The origin whose frames and packets are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Port(PortId),
    Network(Vni),
    Host(IpAddr),
    Path(IpAddr),
    Presence(PortId),
}

/// The sender of a thread's handovers to the other threads.
#[derive(Debug)]
pub(crate) struct Router {
    addresses: Vec<Address>,
    /// The tokens by origin; each has one holder for the router and one for each handover in transit.
    in_transit: BTreeMap<Origin, Arc<()>>,
    /// The last presence of each machine that did not reach a thread, and is sent again: unlike a frame, nothing
    /// retransmits it.
    late: BTreeMap<(u8, PortId, MacAddr), Presence>,
}

impl Router {
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        Self { addresses, in_transit: BTreeMap::new(), late: BTreeMap::new() }
    }

    /// Sends a handover to a thread. Returns `false` if its origin has too many in transit, or the thread is
    /// gone. A presence is sent by a later [`send_late`](Self::send_late) then, unless a newer one is sent before.
    pub(crate) fn send(&mut self, thread: u8, handover: Handover) -> bool {
        let Handover::Presence(presence) = handover else { return self.try_send(thread, handover) };
        let key = (thread, presence.port, presence.address);
        if self.try_send(thread, handover) {
            self.late.remove(&key);
        } else if self.addresses.get(usize::from(thread)).is_some() {
            self.late.insert(key, presence);
        } else {
            return false;
        }
        true
    }

    /// Sends the presences for which there was no room.
    pub(crate) fn send_late(&mut self) {
        for ((thread, ..), presence) in std::mem::take(&mut self.late) {
            self.send(thread, Handover::Presence(presence));
        }
    }

    /// Forgets the presences of a port that is removed.
    pub(crate) fn forget_port(&mut self, port: PortId) {
        self.late.retain(|&(_, known, _), _| known != port);
    }

    fn try_send(&mut self, thread: u8, handover: Handover) -> bool {
        let origin = match &handover {
            Handover::Frame { from, .. } => Origin::Port(*from),
            Handover::Plain { vni, .. } => Origin::Network(*vni),
            Handover::Packet { arrival, .. } | Handover::Datagram { arrival, .. } => {
                Origin::Host(arrival.from.ip())
            }
            Handover::Path(news) => Origin::Path(news.peer().ip()),
            Handover::Presence(presence) => Origin::Presence(presence.port),
        };
        let counted = self.in_transit.entry(origin).or_default();
        let Some(address) = self.addresses.get(usize::from(thread)) else { return false };
        if Arc::strong_count(counted) > MAX_IN_TRANSIT {
            return false;
        }
        let sent = address.mail.send(Mail::Handover(handover, Arc::clone(counted))).is_ok();
        address.waker.wake();
        sent
    }

    /// Removes origins without handovers in transit.
    pub(crate) fn remove_idle(&mut self) {
        self.in_transit.retain(|_, counted| Arc::strong_count(counted) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(from: u32) -> Handover {
        let vni = Vni::new(7).unwrap();
        Handover::Frame { from: PortId(from), vni, to: None, bytes: vec![0; 64] }
    }

    #[test]
    fn an_origin_that_sends_without_limit_loses_only_its_own_frames() {
        let (mailbox, address) = Mailbox::open().unwrap();
        let mut router = Router::new(vec![address]);
        let sent = (0..MAX_IN_TRANSIT * 2).filter(|_| router.send(0, frame(1))).count();
        assert_eq!(sent, MAX_IN_TRANSIT);
        assert!(router.send(0, frame(2)));
        // A handover that was used makes room.
        drop(mailbox.next());
        assert!(router.send(0, frame(1)));
        assert!(!router.send(0, frame(1)));
        let waiting = std::iter::from_fn(|| mailbox.next()).count();
        assert_eq!(waiting, MAX_IN_TRANSIT + 1);
        router.remove_idle();
        assert!(router.in_transit.is_empty());
        assert!(!router.send(1, frame(1)), "there is no such thread");
        drop(mailbox);
        assert!(!router.send(0, frame(1)), "no thread reads the mailbox any more");
    }

    #[test]
    fn the_last_presence_of_a_machine_reaches_a_thread_that_is_busy() {
        let (mailbox, address) = Mailbox::open().unwrap();
        let mut router = Router::new(vec![address]);
        let presence = |present| {
            let (port, vni, address) = (PortId(1), Vni::new(7).unwrap(), MacAddr([2; 6]));
            Handover::Presence(Presence { port, vni, address, present })
        };
        let last = |mailbox: &Mailbox| {
            let all = std::iter::from_fn(|| mailbox.next()).filter_map(|mail| match mail {
                Mail::Handover(Handover::Presence(presence), _) => Some(presence.present),
                _ => None,
            });
            let all: Vec<bool> = all.collect();
            (all.len(), all.last().copied())
        };
        let change = |router: &mut Router| {
            (0..=2 * MAX_IN_TRANSIT).for_each(|at| assert!(router.send(0, presence(at % 2 == 1))));
        };
        change(&mut router);
        assert_eq!(last(&mailbox), (MAX_IN_TRANSIT, Some(true)));
        router.send_late();
        assert_eq!(last(&mailbox), (1, Some(false)));
        // A newer one takes the place of one that waits, also if there is room again.
        change(&mut router);
        last(&mailbox);
        assert!(router.send(0, presence(true)));
        router.send_late();
        assert_eq!(last(&mailbox), (1, Some(true)));
        change(&mut router);
        last(&mailbox);
        router.forget_port(PortId(1));
        router.send_late();
        assert_eq!(last(&mailbox), (0, None));
    }

    #[test]
    fn only_a_sleeping_thread_is_woken() {
        let (mailbox, address) = Mailbox::open().unwrap();
        let event = |mailbox: &Mailbox| {
            let mut fds =
                [rustix::event::PollFd::new(&mailbox.waker.event, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
                .unwrap()
                > 0
        };
        address.waker.wake();
        assert!(!event(&mailbox), "the thread is awake");
        mailbox.waker.begin_sleep();
        address.waker.wake();
        assert!(event(&mailbox));
        mailbox.waker.end_sleep();
        assert!(!event(&mailbox));
        // Several threads wake one that sleeps again and again: none of their messages is missed.
        const EACH: usize = 2_000;
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let address = address.clone();
                std::thread::spawn(move || {
                    (0..EACH).for_each(|_| assert!(address.send(Box::new(|_| ()))));
                })
            })
            .collect();
        let mut read = 0;
        while read < 3 * EACH {
            mailbox.waker.begin_sleep();
            let before = read;
            read += std::iter::from_fn(|| mailbox.next()).count();
            if read == before {
                let mut fds = [rustix::event::PollFd::new(
                    &mailbox.waker.event,
                    rustix::event::PollFlags::IN,
                )];
                let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_eq!(
                    rustix::event::poll(&mut fds, Some(&timeout)),
                    Ok(1),
                    "a wake was missed"
                );
            }
            mailbox.waker.end_sleep();
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    }
}
