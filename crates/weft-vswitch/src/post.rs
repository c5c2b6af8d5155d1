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
use weft_vpc::{Handover, PortId, Vni};

use crate::worker::Worker;

/// Largest number of handovers of one origin in transit to other threads: an origin that sends without limit loses
/// its own frames and no others.
const ON_THE_WAY: usize = 256;

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
pub(crate) struct Bell {
    rung: OwnedFd,
    /// Set while the thread sleeps.
    asleep: AtomicU32,
}

impl Bell {
    fn new() -> rustix::io::Result<Self> {
        let rung = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { rung, asleep: AtomicU32::new(0) })
    }

    fn ring(&self) {
        if signal::is_asked::<Mapped>(&self.asleep) {
            let _ = rustix::io::write(&self.rung, &1_u64.to_ne_bytes());
        }
    }

    /// Announces sleep: later calls to `wake` are seen; earlier messages are in the mailbox.
    pub(crate) fn begin_sleep(&self) {
        signal::ask::<Mapped>(&self.asleep);
    }

    pub(crate) fn end_sleep(&self) {
        if !signal::withdraw::<Mapped>(&self.asleep) {
            let _ = rustix::io::read(&self.rung, &mut [0; 8]);
        }
    }

    /// Returns a descriptor that is readable after a wake.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.rung.as_fd()
    }
}

/// The sending side of a thread's mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    mail: Sender<Mail>,
    bell: Arc<Bell>,
}

impl Address {
    /// Sends an order and wakes the thread. Returns `false` if the mailbox is gone.
    pub(crate) fn send(&self, order: Order) -> bool {
        let sent = self.mail.send(Mail::Order(order)).is_ok();
        self.bell.ring();
        sent
    }
}

/// The mailbox of a thread.
#[derive(Debug)]
pub(crate) struct Letterbox {
    mail: Receiver<Mail>,
    pub(crate) bell: Arc<Bell>,
}

impl Letterbox {
    /// Creates a mailbox and its address.
    pub(crate) fn open() -> rustix::io::Result<(Self, Address)> {
        let (sender, mail) = channel();
        let bell = Arc::new(Bell::new()?);
        let address = Address { mail: sender, bell: Arc::clone(&bell) };
        Ok((Self { mail, bell }, address))
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
}

/// The sender of a thread's handovers to the other threads.
#[derive(Debug)]
pub(crate) struct Post {
    addresses: Vec<Address>,
    /// The tokens by origin; each has one holder for the router and one for each handover in transit.
    on_the_way: BTreeMap<Origin, Arc<()>>,
}

impl Post {
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        Self { addresses, on_the_way: BTreeMap::new() }
    }

    /// Sends a handover to a thread. Returns `false` if its origin has too many in transit, or the thread is
    /// gone.
    pub(crate) fn bring(&mut self, thread: u8, handover: Handover) -> bool {
        let origin = match &handover {
            Handover::Frame { from, .. } => Origin::Port(*from),
            Handover::Plain { vni, .. } => Origin::Network(*vni),
            Handover::Packet { arrival, .. } | Handover::Datagram { arrival, .. } => {
                Origin::Host(arrival.from.ip())
            }
            Handover::Path(news) => Origin::Path(news.peer().ip()),
        };
        let counted = self.on_the_way.entry(origin).or_default();
        let Some(address) = self.addresses.get(usize::from(thread)) else { return false };
        if Arc::strong_count(counted) > ON_THE_WAY {
            return false;
        }
        let sent = address.mail.send(Mail::Handover(handover, Arc::clone(counted))).is_ok();
        address.bell.ring();
        sent
    }

    /// Removes origins without handovers in transit.
    pub(crate) fn tidy(&mut self) {
        self.on_the_way.retain(|_, counted| Arc::strong_count(counted) > 1);
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
    fn who_sends_without_end_loses_its_own_frames_only() {
        let (letterbox, address) = Letterbox::open().unwrap();
        let mut post = Post::new(vec![address]);
        let brought = (0..ON_THE_WAY * 2).filter(|_| post.bring(0, frame(1))).count();
        assert_eq!(brought, ON_THE_WAY);
        assert!(post.bring(0, frame(2)));
        // A handover that was used makes room.
        drop(letterbox.next());
        assert!(post.bring(0, frame(1)));
        assert!(!post.bring(0, frame(1)));
        let waiting = std::iter::from_fn(|| letterbox.next()).count();
        assert_eq!(waiting, ON_THE_WAY + 1);
        post.tidy();
        assert!(post.on_the_way.is_empty());
        assert!(!post.bring(1, frame(1)), "there is no such thread");
        drop(letterbox);
        assert!(!post.bring(0, frame(1)), "nobody reads it any more");
    }

    #[test]
    fn whoever_sleeps_is_woken_and_nobody_else() {
        let (letterbox, address) = Letterbox::open().unwrap();
        let rung = |letterbox: &Letterbox| {
            let mut fds =
                [rustix::event::PollFd::new(&letterbox.bell.rung, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
                .unwrap()
                > 0
        };
        address.bell.ring();
        assert!(!rung(&letterbox), "it is awake");
        letterbox.bell.begin_sleep();
        address.bell.ring();
        assert!(rung(&letterbox));
        letterbox.bell.end_sleep();
        assert!(!rung(&letterbox));
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
            letterbox.bell.begin_sleep();
            let before = read;
            read += std::iter::from_fn(|| letterbox.next()).count();
            if read == before {
                let mut fds = [rustix::event::PollFd::new(
                    &letterbox.bell.rung,
                    rustix::event::PollFlags::IN,
                )];
                let patience = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_eq!(
                    rustix::event::poll(&mut fds, Some(&patience)),
                    Ok(1),
                    "a ring was missed"
                );
            }
            letterbox.bell.end_sleep();
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    }
}
