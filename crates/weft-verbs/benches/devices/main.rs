//! 64,000 devices of one daemon, made by one request, and a random thousand of them at work: reliable WRITEs and SENDs between
//! pairs, with a hostile device among them. The same thousand of a daemon that has no others is beside it. An argument is the
//! number of rounds. The clients are one process with a thousand attachments; it needs some 8,000 descriptors (`ulimit -Hn`).
#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weft_verbs::{DeviceLimits, Names};

mod daemon;
mod traffic;

use daemon::{Memory, Process};
use traffic::End;

/// Number of devices, of which some are at work.
const DEVICES: u32 = 64_000;
const AT_WORK: u32 = 1_000;

/// The time of one exchange.
const TIME: Duration = Duration::from_secs(5);

/// Number of single WRITEs of which the latency is measured.
const WRITES: usize = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let first = arguments.next();
    if first.as_deref() == Some(daemon::SERVE) {
        return daemon::serve(Path::new(&arguments.next().ok_or("no socket")?));
    }
    let rounds = first.map_or(Ok(3), |rounds| rounds.parse())?;
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?;
    measure_creation()?;
    let mut rows = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (rows, others) in rows.iter_mut().zip([0, DEVICES - AT_WORK]) {
            rows.push(measure_work(others, round == 0)?);
        }
    }
    println!("\n{AT_WORK} devices at work, medians of {rounds} rounds");
    let headings = ["devices", "messages/s", "p50 us", "p99 us"];
    println!("{:>8} {:>12} {:>8} {:>8}", headings[0], headings[1], headings[2], headings[3]);
    for (rows, devices) in rows.iter().zip([AT_WORK, DEVICES]) {
        let median = |of: fn(&Row) -> f64| {
            let mut values: Vec<f64> = rows.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let [rate, p50, p99] =
            [median(|row| row.rate), median(|row| row.p50), median(|row| row.p99)];
        println!("{devices:>8} {rate:>12.0} {p50:>8.1} {p99:>8.1}");
    }
    Ok(())
}

/// Returns the names of the devices that are at work.
fn names() -> Vec<String> {
    traffic::drawn(AT_WORK, DEVICES).into_iter().map(|number| format!("vm-{number}")).collect()
}

fn limits() -> DeviceLimits {
    DeviceLimits {
        memory: Some(1 << 30),
        messages_per_second: Some(1 << 20),
        ..DeviceLimits::default()
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Measures the time and the memory of all devices, and of a daemon that finds them.
fn measure_creation() -> Result<(), Box<dyn Error>> {
    let (process, _) = Process::start()?;
    let (before, begun) = (process.memory()?, Instant::now());
    let mut admin = process.admin()?;
    let all = Names::numbered("vm", 0, DEVICES);
    admin.create(all.clone(), None, limits())?;
    let made = millis(begun);
    let grown = process.memory()?.own - before.own;
    println!(
        "{DEVICES} devices by one request: {made:.1} ms, {} bytes each",
        grown / u64::from(DEVICES)
    );
    println!("file of the devices: {} bytes", process.state_bytes());
    let begun = Instant::now();
    assert_eq!(admin.list()?.len(), DEVICES as usize);
    println!("list: {:.1} ms", millis(begun));
    let refused = admin.create(Names::numbered("vm", DEVICES - 1, DEVICES), None, limits());
    assert!(refused.is_err() && admin.totals()?.devices == DEVICES, "all or none");
    drop(admin);
    process.kill()?;
    let (process, started) = Process::start()?;
    println!("start of a daemon that finds them: {:.1} ms", started.as_secs_f64() * 1e3);
    let (mut admin, begun) = (process.admin()?, Instant::now());
    admin.delete(all, false)?;
    println!("deletion by one request: {:.1} ms", millis(begun));
    let begun = Instant::now();
    for number in 0..AT_WORK {
        admin.create(&format!("one-{number}"), None, limits())?;
    }
    let each = millis(begun) * 1e3 / f64::from(AT_WORK);
    println!("a device by a request of its own: {each:.1} us");
    process.end()
}

/// The results of one round.
struct Row {
    rate: f64,
    p50: f64,
    p99: f64,
}

/// Measures a thousand devices at work on a daemon with this number of others.
fn measure_work(others: u32, prints: bool) -> Result<Row, Box<dyn Error>> {
    let (process, _) = Process::start()?;
    let (mut admin, names) = (process.admin()?, names());
    if others > 0 {
        admin.create(Names::numbered("vm", 0, others + AT_WORK), None, limits())?;
    } else {
        names.iter().try_for_each(|name| admin.create(name, None, limits()))?;
    }
    for name in ["hostile-0", "hostile-1"] {
        admin.create(name, None, limits())?;
    }
    let before = process.memory()?;
    let (mut pairs, [attached, connected]) = traffic::attach(&process.socket, &names)?;
    let idle = process.memory()?;
    let [p50, p99] = traffic::latency(&mut pairs[0], WRITES)?;
    let rate = traffic::exchange(&mut pairs, TIME)?;
    let worked = process.memory()?;
    let attempts = traffic::attack(&process.socket, ["hostile-0", "hostile-1"], &mut pairs)?;
    let posted = check_counters(&process, &pairs)?;
    if prints {
        println!("\na thousand devices at work among {} others", others);
        let micros = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(AT_WORK);
        println!("attach, with a context, domain, CQ, region, QP: {:.1} us each", micros(attached));
        println!("connect: {:.1} us each", micros(connected));
        let each = |of: fn(&Memory) -> u64, memory: &Memory| {
            (of(memory).saturating_sub(of(&before))) / u64::from(AT_WORK)
        };
        for (state, memory) in [("attached and connected", &idle), ("after traffic", &worked)] {
            let [own, shared] = [each(|it| it.own, memory), each(|it| it.shared, memory)];
            println!("memory of a device {state}: {own} bytes of the daemon's, {shared} of rings");
        }
        println!("requests: {posted}, none failed");
        println!("a hostile device: {attempts} attempts, all refused");
    }
    let begun = Instant::now();
    drop(pairs);
    while admin.totals()?.attached > 0 {}
    if prints {
        println!("end: {:.1} us each", millis(begun) * 1e3 / f64::from(AT_WORK));
    }
    process.end()?;
    Ok(Row { rate, p50, p99 })
}

/// Checks that each device counted its own requests, none of which failed. Returns their sum.
fn check_counters(process: &Process, pairs: &[[End; 2]]) -> Result<u64, Box<dyn Error>> {
    let (mut admin, mut posted) = (process.admin()?, 0);
    for end in pairs.iter().flatten() {
        let state = admin.show(&end.name)?;
        let counted = state.counters.requests_posted;
        if counted != end.requests()
            || state.used.queue_pairs != 1
            || state.counters.requests_failed > 0
        {
            return Err(format!("{}: {counted} of {}, {state:?}", end.name, end.requests()).into());
        }
        posted += counted;
    }
    Ok(posted)
}
