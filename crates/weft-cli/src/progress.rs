//! Progress bars: on standard error, and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar that counts to `length`.
pub(crate) fn counting(length: usize, what: &str) -> ProgressBar {
    let template = "{msg} {bar:30} {pos} of {len} ({eta} left)";
    let style = ProgressStyle::with_template(template).expect("a constant template");
    let bar = ProgressBar::new(length as u64).with_style(style).with_message(what.to_owned());
    bar.tick();
    bar
}
