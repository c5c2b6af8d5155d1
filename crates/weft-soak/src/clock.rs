//! The wall clocks of daemons, which jump.

use std::fs;
use std::path::Path;

/// Returns the library by which a daemon's wall clock jumps, of Debian's package `libfaketime`. A time namespace moves the monotonic
/// clock, which does not jump on real machines; this one moves the wall clock alone.
pub(crate) fn library() -> String {
    format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH)
}

/// Removes what the library leaves in `/dev/shm` when its process is killed.
pub(crate) fn remove_leftovers(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        // Programs without the library leave none.
        let _ = fs::remove_file(Path::new("/dev/shm").join(name));
    }
}
