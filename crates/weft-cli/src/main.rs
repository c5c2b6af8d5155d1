//! The `weft` command. It parses, calls the library that does the work, and prints.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a command lives in real time; the demo waits for its acts"
)]

mod cmd;
mod encryption_options;
mod files;
mod http;
mod interrupt;
mod libraries;
mod log;
mod messages;
mod monitor;
mod openmetrics;
mod otlp;
mod overrides;
#[cfg(test)]
mod pages;
mod progress;
mod stat;
mod supervision;
mod testbed;
mod top;
mod transport_options;

use std::process::ExitCode;

use clap::Parser;
use weft_report::terminal::{Output, is_broken_pipe};

fn main() -> ExitCode {
    let output = Output::new(cmd::asks_for_json(std::env::args_os()));
    let done = match cmd::Arguments::try_parse() {
        Ok(arguments) => arguments.run(),
        Err(usage) => cmd::print_usage(&usage, output),
    };
    match done {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::FAILURE
        }
    }
}
