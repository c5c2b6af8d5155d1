//! Random work requests between three hosts, over paths that lose, double, delay and die, against a model
//! of what memory and completions must be. A failure prints its seed.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use weft_transport::TransportConfig;
use weft_units::{Duration, Rng, Seed};

use super::network::{BASE, End, Fate, LENGTH, Network, Rule, config};
use crate::*;

/// Each end's memory: what its peer writes, what receive requests take, what it sends from, and what
/// its READs and atomics bring; 16 KiB each.
const QUARTER: u64 = 16 * 1024;
const RECEIVE: u64 = QUARTER;
const SOURCE: u64 = 2 * QUARTER;
const RESULT: u64 = 3 * QUARTER;
/// Receive requests and results have slots of this size.
const SLOT: u64 = 1024;
const SLOTS: u64 = 12;

/// A send request that was posted, and what its completion must show.
struct Posted {
    wr_id: u64,
    /// What its result must be.
    result: Option<Vec<u8>>,
}

/// One end, and what the model knows of it.
struct Side {
    end: End,
    posted: VecDeque<Posted>,
    next: u64,
    /// What the peer has written.
    written: Vec<u8>,
    /// Payloads that are on their way to it.
    sent_to: VecDeque<Vec<u8>>,
    /// Receive requests that are posted.
    receives: u64,
    next_receive: u64,
    /// The next request waits for READs: one before it reads what it may write.
    fence: bool,
}

fn bytes_at(network: &mut Network, end: &End, offset: u64, len: u32) -> Vec<u8> {
    let from = usize::try_from(offset).unwrap();
    network.memory(end)[from..from + len as usize].to_vec()
}

/// Cuts a piece of memory into up to three.
fn cut(end: &End, offset: u64, len: u32, rng: &mut Rng) -> Vec<Sge> {
    let first = u32::try_from(rng.below(u64::from(len) + 1)).unwrap();
    let second = u32::try_from(rng.below(u64::from(len - first) + 1)).unwrap();
    let middle = offset + u64::from(first);
    alloc::vec![
        end.sge(offset, first),
        end.sge(middle, second),
        end.sge(middle + u64::from(second), len - first - second),
    ]
}

struct Run {
    network: Network,
    sides: Vec<[Side; 2]>,
    rng: Rng,
    seed: u64,
}

fn side(network: &mut Network, host: usize) -> Side {
    let end = network.end(host, Service::ReliableConnected);
    network.fill(&end, u64::from(end.qp.0) * 7 + host as u64);
    let written = bytes_at(network, &end, 0, u32::try_from(QUARTER).unwrap());
    Side {
        end,
        posted: VecDeque::new(),
        next: 0,
        written,
        sent_to: VecDeque::new(),
        receives: 0,
        next_receive: 0,
        fence: false,
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Seed(seed).child("model", 0).rng();
        let config = TransportConfig {
            paths: [1, 2, 8, 128][rng.index(4)],
            mtu: [64, 256, 1024][rng.index(3)],
            send_window: [16, 256, 4096][rng.index(3)],
            peer_timeout: Duration::from_secs(3600),
            idle_timeout: Duration::from_secs(3600),
            ..config()
        };
        let mut network = Network::with(3, &config);
        let sides: Vec<_> = [(0, 1), (1, 2), (2, 0), (0, 1)]
            .map(|(a, b)| [side(&mut network, a), side(&mut network, b)])
            .into();
        for [a, b] in &sides {
            network.join(&a.end, &b.end, |attributes| {
                if let Some(retries) = &mut attributes.retry_count {
                    *retries = 7;
                }
            });
        }
        Self { network, sides, rng, seed }
    }

    fn faults(&mut self) -> Rule {
        let mut rng = self.rng.clone();
        self.rng.next_u64();
        let (drop, twice, delay) = (rng.below(200), rng.below(100), rng.below(600));
        let dead = rng.chance(1, 2).then(|| rng.below(8));
        Box::new(move |on_link| {
            if dead == Some(u64::from(on_link.path)) && on_link.rdma.is_some() {
                return Fate::Drop;
            }
            match rng.below(1000) {
                draw if draw < drop => Fate::Drop,
                draw if draw < drop + twice => Fate::Twice,
                draw if draw < drop + twice + delay => {
                    Fate::Delay(Duration::from_nanos(rng.below(50_000)))
                }
                _ => Fate::Pass,
            }
        })
    }

    /// Posts a random request from one side of a pair to the other, and tells the model.
    fn post(&mut self, pair: usize, from: usize) {
        let Self { network, sides, rng, .. } = self;
        let [first, second] = &mut sides[pair];
        let (me, peer) = if from == 0 { (first, second) } else { (second, first) };
        if me.posted.len() as u64 >= SLOTS {
            return;
        }
        let wr_id = me.next;
        me.next += 1;
        let len = u32::try_from(rng.below(SLOT)).unwrap();
        let source = SOURCE + rng.below(QUARTER - SLOT);
        let target = rng.below(QUARTER - SLOT);
        let slot = RESULT + wr_id % SLOTS * SLOT;
        let data = bytes_at(network, &me.end, source, len);
        let at = usize::try_from(target).unwrap();
        let word = target & !7;
        let word_at = usize::try_from(word).unwrap();
        let remote = peer.end.remote(target);
        let mut result = None;
        let fence = core::mem::take(&mut me.fence) || rng.chance(1, 10);
        let mut sges = cut(&me.end, source, len, rng);
        let operation = match rng.below(7) {
            0 | 1 => {
                peer.written[at..at + data.len()].copy_from_slice(&data);
                Operation::Write(remote)
            }
            2 => {
                peer.written[at..at + data.len()].copy_from_slice(&data);
                peer.sent_to.push_back(Vec::new());
                Operation::WriteWithImmediate(remote, len)
            }
            3 => {
                peer.sent_to.push_back(data);
                Operation::SendWithImmediate(len)
            }
            4 => {
                // The answer is what was written before; what comes next waits for it.
                me.fence = true;
                sges = cut(&me.end, slot, len, rng);
                result = Some(peer.written[at..at + len as usize].to_vec());
                Operation::Read(remote)
            }
            choice => {
                me.fence = true;
                sges = cut(&me.end, slot, 8, rng);
                let remote = peer.end.remote(word);
                let place = &mut peer.written[word_at..word_at + 8];
                let before = u64::from_ne_bytes((&*place).try_into().unwrap());
                result = Some(place.to_vec());
                if choice == 5 {
                    let add = rng.next_u64();
                    place.copy_from_slice(&before.wrapping_add(add).to_ne_bytes());
                    Operation::FetchAdd { remote, add }
                } else {
                    let compare = if rng.chance(1, 2) { before } else { !before };
                    let swap = rng.next_u64();
                    if compare == before {
                        place.copy_from_slice(&swap.to_ne_bytes());
                    }
                    Operation::CompareSwap { remote, compare, swap }
                }
            }
        };
        me.posted.push_back(Posted { wr_id, result });
        let end = me.end;
        let request =
            SendRequest { fence, ..SendRequest::new(wr_id, operation, Data::Gather(&sges)) };
        network.post(&end, &request);
    }

    fn post_receive(&mut self, pair: usize, side: usize) {
        let Self { network, sides, rng, .. } = self;
        let side = &mut sides[pair][side];
        if side.receives < SLOTS {
            let (number, slot) = (side.next_receive, side.next_receive % SLOTS * SLOT);
            (side.receives, side.next_receive) = (side.receives + 1, number + 1);
            let sges = cut(&side.end, RECEIVE + slot, u32::try_from(SLOT).unwrap(), rng);
            network.post_receive(&side.end, number, &sges);
        }
    }

    /// Holds every completion against the model.
    fn check_completions(&mut self) {
        let Self { network, sides, seed, .. } = self;
        for side in sides.iter_mut().flatten() {
            while let Some(completion) = network.poll(&side.end) {
                assert_eq!(completion.status, Status::Success, "seed {seed}: {completion:?}");
                match completion.kind {
                    WorkKind::Receive | WorkKind::ReceiveWriteWithImmediate => {
                        check_receive(network, side, &completion, *seed);
                    }
                    _ => check_send(network, side, &completion, *seed),
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.sides.iter().flatten().all(|side| side.posted.is_empty() && side.sent_to.is_empty())
    }

    /// Lets everything end, and holds memory against the model.
    fn finish(&mut self) {
        self.network.rule = Box::new(|_| Fate::Pass);
        for _ in 0..2000 {
            for (pair, side) in (0..self.sides.len()).flat_map(|pair| [(pair, 0), (pair, 1)]) {
                self.post_receive(pair, side);
            }
            self.network.run_for(Duration::from_micros(500));
            self.check_completions();
            if self.is_done() {
                break;
            }
        }
        assert!(self.is_done(), "seed {}: not everything was completed", self.seed);
        self.check_memory("at the end");
    }

    fn check_memory(&mut self, when: &str) {
        let Self { network, sides, seed, .. } = self;
        for side in sides.iter().flatten() {
            let got = bytes_at(network, &side.end, 0, u32::try_from(QUARTER).unwrap());
            let wrong = got.iter().zip(&side.written).position(|(got, expected)| got != expected);
            let place = wrong.map(|at| format!("{:?} at byte {at}", side.end));
            assert_eq!(place, None, "seed {seed}: wrong memory {when}");
        }
        for host in &network.hosts {
            assert!(host.memory.held.is_empty(), "seed {seed}: payload is still held");
        }
    }

    /// Each pair's first end asks for what it may not have: it is told so, and nothing is written.
    fn trespass(&mut self) {
        let Self { network, sides, rng, seed } = self;
        for [me, peer] in sides.iter_mut() {
            let right = peer.end.remote(0);
            let other =
                network.hosts[peer.end.host].device.allocate_domain(peer.end.context).unwrap();
            let region = RegionRequest {
                owner: peer.end.owner,
                address: 0,
                length: LENGTH,
                iova: BASE,
                access: super::network::every_right(),
            };
            let device = &mut network.hosts[peer.end.host].device;
            let foreign = device.register(other, &region).unwrap();
            let narrow =
                device.register(peer.end.domain, &RegionRequest { access: Access::NONE, ..region });
            let remote = match rng.below(4) {
                0 => Remote { rkey: right.rkey ^ 0x80, ..right },
                1 => Remote { address: BASE + LENGTH - rng.below(8), ..right },
                2 => Remote { rkey: foreign, ..right },
                _ => Remote { rkey: narrow.unwrap(), ..right },
            };
            let (operation, len) = match rng.below(3) {
                0 => (Operation::Write(remote), 1000),
                1 => (Operation::Read(remote), 1000),
                _ => (
                    Operation::FetchAdd {
                        remote: Remote { address: remote.address & !7, ..remote },
                        add: 1,
                    },
                    8,
                ),
            };
            let inside =
                matches!(operation, Operation::FetchAdd { .. }) && remote.rkey == right.rkey;
            let remote_end = BASE + LENGTH;
            let operation = if inside {
                Operation::FetchAdd { remote: Remote { address: remote_end, ..remote }, add: 1 }
            } else {
                operation
            };
            let sges = [me.end.sge(SOURCE, len)];
            network.post(&me.end, &SendRequest::new(9, operation, Data::Gather(&sges)));
            let outcome = network.outcomes(&me.end, 1);
            assert_eq!(outcome, [(9, Status::RemoteAccess)], "seed {seed}: {operation:?}");
        }
        self.check_memory("after trespassing");
    }
}

fn check_send(network: &mut Network, side: &mut Side, completion: &Completion, seed: u64) {
    let posted = side.posted.pop_front().expect("it was posted");
    assert_eq!(completion.wr_id, posted.wr_id, "seed {seed}: in order");
    if let Some(expected) = posted.result {
        let len = u32::try_from(expected.len()).unwrap();
        let got = bytes_at(network, &side.end, RESULT + posted.wr_id % SLOTS * SLOT, len);
        assert!(got == expected, "seed {seed}: {completion:?} brought wrong bytes");
    }
}

fn check_receive(network: &mut Network, side: &mut Side, completion: &Completion, seed: u64) {
    let expected = side.sent_to.pop_front().expect("it was sent");
    assert_eq!(completion.wr_id, side.next_receive - side.receives, "seed {seed}: in order");
    side.receives -= 1;
    if completion.kind == WorkKind::Receive {
        let len = u32::try_from(expected.len()).unwrap();
        assert_eq!(completion.extra, Some(Extra::Immediate(len)), "seed {seed}");
        let slot = completion.wr_id % SLOTS * SLOT;
        let got = bytes_at(network, &side.end, RECEIVE + slot, completion.length);
        assert!(got == expected, "seed {seed}: {completion:?} brought wrong bytes");
    }
}

fn one_run(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..300 {
        let (pair, side) = (run.rng.index(run.sides.len()), run.rng.index(2));
        match run.rng.below(12) {
            0..6 => run.post(pair, side),
            6..9 => run.post_receive(pair, side),
            9 => run.network.rule = run.faults(),
            _ => {
                let span = Duration::from_nanos(run.rng.below(200_000));
                run.network.run_for(span);
                run.check_completions();
            }
        }
    }
    run.finish();
    run.trespass();
}

#[test]
fn random_work_on_bad_paths_is_done_once_in_order_and_byte_for_byte() {
    (0..200).for_each(one_run);
}
