//! Checks and generators of this repository: `cargo xtask <command>`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod docs;
mod fuzz;
mod layers;
mod proofs;
mod verbs;
mod words;
mod xrdma;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the pages under docs/ that are generated from the code.
    Docs {
        /// Write nothing; fail when a page differs from what the code says.
        #[arg(long)]
        check: bool,
    },
    /// Fail when a crate depends on its own or a higher layer, or an engine lets std in.
    Layers,
    /// Fail when a name, a summary or a phrase does not keep to the word list.
    Words {
        /// Crates to check; without any, those that keep to the list.
        crates: Vec<String>,
    },
    /// Count the code of programs on messages and on bare verbs.
    Lines,
    /// Run fuzz targets, each from the golden inputs of its parser.
    Fuzz(fuzz::Args),
    /// Run the models and bounded proofs of the code that guards memory, and what of it Miri can run.
    Proofs(proofs::Args),
    /// Link libibverbs.so.1 and librdmacm.so.1, by default of a release and into target/release/verbs.
    Verbs(verbs::Args),
    /// Lay out libxrdma with its header, manual pages and pkg-config file, by default in target/release/xrdma.
    Xrdma(xrdma::Args),
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let outcome = match Args::parse().command {
        Command::Docs { check: false } => docs::write(&root),
        Command::Docs { check: true } => docs::check(&root),
        Command::Words { crates } => words::check(&root, &crates),
        Command::Layers => layers::check(&root),
        Command::Lines => {
            docs::lines();
            Ok(())
        }
        Command::Fuzz(args) => fuzz::run(&root, &args),
        Command::Proofs(args) => proofs::run(&root, &args),
        Command::Verbs(args) => verbs::link(&root, &args),
        Command::Xrdma(args) => xrdma::lay_out(&root, &args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
