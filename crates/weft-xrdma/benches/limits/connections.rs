//! Measures connection set-up with and without the cache of queue pairs (X-RDMA, section VII.C), and with rdma_cm.

use std::process::{Command, Stdio};

use weft_testkit::{figure_row, json};
use weft_xrdma::{ChannelId, Node};

use crate::LIBRARY;
use crate::end::{End, ask, close, connect, node};
use crate::figures::{median, micros, spread};

/// Number of channels set up one after the other in a round.
const CHANNELS_PER_ROUND: usize = 200;
/// Number of channels set up at once: the paper's number, which is this device's maximum per process, less the control
/// channel.
const AT_ONCE: usize = 4095;

const CACHES: [(&str, &str); 2] =
    [("with the queue pair cache", "qp_cache=4096"), ("without", "qp_cache=0")];

pub(crate) fn measure(rounds: usize) {
    let end = End::start(&[]);
    let mut node = node(&[""; 0]);
    let control = node.connect_and_wait(end.at).expect("it is taken");
    let mut ours = [Vec::new(), Vec::new()];
    let mut singly = [Vec::new(), Vec::new()];
    let mut at_once = [Vec::new(), Vec::new()];
    let mut by_rdma_cm = Vec::new();
    for _ in 0..rounds {
        for (which, (_, cache)) in CACHES.into_iter().enumerate() {
            set_both(&mut node, control, cache);
            // The first run fills the caches and is not counted.
            for figures in [None, Some(&mut ours[which])] {
                let micros = offers(&mut node);
                figures.into_iter().for_each(|figures| figures.push(micros));
            }
            for figures in [None, Some(&mut singly[which])] {
                let micros = one_by_one(&mut node, &end);
                figures.into_iter().for_each(|figures| figures.push(micros));
                wait_until_idle(&mut node, control);
            }
            for figures in [None, Some(&mut at_once[which])] {
                let millis = all_at_once(&mut node, &end);
                figures.into_iter().for_each(|figures| figures.push(millis));
                wait_until_idle(&mut node, control);
            }
        }
        by_rdma_cm.extend(cmtime());
    }
    let ways = ["channels", "channels without the cache", "rdma_cm"];
    for (way, rounds) in ways.into_iter().zip([&at_once[0], &at_once[1], &by_rdma_cm]) {
        rounds.iter().for_each(|ms| figure_row("x-rdma-setup", &json!({ "way": way, "ms": ms })));
    }
    println!("\nthe queue pair and its receive requests at one end, made and given back, us each");
    print(&ours);
    println!("\nset up one after the other, us each ({CHANNELS_PER_ROUND} a round)");
    print(&singly);
    println!("\n{AT_ONCE} at once, ms");
    print(&at_once);
    if by_rdma_cm.is_empty() {
        println!("rdma_cm: cmtime failed (apt-get install rdmacm-utils)");
    } else {
        println!("{:<28} {}", "rdma_cm (cmtime)", spread(&by_rdma_cm));
    }
}

fn print([with, without]: &[Vec<f64>; 2]) {
    println!("{:<28} {:>10} {:>24}   {} rounds", "", "median", "least to most", with.len());
    println!("{:<28} {}", CACHES[0].0, spread(with));
    println!("{:<28} {}", CACHES[1].0, spread(without));
    let ratios: Vec<_> = with.iter().zip(without).map(|(with, without)| with / without).collect();
    println!("{:<28} {:>10.2}", "with / without", median(&ratios));
}

/// Sets a parameter at both ends.
fn set_both(node: &mut Node, control: ChannelId, parameter: &str) {
    let (name, value) = parameter.split_once('=').expect("NAME=VALUE");
    node.context().set(name, value).expect("an on-line parameter");
    ask(node, control, parameter);
}

/// Waits until the other end has no channel except the control channel.
fn wait_until_idle(node: &mut Node, control: ChannelId) {
    while ask(node, control, "").channels != 1 {}
}

/// Returns the time of this end's part of a set-up, without the peer, in microseconds.
fn offers(node: &mut Node) -> f64 {
    let now = node.now();
    let offered: Vec<_> =
        (0..AT_ONCE).map(|_| node.context().offer(now).expect("there is room").0).collect();
    offered.into_iter().for_each(|channel| node.context().abort(now, channel));
    let took = micros(node.now().since(now)) / AT_ONCE as f64;
    while node.poll_event().is_some() {}
    took
}

/// Returns the median time to set up one channel, in microseconds.
fn one_by_one(node: &mut Node, end: &End) -> f64 {
    let mut each = Vec::new();
    for _ in 0..CHANNELS_PER_ROUND {
        let began = node.now();
        let channel = node.connect_and_wait(end.at).expect("it is taken");
        each.push(micros(node.now().since(began)));
        close(node, &[channel]);
    }
    median(&each)
}

/// Returns the time until the last channel is open, in milliseconds.
fn all_at_once(node: &mut Node, end: &End) -> f64 {
    let began = node.now();
    let channels = connect(node, end, AT_ONCE);
    let took = micros(node.now().since(began)) / 1e3;
    close(node, &channels);
    took
}

/// Returns the time with rdma_cm on the same device, with queue pairs of few requests and without memory, in
/// milliseconds.
fn cmtime() -> Option<f64> {
    let start = |more: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", "cmtime", "-p", "24177", "-c", &AT_ONCE.to_string()]).args(more);
        command.env("LD_LIBRARY_PATH", &*LIBRARY).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    };
    let mut server = start(&[]);
    // The client retries until the server listens.
    let client = start(&["-s", "127.0.0.1"]).wait_with_output().expect("it ends");
    let _ = server.kill();
    let _ = server.wait();
    let printed = String::from_utf8_lossy(&client.stdout);
    // The program performs each step for all connections before the next step; the last two tear down.
    let steps = ["create id", "resolve addr", "resolve route", "create qp", "connect "];
    let of = |step: &str| {
        let line = printed.lines().find(|line| line.starts_with(step))?;
        line.split_once(':')?.1.split_whitespace().next()?.parse::<f64>().ok()
    };
    steps.into_iter().map(of).sum()
}
