//! A test that every figure of the papers has one file, and every file a recorded result.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use weft_figures::{PAPERS, Results, entries, files};
use weft_sim::experiment::Verdict;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn names() -> BTreeSet<String> {
    let files = files(&root().join("experiments"));
    files.iter().map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn every_figure_of_every_paper_has_a_file() {
    let names = names();
    for paper in PAPERS {
        for figure in paper.figures {
            let name = format!("{}-{figure}", paper.name);
            assert!(names.contains(&name), "experiments/{name}.toml is missing");
        }
    }
}

#[test]
fn every_file_is_of_a_paper_and_its_source_says_which() {
    for entry in entries(&root()).unwrap() {
        let name = &entry.figure.name;
        let paper = entry.figure.paper().unwrap_or_else(|| panic!("{name} is of no paper"));
        assert!(entry.figure.experiment.source.starts_with(paper.title), "{name}");
    }
}

#[test]
fn every_figure_has_a_verdict_and_what_is_recorded_has_a_file() {
    let names = names();
    let results = Results::read(&root()).unwrap();
    for recorded in results.names() {
        assert!(names.contains(recorded), "{recorded} has no file any more");
    }
    for entry in entries(&root()).unwrap() {
        let name = &entry.figure.name;
        assert_ne!(entry.verdict, Verdict::NotRun, "weft experiment run {name} --record");
        assert_ne!(entry.verdict, Verdict::OutOfDate, "{name}: {:?}", entry.findings);
        assert!(!entry.here.is_empty(), "{name} has no result in words");
    }
}
