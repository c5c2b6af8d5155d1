//! The time a daemon takes to make a device and to end it, with requests over its socket one after the other; compare
//! with `cargo bench -p weft-rnic --bench pvdma`. Then the same for devices of guests: each with a relay, the guest's
//! memory and four ports, but without QEMU.
#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_units::ByteCount;
use weft_verbs::{Admin, Amounts, Daemon, DaemonSettings, GuestDevice};

/// Number of guests' devices.
const GUESTS: u32 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("weft-bench-{}.sock", std::process::id()));
    let daemon = Daemon::open(&path, DaemonSettings::default())?;
    let stopper = daemon.stopper();
    let running = std::thread::spawn(|| daemon.run(|| ()));
    println!("{:>8} {:>14} {:>14}", "devices", "us to make", "us to end");
    for count in [1_000, 64_000] {
        let mut admin = Admin::connect(Some(&path))?;
        let make = timed(count, |name| admin.create(name, None, Amounts::default()))?;
        let end = timed(count, |name| admin.delete(name, false))?;
        println!("{count:>8} {:>14.1} {:>14.1}", micros(make, count), micros(end, count));
    }
    measure_guests(&path)?;
    stopper.stop();
    running.join().map_err(|_| "the daemon panicked")??;
    Ok(())
}

/// Measures guests' devices of the daemon at `path`.
fn measure_guests(path: &Path) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("weft-bench-guests-{}", std::process::id()));
    let (mut admin, mut guests) = (Admin::connect(Some(path))?, Vec::new());
    let make = timed(GUESTS, |name| -> Result<(), Box<dyn Error>> {
        admin.create(name, None, Amounts::default())?;
        guests.push(GuestDevice::start(name, ByteCount(1 << 30), 4, &folder, Some(path))?);
        Ok(())
    })?;
    let end = timed(GUESTS, |name| {
        drop(guests.pop());
        admin.delete(name, false)
    })?;
    std::fs::remove_dir(&folder)?;
    println!("{:>8} {:>14} {:>14}", "guests", "us to make", "us to end");
    println!("{GUESTS:>8} {:>14.1} {:>14.1}", micros(make, GUESTS), micros(end, GUESTS));
    Ok(())
}

/// Returns the time that `act` takes for this number of names.
fn timed<E>(count: u32, mut act: impl FnMut(&str) -> Result<(), E>) -> Result<Duration, E> {
    let names: Vec<String> = (0..count).map(|number| format!("d{number}")).collect();
    let begun = Instant::now();
    names.iter().try_for_each(|name| act(name))?;
    Ok(begun.elapsed())
}

fn micros(took: Duration, count: u32) -> f64 {
    took.as_secs_f64() * 1e6 / f64::from(count)
}
