//! The program `weft-cni`. A container runtime gives it a verb in its environment and a configuration on standard input;
//! its result, or its error, is a JSON object on standard output.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(verb) = std::env::var_os("CNI_COMMAND") else {
        // A person has started it.
        println!("{}", weft_cni::about());
        return ExitCode::SUCCESS;
    };
    let (text, code) = match weft_cni::serve(&verb, |name| std::env::var_os(name), io::stdin()) {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(text) => (text, ExitCode::FAILURE),
    };
    // A runtime that has closed its end has no use for the result.
    let written = io::stdout().write_all(text.as_bytes());
    written.map_or(ExitCode::FAILURE, |()| code)
}
