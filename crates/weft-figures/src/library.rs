//! The scenarios and experiments that are part of the program, under names of files that begin with `built-in:`, and
//! the choice between them and local files: a local file wins.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The first part of the path of a file that is part of the program: `built-in:scenarios/incast.toml`.
const PREFIX: &str = "built-in:";

/// The path from the repository's root, and the text, of each file.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// The folders of the files, in the order in which a name is looked up.
pub const FOLDERS: [&str; 2] = ["scenarios", "experiments"];

/// Returns `true` if the file, or the folder, is part of the program.
pub fn is_built_in(path: &Path) -> bool {
    name_in_program(path).is_some()
}

/// Returns the path of a folder that is part of the program: one of [`FOLDERS`].
pub fn built_in_folder(folder: &str) -> PathBuf {
    format!("{PREFIX}{folder}").into()
}

/// Reads a file, local or part of the program.
///
/// # Errors
/// The file cannot be read.
pub fn read_to_string(file: &Path) -> io::Result<String> {
    let Some(name) = name_in_program(file) else { return fs::read_to_string(file) };
    let found = FILES.iter().find(|(path, _)| *path == name);
    found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the TOML files of a folder, local or part of the program, by name; none if there is no such folder.
pub fn toml_files(folder: &Path) -> Vec<PathBuf> {
    if let Some(name) = name_in_program(folder) {
        let inside =
            |path: &&str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let paths = FILES.iter().map(|(path, _)| *path).filter(inside);
        return paths.map(|path| format!("{PREFIX}{path}").into()).collect();
    }
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

/// Returns the file that a user names: a path, or the bare name of a scenario or an experiment, such as `incast`. Local
/// files are taken first: the path itself, then the name in the folders `scenarios` and `experiments` of the current
/// folder or of one above it. A name of no file is returned as it is.
pub fn locate(name: &Path) -> PathBuf {
    if name.exists() || is_built_in(name) {
        return name.into();
    }
    let is_bare = name.components().count() == 1 && name.extension().is_none();
    if !is_bare {
        return in_program(name).unwrap_or_else(|| name.into());
    }
    let file = name.with_extension("toml");
    let relative = FOLDERS.map(|folder| Path::new(folder).join(&file));
    let here = std::env::current_dir().unwrap_or_default();
    let above = here.ancestors().skip(1);
    let local = relative
        .iter()
        .cloned()
        .chain(above.flat_map(|folder| relative.iter().map(move |relative| folder.join(relative))));
    let found = local.into_iter().find(|file| file.is_file());
    let found = found.or_else(|| relative.iter().find_map(|file| in_program(file)));
    found.unwrap_or_else(|| name.into())
}

/// Returns the path of a file of the repository that is part of the program.
fn in_program(file: &Path) -> Option<PathBuf> {
    let known = FILES.iter().any(|(path, _)| Path::new(path) == file);
    known.then(|| format!("{PREFIX}{}", file.display()).into())
}

/// Returns the bare names of all scenarios and experiments that are part of the program, for suggestions.
pub fn names() -> Vec<&'static str> {
    let stem = |path: &'static str| Path::new(path).file_stem()?.to_str();
    FILES.iter().filter_map(|(path, _)| stem(path)).collect()
}

fn name_in_program(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix(PREFIX)
}

#[cfg(test)]
mod tests {
    use weft_sim::Scenario;
    use weft_units::Seed;

    use super::*;
    use crate::Figure;

    #[test]
    fn a_bare_name_or_a_path_is_found_here_or_in_the_program() {
        // Tests run in the crate's folder, two below the repository's.
        let local = locate(Path::new("incast"));
        assert!(local.ends_with("scenarios/incast.toml") && local.is_file(), "{local:?}");
        assert!(locate(Path::new("stellar-fig9")).ends_with("experiments/stellar-fig9.toml"));
        let by_path = locate(Path::new("scenarios/incast.toml"));
        assert_eq!(by_path, Path::new("built-in:scenarios/incast.toml"));
        assert_eq!(read_to_string(&by_path).unwrap(), fs::read_to_string(&local).unwrap());
        assert_eq!(locate(Path::new("no-such")), Path::new("no-such"));
    }

    #[test]
    fn every_file_of_the_repository_is_in_the_program() {
        for folder in FOLDERS {
            let local = toml_files(&Path::new("../..").join(folder));
            let built_in = toml_files(&built_in_folder(folder));
            let stems =
                |files: &[PathBuf]| files.iter().map(|f| crate::stem(f)).collect::<Vec<_>>();
            assert_eq!(stems(&built_in), stems(&local));
            assert!(!built_in.is_empty());
        }
    }

    /// A file beside the scenario would not be there.
    #[test]
    fn no_scenario_in_the_program_needs_another_file() {
        for file in toml_files(&built_in_folder("scenarios")) {
            let text = read_to_string(&file).unwrap();
            let scenario = Scenario::parse(&text, Path::new("nowhere")).unwrap();
            let topology = scenario.build_topology().unwrap();
            weft_sim::workloads(&scenario, &topology, Seed(1)).unwrap();
        }
        for file in toml_files(&built_in_folder("experiments")) {
            let figure = Figure::read(&file).unwrap();
            for point in figure.experiment.points().unwrap().into_iter().take(1) {
                if figure.experiment.scenario.is_empty() {
                    continue;
                }
                let scenario = Scenario::from_table(point.scenario, Path::new("nowhere")).unwrap();
                let topology = scenario.build_topology().unwrap();
                weft_sim::workloads(&scenario, &topology, Seed(1)).unwrap();
            }
        }
    }
}
