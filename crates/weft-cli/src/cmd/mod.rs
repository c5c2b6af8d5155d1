//! The subcommands: each has a file and a row in the table.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use weft_demo as demo;
use weft_report::terminal::Output;

mod adm;
mod capture;
mod coll;
mod completions;
mod device;
mod doctor;
mod experiment;
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
mod sim;
mod stat;
pub(crate) mod vpc;

/// The text at the end of every command's `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage. `weft lab exec` \
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
    Stat => stat;
    Adm => adm;
    Monitor => monitor;
    Sim => sim;
    Experiment => experiment;
    Doctor => doctor;
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
