//! A lossy network between two ports, driven as by a daemon while their tenants run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as Real;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_ports::Port;
use weft_units::Instant;

use super::wire::{Impairments, Wire};

/// Runs `tenants` on its own thread while frames are carried in both directions.
pub(crate) fn with_network<T: Send>(
    ports: [&mut dyn Port; 2],
    impairments: Impairments,
    tenants: impl FnOnce() -> T + Send,
) -> (T, [Wire; 2]) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tenants = scope.spawn(|| {
            let _done = Signal(&done);
            tenants()
        });
        let wires = forward(ports, impairments, &done);
        match tenants.join() {
            Ok(result) => (result, wires),
            Err(cause) => std::panic::resume_unwind(cause),
        }
    })
}

/// A flag that is set when this is dropped, also by a panic.
pub(crate) struct Signal<'a>(pub(crate) &'a AtomicBool);

impl Drop for Signal<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves frames in both directions until the stop flag is set, with a daemon's waits.
pub(crate) fn forward(
    [a, b]: [&mut dyn Port; 2],
    impairments: Impairments,
    done: &AtomicBool,
) -> [Wire; 2] {
    let started = Real::now();
    let mut wires = [Wire::new(impairments, 1), Wire::new(impairments, 2)];
    while !done.load(Ordering::Relaxed) {
        let now = Instant::from_nanos(u64::try_from(started.elapsed().as_nanos()).unwrap());
        for (port, wire) in [&mut *a, &mut *b].into_iter().zip(&mut wires) {
            if let Err(error) = port.service(now) {
                wire.reports.push(error.to_string());
            }
        }
        let moved = wires[0].turn(a, b, now) | wires[1].turn(b, a, now);
        if !moved {
            let mut fds = [&*a, &*b].map(|port| PollFd::from_borrowed_fd(port.fd(), PollFlags::IN));
            let a_moment = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = poll(&mut fds, Some(&a_moment));
        }
    }
    wires
}

/// Returns bytes that differ at each position.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut rng = weft_units::Seed(7).child("noise", 0).rng();
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}
