//! Counts the instructions of a round trip outside of the device's library, which no other load of the machine changes.
//!
//! Both ends play in one thread under valgrind, so neither waits for the other. Some of the instructions follow the clock,
//! which is fast for a program that valgrind slows down: timers expire and sockets are polled at most round trips.

use std::error::Error;
use std::path::Path;

use crate::end::Mode;
use crate::library::{LIBRARY, program};

/// Number of round trips of a run: the set-up of the channel is not counted, but the first ones allocate.
const ROUND_TRIPS: u64 = 2000;

/// Prints the instructions of a message: half of a round trip.
pub(crate) fn measure(sizes: &[u32]) {
    println!("\ninstructions of a message at both ends, without the device's library");
    for &size in sizes {
        for mode in Mode::ALL {
            match count(mode, size) {
                Ok(count) => println!("{size:>8} bytes, {:<10} {count:>6}", mode.name()),
                Err(error) => println!("{size:>8} bytes, {:<10} failed: {error}", mode.name()),
            }
        }
    }
}

fn count(mode: Mode, size: u32) -> Result<u64, Box<dyn Error>> {
    let this = std::env::current_exe()?.display().to_string();
    let out = LIBRARY.join("callgrind.out");
    let option = format!("--callgrind-out-file={}", out.display());
    let (size, trips) = (size.to_string(), ROUND_TRIPS.to_string());
    let valgrind = ["valgrind", "--tool=callgrind", "--toggle-collect=*end::round_trip*", &option];
    let end = [this.as_str(), "end", "alone", mode.name(), &size, &trips];
    let output = program(&[&valgrind[..], &end].concat()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let profile = std::fs::read_to_string(&out)?;
    Ok(own_instructions(&profile, Path::new(&this)) / (2 * ROUND_TRIPS))
}

/// Returns the sum of the costs of a program in a profile of callgrind, without those of its libraries. The format is
/// valgrind's, manual page "Callgrind Format Specification".
fn own_instructions(profile: &str, program: &Path) -> u64 {
    let program = program.to_str().expect("a path of ours");
    // An object's name follows its number in parentheses where it is first mentioned: `ob=(2) /path`, later `ob=(2)`.
    let named = |line: &str| {
        let (number, name) = line.split_once(')')?;
        (name.trim() == program).then(|| number.to_owned())
    };
    let mentions = profile
        .lines()
        .filter_map(|line| line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")));
    let Some(ours) = mentions.filter_map(named).next() else { return 0 };
    let (mut sum, mut is_ours, mut is_call) = (0, false, false);
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_ours = object.split(')').next() == Some(&ours);
        } else if line.starts_with("calls=") {
            // The next line has the cost of the called function, which is counted there.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if is_ours && !is_call {
                sum += cost.unwrap_or(0);
            }
            is_call = false;
        }
    }
    sum
}
