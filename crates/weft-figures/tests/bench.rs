//! Runs of a bench: its rows are read and evaluated against the claims.

use std::fs;
use std::path::PathBuf;

use weft_figures::{Entry, Figure, Runner, Tally};

/// A repository with experiments that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-figures-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("experiments")).unwrap();
        Self(path)
    }

    /// Returns a figure whose rows `command` prints.
    fn figure(&self, name: &str, command: &str) -> Figure {
        let text = format!(
            "title = \"t\"\nsource = \"s\"\npaper = \"p\"\ndiffers = \"d\"\naxes = [{{ name = \"way\" }}]\n\
             bench = {{ command = '''{command}''', on = \"a shell\" }}\n\
             measures = [{{ name = \"rate\", value = \"rate\" }}]\n\
             [[claims]]\ntext = \"fast\"\nleft = {{ at = {{ way = \"a\" }}, measure = \"rate\" }}\nis = \">\"\nright = 1\n"
        );
        let file = self.0.join(format!("experiments/{name}.toml"));
        fs::write(&file, text).unwrap();
        Figure::read(&file).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command that prints a row of each of two figures, for people and for programs, and counts its runs.
const BOTH: &str = r#"echo "two rows"; echo run >> runs;
for figure in x-fig1 x-fig2; do echo "{\"figure\":\"$figure\",\"way\":\"a\",\"rate\":2}" >> "$WEFT_BENCH_JSON"; done"#;

#[test]
fn a_bench_of_several_figures_runs_once() {
    let folder = Folder::new("both");
    let mut runner = Runner::new(1);
    for name in ["x-fig1", "x-fig2"] {
        let (recorded, findings) =
            runner.run(&folder.figure(name, BOTH), |_, _| ()).unwrap().unwrap();
        assert!(findings.claims[0].holds);
        assert_eq!(recorded.rows[0].measured["rate"], 2.0);
        assert_eq!(recorded.made.command, format!("weft experiment run {name}"));
    }
    assert_eq!(fs::read_to_string(folder.0.join("runs")).unwrap(), "run\n");
}

#[test]
fn a_topic_may_read_the_rows_of_a_figure_of_the_same_bench() {
    let folder = Folder::new("rows");
    let mut figure = folder.figure("perf-x", BOTH);
    figure.experiment.bench.as_mut().unwrap().rows = "x-fig2".into();
    let mut runner = Runner::new(1);
    let (recorded, _) = runner.run(&figure, |_, _| ()).unwrap().unwrap();
    assert_eq!(recorded.rows[0].measured["rate"], 2.0);
    figure.experiment.bench.as_mut().unwrap().rows = "x-fig3".into();
    let error = runner.run(&figure, |_, _| ()).unwrap_err().to_string();
    assert!(error.ends_with("printed no row of x-fig3"), "{error}");
}

#[test]
fn a_bench_that_fails_or_prints_no_row_of_the_figure_is_an_error() {
    let folder = Folder::new("none");
    let error = |name: &str, command: &str| {
        let figure = folder.figure(name, command);
        Runner::new(1).run(&figure, |_, _| ()).unwrap_err().to_string()
    };
    assert!(error("x-fig3", "exit 3").contains("exit status: 3"));
    assert_eq!(error("x-fig3", "true"), "`true` printed no row of x-fig3");
    let garbled = "echo no row >> \"$WEFT_BENCH_JSON\"";
    assert!(error("x-fig3", garbled).contains("a row that is not JSON"));
}

#[test]
fn a_tally_has_each_figures_outcome_and_is_not_good_if_one_failed() {
    let folder = Folder::new("tally");
    let entry = |name: &str, rate: f64| {
        let row = format!(r#"{{\"figure\":\"{name}\",\"way\":\"a\",\"rate\":{rate}}}"#);
        let command = format!(r#"echo "{row}" >> "$WEFT_BENCH_JSON""#);
        let figure = folder.figure(name, &command);
        let (recorded, _) = Runner::new(1).run(&figure, |_, _| ()).unwrap().unwrap();
        Entry::new(figure, Some(recorded)).unwrap()
    };
    let mut tally = Tally::default();
    let good = tally.record_reproduced(&entry("tally-fig1", 2.0));
    assert!(good.starts_with("tally-fig1: differs, 1 of 1 claims as stated, "), "{good}");
    assert_eq!(tally.record_skipped("tally-fig2"), "tally-fig2: left out");
    assert!(tally.is_success());
    let bad = tally.record_reproduced(&entry("tally-fig3", 0.5));
    assert!(bad.starts_with("tally-fig3: out of date, 0 of 1 claims as stated, "), "{bad}");
    assert!(bad.ends_with("\n  \u{2717} fast: 0.5, wanted > 1"), "{bad}");
    assert!(!tally.is_success());
    tally.record_failed("tally-fig4");
    let table = tally.table().to_csv();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[1].starts_with("tally-fig1,differs,") && lines[4] == "tally-fig4,cannot be run,");
    assert!(lines[5].starts_with("all,,"), "{table}");
}
