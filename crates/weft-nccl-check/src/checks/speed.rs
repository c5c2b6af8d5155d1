//! Latency and bandwidth.

use std::time::Duration;

use super::Outcome;
use crate::clock::now;
use crate::memory::Buffer;
use crate::net::{Comm, Registration, Request};
use crate::rank::{Pair, Rank};

/// Sizes of messages, bytes: NCCL's chunks are 128 KiB to 4 MiB.
const SIZES: [usize; 4] = [8_192, 131_072, 524_288, 4_194_304];
/// Messages in progress: NCCL's steps.
const WINDOW: usize = 8;

/// Memory that is registered on a comm.
struct End<'a> {
    rank: &'a Rank<'a>,
    comm: Comm,
    memory: &'a Buffer,
    registration: Registration,
    sends: bool,
}

impl End<'_> {
    fn post(&self, size: usize, slot: usize) -> Result<Request, String> {
        let (net, watch) = (self.rank.net()?, self.rank.stopwatch());
        let data = self.memory.at(slot * size);
        loop {
            let request = match self.sends {
                true => net.send(self.comm, data, size, self.registration)?,
                false => net.receive(self.comm, data, size, self.registration, false)?,
            };
            match request {
                Some(request) => return Ok(request),
                None => watch.wait(|| "no request".to_owned())?,
            }
        }
    }

    fn wait(&self, request: Request) -> Result<(), String> {
        let (net, watch) = (self.rank.net()?, self.rank.stopwatch());
        while net.test(request)?.is_none() {
            watch.wait(|| "a request is not complete".to_owned())?;
        }
        Ok(())
    }

    /// Passes messages for a time that rank 0 measures, and returns bytes a second.
    fn stream(&self, size: usize, time: Duration) -> Result<f64, String> {
        let (began, mut bytes) = (now(), 0);
        loop {
            let goes_on = match self.rank.number {
                0 => {
                    let goes_on = began.elapsed() < time;
                    self.rank.exchange.send(&[u8::from(goes_on)]);
                    goes_on
                }
                _ => self.rank.exchange.receive()? == [1],
            };
            if !goes_on {
                return Ok(f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) * 1_024.0
                    / began.elapsed().as_secs_f64());
            }
            let mut open = std::collections::VecDeque::new();
            for number in 0..256.min((64 << 20) / size) {
                if open.len() == WINDOW {
                    self.wait(open.pop_front().expect("a full window"))?;
                }
                open.push_back(self.post(size, number % WINDOW)?);
                bytes += size;
            }
            open.into_iter().try_for_each(|request| self.wait(request))?;
        }
    }
}

/// Returns half the median round trip of 8 bytes.
fn latency(rank: &Rank<'_>, pair: Pair, memory: &Buffer) -> Result<Duration, String> {
    let net = rank.net()?;
    let end = |comm, sends| -> Result<End<'_>, String> {
        Ok(End {
            rank,
            comm,
            memory,
            registration: net.register(comm, memory.at(0), memory.len())?,
            sends,
        })
    };
    let (sends, receives) = (end(pair.send, true)?, end(pair.receive, false)?);
    let mut trips = Vec::new();
    for _ in 0..2_000 {
        let began = now();
        if rank.number == 1 {
            receives.wait(receives.post(8, 0)?)?;
            sends.wait(sends.post(8, 1)?)?;
        } else {
            let back = receives.post(8, 0)?;
            sends.wait(sends.post(8, 1)?)?;
            receives.wait(back)?;
        }
        trips.push(began.elapsed());
    }
    net.deregister(sends.comm, sends.registration)?;
    net.deregister(receives.comm, receives.registration)?;
    trips.sort_unstable();
    Ok(trips[trips.len() / 2] / 2)
}

pub(super) fn speed(rank: &mut Rank<'_>) -> Outcome {
    let rank = &*rank;
    let memory = rank.buffer(WINDOW * SIZES[SIZES.len() - 1]);
    let pair = rank.open()?;
    let half = latency(rank, pair, &memory)?;
    let net = rank.net()?;
    let sends = rank.number == 0;
    let comm = if sends { pair.send } else { pair.receive };
    let registration = net.register(comm, memory.at(0), memory.len())?;
    let end = End { rank, comm, memory: &memory, registration, sends };
    let mut figures = vec![format!("8 B in {:.1} us", half.as_secs_f64() * 1e6)];
    for size in SIZES {
        let rate = end.stream(size, Duration::from_secs(rank.args.seconds))?;
        figures.push(format!("{} at {:.2} GB/s", weft_units::ByteCount(size as u64), rate / 1e9));
    }
    net.deregister(comm, registration)?;
    rank.meet()?;
    rank.close(pair)?;
    Ok(figures.join(", "))
}
