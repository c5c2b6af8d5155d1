use std::net::{SocketAddr, UdpSocket};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_seal::SealConfig;
use weft_transport::EndedConnection;

use super::*;
use crate::sockets::{SocketConfig, Sockets};

/// A node that counts the datagrams passed to it.
#[derive(Debug, Default)]
struct CountingNode {
    datagrams: usize,
    strays: usize,
    /// The number of datagrams after which it accepts no more.
    max_datagrams: Option<usize>,
    /// The room of the last transmission.
    room: usize,
    /// The destination of the datagrams with which it fills the room, if any, and their size.
    to: Option<SocketAddr>,
    size: u16,
}

impl Node<Sockets> for CountingNode {
    /// Datagrams of seven bytes are malformed.
    fn handle_datagram(
        &mut self,
        _: Instant,
        _: &Arrival,
        datagram: &mut [u8],
        _: &mut Seals,
    ) -> bool {
        self.datagrams += 1;
        datagram.len() != 7
    }

    fn handle_stray(
        &mut self,
        _: Instant,
        _: &Arrival,
        datagram: &mut [u8],
        _: &mut Seals,
    ) -> bool {
        self.strays += 1;
        datagram.len() != 7
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_transmit(
        &mut self,
        _: Instant,
        room: usize,
        sockets: &mut Sockets,
        _: &mut Seals,
    ) -> usize {
        self.room = room;
        let Some(to) = self.to else { return 0 };
        (0..room).for_each(|_| sockets.outbox.push(&to, 0, self.size, |out| out.fill(0)));
        room
    }

    fn poll_ended(&mut self) -> Option<EndedConnection> {
        None
    }

    fn accepts(&self) -> bool {
        self.max_datagrams.is_none_or(|max| self.datagrams < max)
    }
}

fn driver(paths: u16, budget: Budget) -> Driver<Sockets> {
    let config = SocketConfig::new("127.0.0.1:0".parse().unwrap(), paths);
    let sockets = Sockets::open(&config).unwrap();
    Driver::new(sockets, Seals::new(SealConfig::off(), [7; 32]), budget)
}

/// Sends datagrams of lengths that the kernel does not merge, and waits until the first has arrived.
fn send(driver: &Driver<Sockets>, count: usize) {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..count {
        sender.send_to(&[0; 8][..7 + number % 2], driver.sockets.local()).unwrap();
    }
    let mut readable = [PollFd::from_borrowed_fd(driver.sockets.readable(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut readable, Some(&timeout)), Ok(1), "the datagrams are lost");
}

#[test]
fn a_turn_reads_one_batch_or_until_its_budget_is_spent() {
    // A batch is eight messages.
    for (datagrams, read) in [(1, 8), (9, 16), (100, 40)] {
        let mut driver = driver(1, Budget { datagrams, ..Budget::default() });
        send(&driver, 40);
        let mut node = CountingNode::default();
        assert_eq!(driver.turn(&mut node), Turn { received: read, sent: 0 });
        assert_eq!(node.datagrams, read);
        let malformed = read as u64 / 2;
        let counters =
            ReceiveCounters { datagrams_received: read as u64, malformed, receive_errors: 0 };
        assert_eq!(driver.counters(), counters);
    }
}

#[test]
fn datagrams_are_lost_while_a_node_does_not_accept_them() {
    let mut driver = driver(1, Budget { datagrams: 100, ..Budget::default() });
    send(&driver, 40);
    let mut node = CountingNode { max_datagrams: Some(3), ..CountingNode::default() };
    assert_eq!(driver.receive(0, &mut node), 3);
    // The rest of that batch is lost; later batches are handled.
    node.max_datagrams = None;
    assert_eq!(driver.receive(0, &mut node), 32);
}

#[test]
fn sending_sockets_are_read_every_millisecond_and_not_all_at_once() {
    let mut driver = driver(20, Budget::default());
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for port in driver.sockets.outbox.source_ports().unwrap() {
        sender.send_to(&[0; 8], ("127.0.0.1", port)).unwrap();
    }
    let (mut node, start) = (CountingNode::default(), Instant::EPOCH + Duration::from_secs(1));
    assert!(driver.receive_strays(start, &mut node));
    assert_eq!(node.strays, 16);
    assert!(!driver.receive_strays(start + Duration::from_micros(999), &mut node));
    assert!(driver.receive_strays(start + Duration::from_millis(1), &mut node));
    assert_eq!((node.strays, driver.counters().datagrams_received), (20, 20));
}

#[test]
fn malformed_datagrams_count_as_received_on_every_socket() {
    let mut driver = driver(1, Budget::default());
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = driver.sockets.outbox.source_ports().unwrap()[0];
    for len in [7, 8] {
        sender.send_to(&[0; 8][..len], ("127.0.0.1", port)).unwrap();
    }
    let mut node = CountingNode::default();
    assert!(driver.receive_strays(Instant::EPOCH, &mut node));
    let counters = ReceiveCounters { datagrams_received: 2, malformed: 1, receive_errors: 0 };
    assert_eq!((node.strays, driver.counters()), (2, counters));
}

#[test]
fn a_delayed_datagram_is_handled_when_it_is_due() {
    let late = Duration::from_millis(30);
    let mut driver =
        driver(1, Budget::default()).with_delays([([127, 0, 0, 1].into(), late)].into());
    let began = driver.now();
    send(&driver, 2);
    let mut node = CountingNode::default();
    while node.datagrams < 2 {
        let _ = driver.turn(&mut node);
        assert!(driver.now() < began + Duration::from_secs(10), "{node:?}");
    }
    assert!(driver.now() >= began + late);
    assert_eq!(driver.next_due(), None);
}

#[test]
fn room_is_the_budget_less_the_datagrams_that_wait_for_the_kernel() {
    let mut driver = driver(1, Budget { packets: 20, ..Budget::default() });
    let (to, now) = (driver.sockets.local(), driver.now());
    let mut node = CountingNode { to: Some(to), size: 9, ..CountingNode::default() };
    assert_eq!((driver.transmit(now, &mut node), node.room), (20, 20));
    assert_eq!(driver.sockets.outbox.waiting(), 0, "loopback has room");
    // Datagrams that are not flushed.
    (0..5).for_each(|_| driver.sockets.outbox.push(&to, 0, 9, |out| out.fill(0)));
    node.to = None;
    assert_eq!((driver.transmit(now, &mut node), node.room), (0, 15));
    assert_eq!(driver.sockets.outbox.waiting(), 0, "they were flushed all the same");
    (0..30).for_each(|_| driver.sockets.outbox.push(&to, 0, 9, |out| out.fill(0)));
    let _ = driver.transmit(now, &mut node);
    assert_eq!(node.room, 0);
}
