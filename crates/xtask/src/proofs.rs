//! `cargo xtask proofs`: the proofs of the code that guards memory, one row each (`docs/design/proofs.md`).

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// The proofs to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kinds to run: loom, bounded, miri; all if none is given.
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Every interleaving of threads, and every value that the memory model lets a load return.
    Loom,
    /// Every state within a bound.
    Bounded,
    /// No undefined behaviour in the runs of tests.
    Miri,
}

/// A row of the table of proofs.
struct Proof {
    kind: Kind,
    package: &'static str,
    /// The tests of the proof: those whose names contain this text.
    tests: &'static str,
    /// The statement that the proof shows.
    shows: &'static str,
    /// The bound within which it shows it.
    bound: &'static str,
}

/// Maximum number of preemptions in a model. Two detect the known mistakes; three take seconds.
const PREEMPTIONS: &str = "3";

const fn loom(tests: &'static str, shows: &'static str, bound: &'static str) -> Proof {
    Proof { kind: Kind::Loom, package: "weft-ring", tests, shows, bound }
}

const fn bounded(
    package: &'static str,
    tests: &'static str,
    shows: &'static str,
    bound: &'static str,
) -> Proof {
    Proof { kind: Kind::Bounded, package, tests, shows, bound }
}

const fn miri(
    package: &'static str,
    tests: &'static str,
    shows: &'static str,
    bound: &'static str,
) -> Proof {
    Proof { kind: Kind::Miri, package, tests, shows, bound }
}

#[rustfmt::skip]
const PROOFS: &[Proof] = &[
    loom("models::records::records_arrive", "records of a ring arrive whole and in order", "2 threads, 4 records in room for 2"),
    loom("models::records::the_end_of_the_ring", "a record that does not fit before the ring's end", "2 threads, 3 records in room for 2"),
    loom("models::records::a_sleeping_reader", "a reader that sleeps is woken for a record it missed", "2 threads, 1 record"),
    loom("models::messages::", "messages of the daemon's ring arrive whole and in order", "2 threads, 3 messages in room for 1"),
    loom("models::leases::no_borrower_uses", "no borrower accesses memory after its lease was revoked", "2 threads, 1 lease used twice"),
    loom("models::leases::terms_in_use", "the terms that a borrower uses are of one lease", "2 threads, 2 leases in 1 entry"),
    loom("models::leases::a_borrower_notices", "a borrower notices each new lease", "2 threads, 1 lease"),
    loom("models::sequence::", "an accepted copy is of one write", "2 threads, 2 writes of 2 words"),
    loom("models::signal::a_sleeper", "a sleeper is woken for work that arrived meanwhile", "3 threads, 2 of which bring work"),
    loom("models::signal::a_question", "a question is withdrawn or answered", "2 threads"),
    bounded("weft-transport", "pool::proofs::one_number", "order of sequence numbers, 32 bits", "all 2^32 distances from 2 numbers"),
    bounded("weft-transport", "pool::proofs::the_order", "the order does not depend on the place", "603 numbers and distances each, near the edges"),
    bounded("weft-transport", "pool::proofs::every_number", "each number of a window has its own slot", "258 bases beside chunks and the wrap, 192 numbers"),
    bounded("weft-rnic", "every_psn_has_one", "order of PSNs, 24 bits", "all 2^24"),
    bounded("weft-rnic", "emtt::proofs::an_offset", "offsets within a region", "63^4 arguments near the edges of 64 bits"),
    bounded("weft-rnic", "emtt::proofs::a_translated_access", "an access lies in its region's memory", "21^4 x 7 arguments near the edges"),
    bounded("weft-rnic", "emtt::proofs::an_access_through_a_window", "an access lies in its window and region", "9^6 x 3 arguments near the edges"),
    bounded("weft-ports", "chain::proofs::a_walk_stays", "a walk reads its tables and gives guest memory only", "all answers to 3 reads"),
    bounded("weft-ports", "chain::proofs::a_walk_of_a_packed", "the same for a packed ring", "all answers to 3 reads"),
    bounded("weft-ports", "chain::proofs::a_walk_ends", "a walk ends", "1,025 descriptors"),
    bounded("weft-ports", "chain::proofs::a_part_of", "parts of a buffer are found in its pieces", "3 pieces of 1 to 4 bytes, at 0 and at 4 GiB"),
    bounded("weft-seal", "proofs::no_packet", "no packet is taken twice, none of the window is refused", "3 packets, 31 distances, 15 places"),
    bounded("weft-seal", "proofs::no_nonce", "no nonce is used twice, and the peer follows", "all of 7 steps of 5 kinds"),
    bounded("weft-seal", "proofs::a_number_is_completed", "a number is completed from its low half", "41 places, 2^17 distances"),
    miri("weft-ring", "memory::", "memory at an address", "its tests"),
    miri("weft-ring", "records::tests::", "records in mapped memory, 2 threads", "its tests, 20 to 30 records"),
    miri("weft-ring", "messages::tests::", "messages in mapped memory", "its tests, 300 steps"),
    miri("weft-ring", "leases::tests::", "leases in mapped memory, 2 threads", "its tests, 20 leases"),
];

/// Runs the proofs one after another, and prints a line for each.
///
/// # Errors
/// Returns the proofs that failed, or the missing tool.
#[expect(clippy::disallowed_methods, reason = "prints the duration of each")]
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let wanted = |kind| args.kinds.is_empty() || args.kinds.contains(&kind);
    if wanted(Kind::Miri) {
        let found = Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
        ensure!(
            found.is_ok_and(|found| found.status.success()),
            "Miri is missing: rustup toolchain install nightly --component miri,rust-src"
        );
    }
    let mut failed = Vec::new();
    let chosen: Vec<_> = PROOFS.iter().filter(|proof| wanted(proof.kind)).collect();
    for proof in &chosen {
        let began = Instant::now();
        let outcome = proof.run(root)?;
        let seconds = began.elapsed().as_secs_f64();
        let verdict = if outcome.is_ok() { "proven" } else { "FAILED" };
        let Proof { kind, shows, bound, .. } = proof;
        let kind = format!("{kind:?}").to_lowercase();
        println!("{verdict} {kind:7} {shows} [{bound}] {seconds:.1} s");
        if let Err(output) = outcome {
            eprintln!("{output}");
            failed.push(*shows);
        }
    }
    if failed.is_empty() {
        println!("{} proofs; models with at most {PREEMPTIONS} preemptions", chosen.len());
        return Ok(());
    }
    bail!("{} of {} proofs failed: {}", failed.len(), chosen.len(), failed.join("; "))
}

impl Proof {
    /// Runs the proof. The inner error is the output of its tests.
    fn run(&self, root: &Path) -> Result<Result<(), String>> {
        let mut command = Command::new("cargo");
        command.current_dir(root);
        match self.kind {
            Kind::Loom => command.env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS).arg("test"),
            Kind::Bounded => command.arg("test"),
            // Requests contain the addresses of registered memory as numbers.
            Kind::Miri => command
                .env("MIRIFLAGS", "-Zmiri-permissive-provenance")
                .args(["+nightly", "miri", "test"]),
        };
        command.args(["--package", self.package, "--lib", self.tests, "--", "--include-ignored"]);
        let output = command.output().context("cargo does not run")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        // A filter that matches no test proves nothing.
        let proven = output.status.success() && !text.contains(" 0 passed");
        Ok(if proven { Ok(()) } else { Err(text) })
    }
}
