//! The mistakes that `make mutants` makes are patches, which no longer apply when the code beside them changes.

use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn mutants() -> Vec<PathBuf> {
    let crates = ["weft-sim", "weft-rnic", "weft-seal", "weft-ring", "weft-verbs"];
    let folders = crates.map(|name| Path::new(ROOT).join("crates").join(name).join("mutants"));
    let entries = folders.iter().flat_map(|folder| folder.read_dir().unwrap());
    entries.map(|entry| entry.unwrap().path().canonicalize().unwrap()).collect()
}

#[test]
fn every_mutant_fits_the_code() {
    let mutants = mutants();
    assert!(mutants.len() > 50, "{} mutants", mutants.len());
    for mutant in mutants {
        let mut git = Command::new("git");
        let tried = git.args(["apply", "--check"]).arg(&mutant).current_dir(ROOT).output();
        let tried = tried.expect("git runs");
        let why = String::from_utf8_lossy(&tried.stderr);
        assert!(tried.status.success(), "{} has to be made anew: {why}", mutant.display());
    }
}
