//! Clients on random devices, in pairs that exchange WRITEs and SENDs.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_units::Seed;
use weft_verbs::{ClientAddress, DeviceClient, Done};

/// Bytes of a WRITE and of a SEND.
const WRITE: u32 = 1024;
const SEND: u32 = 256;

/// Requests of one client that are not completed. A thousand clients have a thousand then, all in one daemon.
const POSTED: u64 = 1;

/// The places in a client's memory: what it sends, what its peer writes, and what its peer sends.
const OWN: usize = 0;
const WRITTEN: usize = 1024;
const RECEIVED: usize = 2048;
const BYTES: usize = 4096;

/// The byte that a hostile client writes, and no other.
const HOSTILE: u8 = 0xff;

/// A client, and what it has done.
pub(crate) struct End {
    pub(crate) name: String,
    pub(crate) client: DeviceClient,
    peer: ClientAddress,
    posted: u64,
    /// WRITEs for the latency, one after the other.
    single: u64,
    done: u64,
    received: u64,
    receives_posted: u64,
}

/// Clients in pairs that are connected.
pub(crate) type Pairs = Vec<[End; 2]>;

/// Returns `count` different numbers below `limit` in random order; even for the same seed.
pub(crate) fn drawn(count: u32, limit: u32) -> Vec<u32> {
    let mut rng = Seed(64_000).rng();
    let mut all: Vec<u32> = (0..limit).collect();
    for index in 0..count as usize {
        let other = index + rng.index(all.len() - index);
        all.swap(index, other);
    }
    all.truncate(count as usize);
    all
}

/// Attaches a client to each of these devices. Returns them in pairs, connected, and the times to attach and to connect.
pub(crate) fn attach(
    socket: &Path,
    names: &[String],
) -> Result<(Pairs, [Duration; 2]), Box<dyn Error>> {
    let begun = Instant::now();
    let mut clients = Vec::new();
    for name in names {
        clients.push((name.clone(), DeviceClient::open(socket, name, BYTES)?));
    }
    let attached = begun.elapsed();
    let begun = Instant::now();
    let mut pairs = Vec::new();
    let mut clients = clients.into_iter();
    while let (Some(one), Some(other)) = (clients.next(), clients.next()) {
        let addresses = [one.1.address(), other.1.address()];
        let mut ends = Vec::new();
        for ((name, client), peer) in [one, other].into_iter().zip([addresses[1], addresses[0]]) {
            client.connect(socket, &name, &peer)?;
            let end = End {
                name,
                client,
                peer,
                posted: 0,
                single: 0,
                done: 0,
                received: 0,
                receives_posted: 0,
            };
            ends.push(end);
        }
        pairs.push(<[End; 2]>::try_from(ends).map_err(|_| "two ends")?);
    }
    Ok((pairs, [attached, begun.elapsed()]))
}

impl End {
    /// Returns the number of send requests that it has posted.
    pub(crate) fn requests(&self) -> u64 {
        self.posted + self.single
    }

    /// Posts what its window allows, every other request a SEND, and takes what is completed. Returns the number of its
    /// requests that were completed.
    fn turn(&mut self, posts: bool) -> Result<u64, Box<dyn Error>> {
        while self.receives_posted < self.received + 4 * POSTED {
            self.client.receive(self.receives_posted, (RECEIVED, SEND))?;
            self.receives_posted += 1;
        }
        while posts && self.posted < self.done + POSTED {
            if self.posted.is_multiple_of(2) {
                self.client.write(self.posted, (OWN, WRITE), &self.peer, WRITTEN as u64)?;
            } else {
                self.client.send(self.posted, (OWN, SEND))?;
            }
            self.posted += 1;
        }
        let (before, mut failed) = (self.done, None);
        self.client.poll(16, |Done { receives, failure, .. }| {
            failed = failed.or(failure);
            if receives {
                self.received += 1;
            } else {
                self.done += 1;
            }
        })?;
        match failed {
            Some(failure) => Err(format!("{}: a request failed: {failure}", self.name).into()),
            None => Ok(self.done - before),
        }
    }
}

/// Lets all pairs exchange messages for this time, and then until all are completed. Returns the messages a second.
pub(crate) fn exchange(pairs: &mut [[End; 2]], time: Duration) -> Result<f64, Box<dyn Error>> {
    for (number, end) in pairs.iter_mut().flatten().enumerate() {
        end.client.fill(u8::try_from(number % 251)? + 1);
        // The receives are posted before a peer sends.
        end.turn(false)?;
    }
    // The connections are set up one after the other, as those of programs that start at different times.
    for end in pairs.iter_mut().flatten() {
        end.turn(true)?;
        while end.done < end.posted {
            end.turn(false)?;
        }
    }
    let (begun, mut done) = (Instant::now(), 0);
    while begun.elapsed() < time {
        for end in pairs.iter_mut().flatten() {
            done += end.turn(true)?;
        }
    }
    while pairs.iter().flatten().any(|end| end.done < end.posted) {
        for end in pairs.iter_mut().flatten() {
            done += end.turn(false)?;
        }
    }
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    for (number, [one, other]) in pairs.iter().enumerate() {
        let own = |end: usize| (2 * number + end) % 251 + 1;
        for (end, peer) in [(one, own(1)), (other, own(0))] {
            let found = [WRITTEN, WRITTEN + WRITE as usize - 1].map(|at| end.client.byte(at));
            if found.map(usize::from) != [peer; 2] {
                return Err(format!("{}: it has {found:?}, not its peer's {peer}", end.name).into());
            }
        }
    }
    Ok(rate)
}

/// Returns the median and the 99th percentile of the time of single WRITEs of one pair, while all others are idle, in
/// microseconds.
pub(crate) fn latency(pair: &mut [End; 2], count: usize) -> Result<[f64; 2], Box<dyn Error>> {
    let [one, _] = pair;
    let mut times = Vec::with_capacity(count);
    for number in 0..count as u64 {
        one.single += 1;
        let (begun, mut failure) = (Instant::now(), None);
        one.client.write(number, (OWN, 8), &one.peer, WRITTEN as u64)?;
        while one.client.poll(1, |done| failure = done.failure)? == 0 {}
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok([times[count / 2], times[count * 99 / 100]])
}

/// Lets a client of the device `name` attack `victims` by their numbers and keys, while they exchange messages. Returns the number of attempts; any that
/// succeeds is an error.
pub(crate) fn attack(
    socket: &Path,
    names: [&str; 2],
    pairs: &mut [[End; 2]],
) -> Result<usize, Box<dyn Error>> {
    let mut hostile = DeviceClient::open(socket, names[0], BYTES)?;
    let victims: Vec<ClientAddress> =
        pairs.iter().flatten().map(|end| end.client.address()).collect();
    let mut attempts = 0;
    for victim in victims.iter().step_by(victims.len() / 20 + 1) {
        let succeeded = hostile.intrude(victim);
        if !succeeded.is_empty() {
            return Err(format!("a hostile device could {}", succeeded.join(" and ")).into());
        }
        attempts += 5;
        // A peer of its own carries WRITEs with the victim's key.
        let mut peer = DeviceClient::open(socket, names[1], BYTES)?;
        hostile.renew()?;
        peer.renew()?;
        hostile.connect(socket, names[0], &peer.address())?;
        peer.connect(socket, names[1], &hostile.address())?;
        hostile.fill(HOSTILE);
        hostile.write(1, (OWN, 8), &peer.address().with_memory_of(victim), RECEIVED as u64)?;
        let mut outcome = None;
        while hostile.poll(1, |done| outcome = Some(done.failure))? == 0 {
            for end in pairs.iter_mut().flatten() {
                end.turn(true)?;
            }
        }
        if outcome != Some(Some("remote access error")) {
            return Err(format!("a WRITE with a victim's key came to {outcome:?}").into());
        }
        attempts += 1;
    }
    let is_changed = pairs.iter().flatten().any(|end| end.client.byte(RECEIVED) == HOSTILE);
    if is_changed { Err("a hostile device wrote to another's memory".into()) } else { Ok(attempts) }
}
