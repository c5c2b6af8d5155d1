//! The name of a benchmark's files and namespaces on this machine.

/// Returns a name of this benchmark and this process, `redis-4711`: two at once must not use the same
/// namespaces.
pub(crate) fn own() -> String {
    let program = std::env::current_exe().expect("a program that runs");
    let stem = program.file_stem().and_then(|stem| stem.to_str()).expect("cargo's name for it");
    // Cargo adds a hash.
    let bench = stem.rsplit_once('-').map_or(stem, |(bench, _)| bench);
    format!("{bench}-{}", std::process::id())
}
