//! The pause between two looks at a condition.

use std::time::Duration;

/// Sleeps for a millisecond. A test that waits for another program calls it between two looks at its condition: a loop
/// without a pause takes a processor from that program, and from the build beside the tests.
#[expect(clippy::disallowed_methods, reason = "no engine runs here")]
pub fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}
