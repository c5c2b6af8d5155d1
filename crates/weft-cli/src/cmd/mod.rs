//! The subcommands: each has a file and a row in the table.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use serde_json::json;

use weft_demo as demo;
use weft_report::terminal::{Output, StdoutError};

mod adm;
mod capture;
mod coll;
mod completions;
pub(crate) mod device;
mod doctor;
mod experiment;
mod fleet;
mod key;
mod lab;
mod list;
mod man;
mod monitor;
mod perf;
mod ping;
mod plan;
pub(crate) mod route;
mod run;
mod schema;
mod sim;
mod stat;
mod top;
pub(crate) mod vpc;

/// The text at the end of every command's `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed (the reason is on standard error, with --json as an object with the key `error`), 2 wrong \
usage. `weft lab exec` \
and `weft run` give their command's.

Colours follow NO_COLOR; progress bars appear on a terminal only.";

const EXAMPLES: &str = "\
Examples:
  sudo weft demo                             the use of several paths, in half a minute
  weft doctor                                what this machine can do, and what to install
  sudo weft lab up --spines 4                a leaf–spine fabric of network namespaces
  sudo weft lab set l0-s1 --loss 1%          one of its four paths loses packets
  weft run -- ib_write_bw                    an RDMA program as it is, without RDMA hardware
  sudo weft vpc try --loss 1%                tenants' own TCP over paths that lose packets, and none sees it
  weft stat                                  the channels of running programs
  weft top                                   paths, pairs, queues and moves, live
  weft experiment run stellar-fig12          a paper's figure, its value beside ours
  weft sim run mine.toml --html out/mine.html
  weft coll perf --ranks 4                   collectives, measured as nccl-tests does
  weft plan ports plans/astral.toml          source ports whose flows share no links
  weft list policies                         how a connection can choose its paths
";

/// Carries messages over every path of an Ethernet fabric at once, and simulates the fabric with the
/// same engine.
#[derive(Debug, Parser)]
#[command(name = "weft", version, arg_required_else_help = true)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Arguments {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Runs the command.
    ///
    /// # Errors
    /// Returns the reason of the failure, and its fix.
    pub(crate) fn run(self) -> Result<ExitCode> {
        self.command.run(Output::new(self.json))
    }
}

/// Returns `true` if a command line asks for JSON. The words after `--` are another program's.
pub(crate) fn asks_for_json(mut words: impl Iterator<Item = OsString>) -> bool {
    words.by_ref().take_while(|word| word != "--").any(|word| word == "--json")
}

/// Prints the help or the version that was asked for, or how a command line is wrong: as text, or as one JSON object on
/// standard error if the output is JSON.
///
/// # Errors
/// Returns an error if standard output cannot be written to.
pub(crate) fn print_usage(usage: &clap::Error, output: Output) -> Result<ExitCode> {
    let code = u8::try_from(usage.exit_code()).expect("0 or 2");
    if !usage.use_stderr() {
        usage.print().and_then(|()| io::stdout().flush()).map_err(StdoutError)?;
    } else if output.is_json() {
        let text = usage.render().to_string();
        let (error, usage) = text.trim().split_once("\n\n").unwrap_or_else(|| (text.trim(), ""));
        eprintln!("{}", json!({ "error": error.trim_start_matches("error: "), "usage": usage }));
    } else {
        // If standard error is closed, the exit code still tells.
        let _ = usage.print();
    }
    Ok(ExitCode::from(code))
}

/// Declares every command once: its module, whose `Args` describe and parse it, and whose
/// `run` executes it.
macro_rules! commands {
    ($($command:ident => $module:ident;)+) => {
        #[derive(Debug, Subcommand)]
        enum Command { $($command($module::Args)),+ }

        impl Command {
            fn run(self, output: Output) -> Result<ExitCode> {
                match self { $(Self::$command(arguments) => $module::run(arguments, output)),+ }
            }
        }
    };
}

commands! {
    Demo => demo;
    List => list;
    Lab => lab;
    Perf => perf;
    Ping => ping;
    Plan => plan;
    Coll => coll;
    Route => route;
    Capture => capture;
    Key => key;
    Run => run;
    Device => device;
    Vpc => vpc;
    Fleet => fleet;
    Stat => stat;
    Top => top;
    Adm => adm;
    Monitor => monitor;
    Sim => sim;
    Experiment => experiment;
    Doctor => doctor;
    Schema => schema;
    Completions => completions;
    Man => man;
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_parser_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_description_and_an_example() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no description", command.get_name());
            let leaf = !command.has_subcommands();
            if leaf {
                let examples = command.get_after_help().map(ToString::to_string);
                let example = examples
                    .is_some_and(|text| text.contains("  weft ") || text.contains("sudo weft "));
                assert!(example, "{} has no example", command.get_name());
            }
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{argument} has no description");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }
}
