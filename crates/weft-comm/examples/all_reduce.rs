//! Ranks that sum their vectors ROUNDS times: `all_reduce RANK RANKS HOST:PORT ELEMENTS ROUNDS [net|auto|shm|hybrid]`.
//! Rank 0 listens at the address. `WEFT_COLL` has further options. Run it under `weft run`, or on RDMA hardware.

use std::env::{self, args};
use std::error::Error;
use std::process::ExitCode;

use weft_comm::{Call, Collective, Communicator, DataType, Op, Options};
use weft_units::Duration;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = args().skip(1).collect();
    let [rank, ranks, at, elements, rounds, channels @ ..] = words.as_slice() else {
        return Err("expected RANK RANKS HOST:PORT ELEMENTS ROUNDS".into());
    };
    let (rank, ranks, rounds): (usize, usize, usize) =
        (rank.parse()?, ranks.parse()?, rounds.parse()?);
    let mut options = Options::default();
    for word in env::var("WEFT_COLL").unwrap_or_default().split_whitespace() {
        let (name, value) = word.split_once('=').ok_or("WEFT_COLL has words NAME=VALUE")?;
        options.set(name, value)?;
    }
    if let [channels] = channels {
        options.channels = channels.parse()?;
    }
    let mut group = Communicator::join(at.parse()?, rank, ranks, options)?;
    let call = Call {
        collective: Collective::AllReduce,
        data_type: DataType::Fp32,
        op: Op::Sum,
        root: 0,
        elements: elements.parse()?,
    };
    println!("rank {rank} is there, servers {:?}", group.servers());
    for round in 0..rounds {
        // The elements are whole numbers, so their sums are exact.
        let own = |at: usize| ((at + rank + round) % 100) as f32;
        let sum = |at: usize| (0..ranks).map(|rank| ((at + rank + round) % 100) as f32).sum();
        let buffer = (0..call.elements).flat_map(|at| own(at).to_le_bytes()).collect();
        let buffer: Vec<u8> = group.run(call, buffer, Some(Duration::from_secs(20)))?;
        let results =
            buffer.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")));
        let wrong =
            results.enumerate().filter(|&(at, result)| result != f32::to_owned(&sum(at))).count();
        println!("rank {rank}: round {round}, {wrong} wrong");
    }
    group.leave();
    Ok(())
}
