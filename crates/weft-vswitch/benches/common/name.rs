//! What a benchmark calls what it makes on this machine.

/// A name of this benchmark and this process, `redis-4711`: two at once must not take each other's namespaces.
pub(crate) fn own() -> String {
    let program = std::env::current_exe().expect("a program that runs");
    let stem = program.file_stem().and_then(|stem| stem.to_str()).expect("cargo's name for it");
    // Cargo adds a hash.
    let bench = stem.rsplit_once('-').map_or(stem, |(bench, _)| bench);
    format!("{bench}-{}", std::process::id())
}
