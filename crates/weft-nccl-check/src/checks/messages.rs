//! Messages: sizes, order, windows, several comms.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_units::Seed;

use super::Outcome;
use crate::clock::now;
use crate::rank::Rank;
use crate::transfer::{Message, Plan, Side, one_way, run_all};

/// Sizes around those of words, lines, packets and pages, bytes.
const SIZES: [usize; 22] = [
    0, 1, 7, 8, 9, 16, 127, 128, 129, 1_000, 1_023, 1_024, 1_472, 1_500, 4_095, 4_096, 4_097,
    8_192, 32_768, 65_535, 65_536, 131_072,
];

/// Maximum size of a window of more than one message, bytes. Versions 6 and 7 register less than 2 GiB at a time.
const MAX_WINDOW: usize = 64 << 20;

pub(super) fn sizes(rank: &mut Rank<'_>) -> Outcome {
    let small: Vec<Message> = SIZES
        .into_iter()
        .flat_map(|size| [Message { size, room: size }, Message { size, room: size * 2 + 64 }])
        .collect();
    let mut plans = vec![Plan::new([small.clone(), small.clone(), small].concat())];
    let largest = usize::try_from(rank.args.max_size.0).map_err(|_| "--max-size is too large")?;
    let mut size = 524_288;
    while size <= largest {
        let window = (MAX_WINDOW / size).clamp(1, 32);
        let messages = vec![Message { size, room: size }; window.max(2)];
        plans.push(Plan { window, ..Plan::new(messages) });
        size *= 2;
    }
    let pair = rank.open()?;
    let (mut messages, mut bytes) = (0, 0);
    for plan in &plans {
        one_way(rank, pair, plan)?;
        (messages, bytes) = (messages + plan.messages.len(), bytes + plan.bytes());
    }
    rank.meet()?;
    rank.close(pair)?;
    Ok(format!("{messages} messages, {} MiB, up to {}", bytes >> 20, rank.args.max_size))
}

pub(super) fn early(rank: &mut Rank<'_>) -> Outcome {
    let plan = Plan::new(
        (0..200)
            .map(|number| number * 37 % 9_000)
            .map(|size| Message { size, room: size })
            .collect(),
    );
    let pair = rank.open()?;
    let comm = if rank.number == 0 { pair.send } else { pair.receive };
    let mut side = Side::new(rank, comm, &plan, rank.number == 0)?;
    if rank.number == 0 {
        // The receiver posts nothing until it gets the message below.
        for _ in 0..2_000 {
            side.advance()?;
        }
        rank.exchange.send(b"now");
    } else {
        rank.exchange.receive()?;
    }
    let mut sides = [side];
    run_all(rank, &mut sides)?;
    let [side] = sides;
    let refused = side.refused;
    side.finish()?;
    rank.meet()?;
    rank.close(pair)?;
    Ok(format!("{} messages, {refused} calls returned NULL", plan.messages.len()))
}

pub(super) fn register(rank: &mut Rank<'_>) -> Outcome {
    let plan = Plan::new(vec![Message { size: 20_000, room: 20_000 }; 400]);
    let pair = rank.open()?;
    let net = rank.net()?;
    let comm = if rank.number == 0 { pair.send } else { pair.receive };
    let (ended, memory) = (AtomicBool::new(false), rank.buffer(1 << 20));
    let registered = std::thread::scope(|scope| {
        // NCCL's service thread registers while its progress thread sends.
        let service = scope.spawn(|| {
            let memory = &memory;
            let mut count = 0_u32;
            while !ended.load(Ordering::Relaxed) && count < 1_000 {
                let size = 4_096 << (count % 8);
                let registration = net.register(comm, memory.at(0), size)?;
                net.deregister(comm, registration)?;
                count += 1;
            }
            Ok::<u32, String>(count)
        });
        let passed = one_way(rank, pair, &plan);
        ended.store(true, Ordering::Relaxed);
        let registered = service.join().map_err(|_| "the service thread panicked".to_owned())?;
        passed.and(registered)
    })?;
    rank.meet()?;
    rank.close(pair)?;
    Ok(format!("{registered} registrations beside {} messages", plan.messages.len()))
}

pub(super) fn comms(rank: &mut Rank<'_>) -> Outcome {
    const COMMS: usize = 8;
    let plans: Vec<[Plan; 2]> = (0..COMMS)
        .map(|comm| {
            [0, 1].map(|from| {
                let sizes = (0..100).map(|number| (number * 977 + comm * 131) % 30_000);
                let messages = sizes.map(|size| Message { size, room: size }).collect();
                Plan { base: ((comm * 2 + from) as u64) << 32, window: 8, ..Plan::new(messages) }
            })
        })
        .collect();
    let pairs = plans.iter().map(|_| rank.open()).collect::<Result<Vec<_>, _>>()?;
    let mut sides = Vec::new();
    for (pair, plans) in pairs.iter().zip(&plans) {
        sides.push(Side::new(rank, pair.send, &plans[rank.number], true)?);
        sides.push(Side::new(rank, pair.receive, &plans[1 - rank.number], false)?);
    }
    run_all(rank, &mut sides)?;
    sides.into_iter().try_for_each(Side::finish)?;
    rank.meet()?;
    pairs.into_iter().try_for_each(|pair| rank.close(pair))?;
    Ok(format!("{COMMS} comms each way, {} messages", COMMS * 200))
}

/// The seed of random sizes, which both ranks draw alike.
const SEED: u64 = 7;

pub(super) fn random(rank: &mut Rank<'_>) -> Outcome {
    let mut rng = Seed(SEED).rng();
    let mut draw = |limit: u64| usize::try_from(rng.below(limit)).expect("a small number");
    let mut total = 0;
    let pair = rank.open()?;
    for round in 0..8_u64 {
        let window = 1 + draw(32);
        let messages = (0..100)
            .map(|_| {
                let (limit, more) = (1 << draw(18), 1 << draw(12));
                let size = draw(limit);
                Message { size, room: size + draw(more) }
            })
            .collect();
        let plan = Plan { window, base: round << 32, ..Plan::new(messages) };
        one_way(rank, pair, &plan)?;
        total += plan.messages.len();
    }
    rank.meet()?;
    rank.close(pair)?;
    Ok(format!("{total} messages, seed {SEED}"))
}

pub(super) fn steady(rank: &mut Rank<'_>) -> Outcome {
    let pair = rank.open()?;
    let until = now() + Duration::from_secs(rank.args.seconds);
    let (mut rounds, mut longest, mut bytes) = (0_u64, Duration::ZERO, 0);
    loop {
        // Rank 0 decides, so that both do the same number of rounds.
        let goes_on = match rank.number {
            0 => {
                let goes_on = now() < until;
                rank.exchange.send(&[u8::from(goes_on)]);
                goes_on
            }
            _ => rank.exchange.receive()? == [1],
        };
        if !goes_on {
            break;
        }
        let plan = Plan {
            window: 8,
            base: rounds << 32,
            ..Plan::new(vec![Message { size: 65_536, room: 65_536 }; 64])
        };
        let began = now();
        one_way(rank, pair, &plan)?;
        longest = longest.max(began.elapsed());
        bytes += plan.bytes() as u64;
        rounds += 1;
    }
    rank.meet()?;
    rank.close(pair)?;
    Ok(format!("{} MiB; the longest 4 MiB took {} ms", bytes >> 20, longest.as_millis()))
}
