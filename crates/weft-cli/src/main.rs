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
mod overrides;
#[cfg(test)]
mod pages;
mod progress;
mod stat;
mod testbed;
mod transport_options;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cmd::Arguments::parse();
    match arguments.run() {
        Ok(code) => code,
        Err(error) if weft_report::terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            weft_report::terminal::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
