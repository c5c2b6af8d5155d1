//! Progress bars: on standard error, and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

fn new(length: u64, quiet: bool) -> ProgressBar {
    if quiet { ProgressBar::hidden() } else { ProgressBar::new(length) }
}

/// Returns a bar of the share of a run, in thousandths; its message says more.
pub(crate) fn share(what: &str, quiet: bool) -> ProgressBar {
    let template = format!("{} {{bar:30}} {{percent}} %  {{msg}}", what.replace(['{', '}'], ""));
    let style = ProgressStyle::with_template(&template).expect("a template without other braces");
    new(1000, quiet).with_style(style)
}

/// Returns a bar that counts to `length`.
pub(crate) fn counting(length: usize, what: &str) -> ProgressBar {
    counting_unless(false, length, what)
}

/// Like [`counting`]; nothing is shown if `quiet`.
pub(crate) fn counting_unless(quiet: bool, length: usize, what: &str) -> ProgressBar {
    let template = "{msg} {bar:30} {pos} of {len} ({eta} left)";
    let style = ProgressStyle::with_template(template).expect("a constant template");
    let bar = new(length as u64, quiet).with_style(style).with_message(what.to_owned());
    bar.tick();
    bar
}
