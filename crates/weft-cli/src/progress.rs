//! Progress bars: on standard error, and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The length of the bar of one run.
pub(crate) const STEPS: u64 = weft_sim::hooks::STEPS;

fn new(length: u64, quiet: bool) -> ProgressBar {
    if quiet { ProgressBar::hidden() } else { ProgressBar::new(length) }
}

/// Returns a bar of [`STEPS`] of a run; its message says more.
pub(crate) fn share(what: &str, quiet: bool) -> ProgressBar {
    let template = format!("{} {{bar:30}} {{percent}} %  {{msg}}", what.replace(['{', '}'], ""));
    let style = ProgressStyle::with_template(&template).expect("a template without other braces");
    new(STEPS, quiet).with_style(style)
}

/// Returns a bar of this number of runs, each of [`STEPS`]; its message is to say how many are done.
pub(crate) fn runs(count: usize, what: &str, quiet: bool) -> ProgressBar {
    let template = format!("{what} {{bar:30}} {{percent}} %  {{msg}} ({{eta}} left)");
    let style = ProgressStyle::with_template(&template).expect("a template without other braces");
    let bar = new(count as u64 * STEPS, quiet).with_style(style);
    bar.set_message(format!("0 of {count} runs"));
    bar
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
