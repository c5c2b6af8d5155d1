//! `weft demo` as a program of its own: `make run` builds it in a third of the time that all of `weft` takes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use weft_report::terminal::{Output, is_broken_pipe};

#[derive(Debug, Parser)]
#[command(name = "weft-demo", version)]
struct Arguments {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    demo: weft_demo::Args,
}

fn main() -> ExitCode {
    let Arguments { json, demo } = Arguments::parse();
    let output = Output::new(json);
    match weft_demo::run(demo, output) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::FAILURE
        }
    }
}
