//! A bench is started, its rows read and held against the claims.

use std::fs;
use std::path::PathBuf;

use weft_figures::{Figure, Runner};

/// A repository with experiments, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-figures-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("experiments")).unwrap();
        Self(path)
    }

    /// A figure of which `command` measures the rows.
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

/// Prints a row of each of two figures, for people and for programs, and counts itself.
const BOTH: &str = r#"echo "two rows"; echo run >> runs;
for figure in x-fig1 x-fig2; do echo "{\"figure\":\"$figure\",\"way\":\"a\",\"rate\":2}" >> "$WEFT_BENCH_JSON"; done"#;

#[test]
fn one_run_serves_every_figure_that_it_measures() {
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
fn a_bench_that_fails_or_says_nothing_of_the_figure_is_an_error() {
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
