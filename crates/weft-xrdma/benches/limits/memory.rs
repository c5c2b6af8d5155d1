//! Measures the memory of channels, idle and loaded, with messages in frames and read on demand (X-RDMA, section
//! VII.A), and the cache's size under changing load.

use weft_units::Duration;
use weft_xrdma::{ChannelId, Node, Payload};

use crate::end::{End, ask, close, connect, node};

const MIB: f64 = (1 << 20) as f64;
/// Bytes of each message.
const MESSAGE: usize = 4096;

/// Values of the parameter `small`: every message in its frame, or none.
const MODES: [&str; 2] = ["small=4096", "small=64"];

pub(crate) fn measure() {
    println!("\nmemory of the receiving end, MiB: registered (resident); {MESSAGE}-byte messages");
    println!(
        "{:>8} {:>6} {:>20} {:>20} {:>7} {:>20} {:>20} {:>7}",
        "channels",
        "depth",
        "idle, small",
        "idle, large",
        "ratio",
        "busy, small",
        "busy, large",
        "ratio"
    );
    for depth in [8, 32, 128] {
        for channels in [16, 128, 1024] {
            let [small, large] = MODES.map(|mode| footprint(channels, depth, mode));
            print!("{channels:>8} {depth:>6}");
            for (small, large) in [(small.0, large.0), (small.1, large.1)] {
                print!(" {:>20} {:>20}", small.text(), large.text());
                print!(" {:>6.1}%", 100.0 * large.registered / small.registered);
            }
            println!();
        }
    }
    up_and_down();
}

/// The memory of the receiving end, beyond its memory without channels, MiB.
#[derive(Clone, Copy)]
struct Footprint {
    registered: f64,
    resident: f64,
}

impl Footprint {
    fn text(self) -> String {
        format!("{:.1} ({:.1})", self.registered, self.resident)
    }
}

/// Returns the memory of idle channels, and the maximum after every channel has carried messages.
fn footprint(channels: usize, depth: u32, mode: &str) -> (Footprint, Footprint) {
    let depth = format!("depth={depth}");
    let parameters = [mode, &depth, "memory_limit=2GiB", "memory_region=64KiB"];
    let end = End::start(&parameters);
    let mut node = node(&parameters);
    let control = node.connect_and_wait(end.at).expect("it is taken");
    let before = ask(&mut node, control, "");
    let of = |registered: u64, resident: u64| Footprint {
        registered: registered.saturating_sub(before.registered) as f64 / MIB,
        resident: resident.saturating_sub(before.resident) as f64 / MIB,
    };
    let all = connect(&mut node, &end, channels);
    let idle = ask(&mut node, control, "");
    let sent = load(&mut node, &all, MESSAGE, 8);
    while ask(&mut node, control, "most").came < sent {}
    let busy = ask(&mut node, control, "");
    (of(idle.registered, idle.resident), of(busy.most.max(busy.registered), busy.resident))
}

/// Sends messages on every channel in turn, as their windows allow. Returns their number.
fn load(node: &mut Node, channels: &[ChannelId], len: usize, each: u64) -> u64 {
    let body = vec![7; len];
    for _ in 0..each {
        for &channel in channels {
            let now = node.now();
            node.context().send(now, channel, Payload::Copy(&body)).expect("it is taken");
        }
        node.poll();
    }
    each * channels.len() as u64
}

/// Measures the cache while large messages arrive and after they end.
fn up_and_down() {
    let parameters = ["memory_limit=2GiB", "memory_keep=200ms"];
    let end = End::start(&parameters);
    let mut node = node(&parameters);
    let control = node.connect_and_wait(end.at).expect("it is taken");
    println!("\nthe cache of the sending and the receiving end, MiB registered");
    println!("{:<44} {:>8} {:>9}", "", "sending", "receiving");
    let print_row = |node: &mut Node, what: &str, most: bool| {
        let own = node.context().memory().registered as f64 / MIB;
        let other = ask(node, control, "");
        let other = if most { other.most } else { other.registered } as f64 / MIB;
        println!("{what:<44} {own:>8.1} {other:>9.1}");
    };
    print_row(&mut node, "one channel", false);
    let all = connect(&mut node, &end, 32);
    print_row(&mut node, "33 channels", false);
    let mut came = 0;
    for (messages, len) in [(8, 1 << 20), (2, 1 << 20), (2, 64 << 10)] {
        came += load(&mut node, &all, len, messages);
        print_row(
            &mut node,
            &format!("{messages} messages of {} KiB on each of 32", len >> 10),
            true,
        );
        while ask(&mut node, control, "").came < came {}
        wait_for_shrink(&mut node);
        print_row(&mut node, "  400 ms later", false);
    }
    close(&mut node, &all);
    while ask(&mut node, control, "").channels != 1 {}
    wait_for_shrink(&mut node);
    print_row(&mut node, "32 channels closed, 400 ms later", false);
}

/// Waits until the cache has freed unused memory.
fn wait_for_shrink(node: &mut Node) {
    let until = node.now() + Duration::from_millis(400);
    while node.now() < until {
        node.wait(Some(Duration::from_millis(50)));
        while node.poll_event().is_some() {}
    }
}
