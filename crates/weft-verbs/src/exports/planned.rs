//! Weft's own functions for a program that sends from planned source ports, and changes them while it runs.

use core::ffi::{c_char, c_int};
use core::slice;

use crate::engine::Engine;
use crate::errno::{EINVAL, number};

/// Returns the UDP port at which this process's device receives; 0 if it has none of its own.
#[unsafe(no_mangle)]
extern "C" fn weft_receive_port() -> u16 {
    Engine::current().map_or(0, |engine| engine.receive_port())
}

/// Replaces the table of planned source ports (`WEFT_PORTS`) by a CSV of `length` bytes. Returns 0, or the error:
/// `EINVAL` for no port table, `EADDRINUSE` for a port that another program has, `EOPNOTSUPP` for a daemon's device.
///
/// # Safety
/// `table` has `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn weft_plan_ports(table: *const c_char, length: usize) -> c_int {
    number(|| {
        if table.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: guaranteed by the caller.
        let table = unsafe { slice::from_raw_parts(table.cast::<u8>(), length) };
        let table = core::str::from_utf8(table).map_err(|_| EINVAL)?;
        Engine::current()?.plan_ports(table)
    })
}
