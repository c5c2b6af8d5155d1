//! Checks and generators of this repository: `cargo xtask <command>`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod book;
mod circles;
mod docs;
mod fuzz;
mod layers;
mod nccl;
mod proofs;
mod test;
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
        /// Write nothing; fail if a page differs from the code.
        #[arg(long)]
        check: bool,
    },
    /// Check the pages of the book, and build it with mdBook in target/book.
    Book(book::Args),
    /// Fail if a crate depends on its own or a higher layer, or an engine uses std.
    Layers,
    /// Fail if files of a crate need each other and docs/design/circles.md gives no reason.
    Circles,
    /// Fail if a name, a summary or a phrase violates the word list.
    Words {
        /// Crates to check; by default those that keep to the list.
        crates: Vec<String>,
    },
    /// Count the lines of code of programs with messages and with bare verbs.
    Lines,
    /// Run fuzz targets, each from the valid inputs of its parser.
    Fuzz(fuzz::Args),
    /// Run the models and bounded proofs of the code that guards memory, and the parts that Miri can run.
    Proofs(proofs::Args),
    /// Run all tests, several programs of them at once.
    Test(test::Args),
    /// Link libibverbs.so.1 and librdmacm.so.1, by default from a release build into target/release/verbs.
    Verbs(verbs::Args),
    /// Link libnccl-net-weft.so and libnccl-tuner-weft.so, by default from a release build into target/release/nccl.
    Nccl(nccl::Args),
    /// Install libxrdma with its header, manual pages and pkg-config file, by default in target/release/xrdma.
    Xrdma(xrdma::Args),
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let outcome = match Args::parse().command {
        Command::Docs { check: false } => docs::write(&root),
        Command::Docs { check: true } => docs::check(&root),
        Command::Book(args) => book::run(&root, &args),
        Command::Circles => circles::check(&root),
        Command::Words { crates } => words::check(&root, &crates),
        Command::Layers => layers::check(&root),
        Command::Lines => {
            docs::lines();
            Ok(())
        }
        Command::Fuzz(args) => fuzz::run(&root, &args),
        Command::Proofs(args) => proofs::run(&root, &args),
        Command::Test(args) => test::run(&root, &args),
        Command::Verbs(args) => verbs::link(&root, &args),
        Command::Nccl(args) => nccl::link(&root, &args),
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
