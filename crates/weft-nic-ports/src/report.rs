//! Messages on standard error: the program does not know this library and cannot ask it.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Prints a message, unless it was printed before.
pub(crate) fn once(message: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(message.to_owned()) {
        // Where standard error is closed, `eprintln!` would panic, in a program that did not call this library.
        let _ = writeln!(std::io::stderr(), "weft: {message}");
    }
}
