//! Thousands of channels that open and end, and peers that are killed, leak no resources. For ten thousand channels,
//! in one minute: `ROUNDS=10 cargo test -p weft-xrdma --test limits cycles`.

use weft_units::Duration;
use weft_xrdma::{Node, Options};

use crate::end::{End, close, connect, is_elsewhere, repetitions, resident};
use crate::{alone, ended, wait_until};

/// Number of channels of an end that is killed.
const AT_ONCE: usize = 100;

/// The resources of a process that could leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// Bytes of the cache's memory in use, and registered.
    used: u64,
    registered: u64,
    descriptors: usize,
    channels: usize,
}

impl Held {
    fn by(node: &mut Node) -> Self {
        let weft_msg::MemoryUse { registered, used } = node.context().memory();
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
        Self { used, registered, descriptors, channels: node.context().channels().count() }
    }
}

/// Opens and closes a channel to a process that then ends: Weft's device opens its sockets with the first connection of a
/// process, which may be that of another test.
fn open_sockets(node: &mut Node) {
    let end = End::start(&[]);
    let channel = node.connect_and_wait(end.at).expect("it is taken");
    close(node, &[channel]);
    let is_idle = |held: Held| held.channels == 0 && held.registered == 0;
    wait_until(node, |node| is_idle(Held::by(node)));
    let connected = Held::by(node).descriptors;
    drop(end);
    // The kernel's device has no sockets in this process.
    wait_until(node, |node| is_elsewhere() || Held::by(node).descriptors < connected);
}

/// Runs a round of 1,000 channels: closed one by one, aborted, closed all at once, and ended by a peer's death. Returns
/// their number.
fn round(node: &mut Node) -> usize {
    let end = End::start(&["keepalive=100ms"]);
    let one_by_one = repetitions(800);
    for number in 0..one_by_one {
        let channel = node.connect_and_wait(end.at).expect("it is taken");
        if number % 4 == 0 {
            let now = node.now();
            node.context().abort(now, channel);
        } else {
            close(node, &[channel]);
        }
        ended(node);
    }
    let all = connect(node, &end, AT_ONCE);
    close(node, &all);
    let all = connect(node, &end, AT_ONCE);
    end.kill();
    let killed = node.now();
    let mut left = all.len();
    wait_until(node, |node| {
        left -= ended(node).len();
        left == 0
    });
    // The time until the probe, plus the device's retries, is 2 s; the rest is margin for a busy machine.
    let took = node.now().since(killed);
    assert!(took < Duration::from_millis(100) + Duration::from_secs(4), "{took}");
    one_by_one + 2 * AT_ONCE
}

#[test]
fn channels_that_end_in_every_way_leave_nothing() {
    let _alone = alone();
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    let mut options = Options::default();
    options.config.set("keepalive", "100ms").unwrap();
    options.config.set("memory_keep", "10ms").unwrap();
    let mut node = Node::new(options).expect("a device");
    open_sockets(&mut node);
    let before = Held::by(&mut node);
    // With the first channel.
    let (mut channels, mut after_first) = (1, 0);
    for number in 0..rounds {
        channels += round(&mut node) as u64;
        wait_until(&mut node, |node| Held::by(node) == before);
        if number == 0 {
            after_first = resident();
        }
    }
    let stats = node.context().stats();
    assert_eq!((stats.channels, stats.closed), (channels, channels));
    let most = AT_ONCE as u64 + 1;
    assert!(stats.qps_created <= most, "{} queue pairs were made", stats.qps_created);
    let grown = resident().saturating_sub(after_first);
    assert!(grown < 8 << 20, "{grown} bytes more are resident than after the first round");
}
