//! Writes the table of the scenarios and experiments that are part of the program: `built_in.rs`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let root = root.canonicalize().expect("the crate is in the repository");
    let mut table = String::from("&[\n");
    for folder in ["experiments", "scenarios"] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
        for file in files(&root.join(folder)) {
            let name = file.strip_prefix(&root).expect("it is below").display().to_string();
            writeln!(table, "    ({name:?}, include_str!({:?})),", file.display().to_string())
                .expect("a text takes everything");
        }
    }
    table += "]\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("built_in.rs"), table).expect("the output folder can be written");
}

/// Returns the TOML files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the repository has the folder");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}
