//! The programs of workloads, which run under `weft run` and print `begin`, `done` and `failed WHY` for each operation.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use weft_comm::{Call, Channels, Collective, Communicator, DataType, Op};
use weft_units::{Duration, Seed};
use weft_xrdma::{CallRole, ChannelId, Event, Message, Node, Options, Payload};

/// A program of a workload.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Workload {
    /// Answers calls of X-RDMA with what they have
    ChannelServer {
        /// The TCP port
        port: u16,
    },
    /// Calls a server, and checks its answers
    ChannelClient {
        /// The server's address and port
        to: SocketAddr,
    },
    /// Is a rank of all-reduces, whose sums it checks
    Rank {
        /// Its number
        rank: usize,
        /// The number of ranks
        ranks: usize,
        /// The address at which they meet, of rank 0
        at: SocketAddr,
        /// This rank's address
        own: String,
        /// The controllers that plan its ports
        controllers: String,
    },
}

/// The time limit of a call, and of an all-reduce: longer than any fault with its recovery.
const LIMIT: Duration = Duration::from_secs(600);
/// The pause between two operations.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// The time after which a silent peer counts as gone.
const KEEPALIVE_TIMEOUT: &str = "30s";
/// Number of elements of an all-reduce.
const ELEMENTS: usize = 20_000;

/// Runs until SIGTERM, or until an error that the program cannot go on after.
///
/// # Errors
/// Returns an error if signals cannot be received, or a rank's group has failed.
pub(crate) fn run(workload: Workload) -> Result<(), Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let on_signal = Arc::clone(&stop);
    ctrlc::set_handler(move || on_signal.store(true, Ordering::Relaxed))?;
    match workload {
        Workload::ChannelServer { port } => serve(port, &stop),
        Workload::ChannelClient { to } => {
            while !stop.load(Ordering::Relaxed) {
                // Without a device, or a server, there is nothing to count yet.
                if client(to, &stop).is_err() {
                    thread::sleep(std::time::Duration::from_millis(200));
                }
            }
        }
        Workload::Rank { rank, ranks, at, own, controllers } => {
            let mut options = weft_comm::Options { channels: Channels::Net, ..Default::default() };
            options.set("controller", &controllers)?;
            options.set("address", &own)?;
            // The default of three seconds is less than a busy machine may keep a rank waiting.
            options.set("keepalive_timeout", KEEPALIVE_TIMEOUT)?;
            reduce(Communicator::join(at, rank, ranks, options)?, (rank, ranks), &stop)?;
        }
    }
    Ok(())
}

/// Serves on one device after another: one whose daemon has ended is opened again.
fn serve(port: u16, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if answer(port, stop).is_err() {
            thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// Answers calls until a channel ends.
fn answer(port: u16, stop: &AtomicBool) -> Result<(), Box<dyn Error>> {
    let mut node = Node::new(format!("keepalive_timeout={KEEPALIVE_TIMEOUT}").parse::<Options>()?)?;
    node.listen(([0, 0, 0, 0], port).into())?;
    while !stop.load(Ordering::Relaxed) {
        node.wait(Some(Duration::from_millis(200)));
        while let Some(event) = node.poll_event() {
            match event {
                Event::Channel(weft_msg::Event::Message { channel, message }) => {
                    respond(&mut node, channel, message)?;
                }
                Event::Channel(weft_msg::Event::Closed { .. }) | Event::AcceptFailed { .. } => {
                    return Ok(());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn respond(node: &mut Node, channel: ChannelId, message: Message) -> Result<(), Box<dyn Error>> {
    if let CallRole::Request(id) = message.call {
        let (now, body) = (node.now(), node.context().body(&message).to_vec());
        node.context().respond(now, channel, id, Payload::Copy(&body))?;
        node.context().release(now, message);
    }
    Ok(())
}

/// Calls a server until a call fails.
fn client(to: SocketAddr, stop: &AtomicBool) -> Result<(), Box<dyn Error>> {
    let mut node = Node::new(format!("keepalive_timeout={KEEPALIVE_TIMEOUT}").parse::<Options>()?)?;
    let channel = node.connect_and_wait(to)?;
    let mut rng = Seed(1).child("channel", 0).rng();
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let words =
            (0..=rng.below(8192)).flat_map(|word| (word ^ number.rotate_left(32)).to_le_bytes());
        let body: Vec<u8> = words.collect();
        println!("begin");
        let answer = match node.call(channel, Payload::Copy(&body), Some(LIMIT)) {
            Ok(answer) => answer,
            Err(error) => {
                println!("failed call {number}: {error}");
                return Err(error.into());
            }
        };
        let is_same = node.context().body(&answer) == body;
        println!(
            "{}",
            if is_same { "done".into() } else { format!("failed call {number}: another answer") }
        );
        let now = node.now();
        node.context().release(now, answer);
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Sums vectors until any rank wants to stop: the first element counts those that do.
#[expect(clippy::cast_precision_loss, reason = "small whole numbers, whose sums are exact")]
fn reduce(
    mut group: Communicator<Vec<u8>>,
    (rank, ranks): (usize, usize),
    stop: &AtomicBool,
) -> Result<(), Box<dyn Error>> {
    let call = Call {
        collective: Collective::AllReduce,
        data_type: DataType::Fp32,
        op: Op::Sum,
        root: 0,
        elements: ELEMENTS,
    };
    for round in 0_usize.. {
        let value = |at: usize, rank: usize| ((at + 7 * rank + round) % 100) as f32;
        let vote = f32::from(u8::from(stop.load(Ordering::Relaxed)));
        let own = (0..ELEMENTS).map(|at| if at == 0 { vote } else { value(at, rank) });
        println!("begin");
        let buffer = group.run(call, own.flat_map(f32::to_le_bytes).collect(), Some(LIMIT));
        let buffer = buffer.inspect_err(|error| println!("failed round {round}: {error}"))?;
        let sums =
            buffer.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")));
        let sums: Vec<f32> = sums.collect();
        let is_wrong =
            |at: &usize| sums[*at] != (0..ranks).map(|rank| value(*at, rank)).sum::<f32>();
        match (1..ELEMENTS).find(is_wrong) {
            None => println!("done"),
            Some(at) => println!("failed round {round}: the sum of element {at} is {}", sums[at]),
        }
        if sums[0] > 0.0 {
            group.leave();
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
