//! A test that every figure of the papers and every topic has a file, and every figure a recorded result.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use weft_figures::{PAPERS, Results, TOPICS, entries, files};
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
fn every_file_belongs_to_a_paper_or_a_topic_that_its_source_names() {
    for entry in entries(&root()).unwrap() {
        let name = &entry.figure.name;
        let [paper, topic] = [
            entry.figure.paper().map(|paper| paper.title),
            entry.figure.topic().map(|topic| topic.title),
        ];
        let title = paper.or(topic).unwrap_or_else(|| panic!("{name} is of no paper and no topic"));
        assert!(entry.figure.experiment.source.starts_with(title), "{name}");
        let quotes = !entry.figure.experiment.paper.is_empty();
        assert_eq!(quotes, paper.is_some(), "{name}: only a paper's figure quotes its paper");
    }
}

#[test]
fn every_topic_has_one_or_two_tables_with_targets() {
    let entries = entries(&root()).unwrap();
    for topic in TOPICS {
        let is_own = |name: Option<&str>| name == Some(topic.name);
        let own = entries.iter().filter(|entry| is_own(entry.figure.topic().map(|it| it.name)));
        let own: Vec<_> = own.collect();
        assert!((1..=2).contains(&own.len()), "{}: {} tables", topic.name, own.len());
        for entry in own {
            let name = &entry.figure.name;
            assert!(!entry.figure.experiment.claims.is_empty(), "{name} has no target");
            assert_ne!(entry.verdict, Verdict::OutOfDate, "{name}: {:?}", entry.findings);
        }
    }
}

#[test]
fn every_figure_has_a_verdict_and_every_recorded_result_has_a_file() {
    let names = names();
    let results = Results::read(&root()).unwrap();
    for recorded in results.names() {
        assert!(names.contains(recorded), "{recorded} has no file any more");
    }
    // A topic may wait for a quiet machine.
    let is_papers = |entry: &weft_figures::Entry| entry.figure.paper().is_some();
    for entry in entries(&root()).unwrap().into_iter().filter(is_papers) {
        let name = &entry.figure.name;
        assert_ne!(entry.verdict, Verdict::NotRun, "weft experiment run {name} --record");
        assert_ne!(entry.verdict, Verdict::OutOfDate, "{name}: {:?}", entry.findings);
        assert!(!entry.here.is_empty(), "{name} has no result in words");
    }
}
