//! The time a daemon takes to make a device and to end it, with requests over its socket one after the other; compare
//! with `cargo bench -p weft-rnic --bench pvdma`.
#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::error::Error;
use std::time::{Duration, Instant};

use weft_verbs::{Admin, Amounts, Daemon, DaemonSettings};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("weft-bench-{}.sock", std::process::id()));
    let daemon = Daemon::open(&path, DaemonSettings::default())?;
    let stopper = daemon.stopper();
    let running = std::thread::spawn(|| daemon.run());
    println!("{:>8} {:>14} {:>14}", "devices", "us to make", "us to end");
    for count in [1_000, 64_000] {
        let mut admin = Admin::connect(Some(&path))?;
        let names: Vec<String> = (0..count).map(|number| format!("d{number}")).collect();
        let make = timed(&names, |name| admin.create(name, None, Amounts::default()))?;
        let end = timed(&names, |name| admin.delete(name, false))?;
        println!("{count:>8} {:>14.1} {:>14.1}", micros(make, count), micros(end, count));
    }
    stopper.stop();
    running.join().map_err(|_| "the daemon panicked")??;
    Ok(())
}

/// Returns the time that `act` takes for all names.
fn timed<E>(names: &[String], act: impl FnMut(&String) -> Result<(), E>) -> Result<Duration, E> {
    let begun = Instant::now();
    names.iter().try_for_each(act)?;
    Ok(begun.elapsed())
}

fn micros(took: Duration, count: u32) -> f64 {
    took.as_secs_f64() * 1e6 / f64::from(count)
}
