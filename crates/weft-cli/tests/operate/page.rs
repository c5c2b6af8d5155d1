//! The monitor's page, in Chromium.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use weft_testkit::can_run;

use crate::monitor::Monitor;
use crate::programs::{Folder, Running};

#[test]
fn the_page_shows_pairs_and_deaths_in_both_colour_schemes_and_loads_nothing_else() {
    let missing =
        !can_run("the page", "/usr/bin/python3", &["-c", "import selenium"], "python3-selenium")
            || !can_run("the page", "chromedriver", &["--version"], "chromium-driver");
    if missing {
        return;
    }
    let folders = ["one", "two"].map(|name| Folder::new(&format!("page-{name}")));
    let echo = folders[0].server("watched_ping");
    let mut store = folders[0].server("watched_store");
    let _clients = [folders[1].traffic(&echo.at()), folders[0].traffic(&echo.at())];
    let agents = [0, 1].map(|host| {
        Monitor::agent(&folders[host], &["--listen", &format!("127.0.0.{}:0", host + 1)])
    });
    let hosts = format!("{},{}", agents[0].at, agents[1].at);
    let monitor = Monitor::serve(&folders[0], &["--hosts", &hosts]);

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operate/page.py");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&pictures).unwrap();
    let mut browser = Command::new("/usr/bin/python3");
    browser.arg(script).arg(format!("http://{}/", monitor.at)).arg(&pictures);
    let mut browser =
        Running(browser.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut input = browser.0.stdin.take().unwrap();
    let mut lines = BufReader::new(browser.0.stdout.take().unwrap()).lines();
    let mut expect = |want: &str| {
        let line = lines.next().expect("it goes on").unwrap();
        assert_eq!(line, want);
    };
    expect("shows both hosts");
    expect("shows programs");
    let pid = store.pid();
    store.running.kill();
    writeln!(input, "{pid}").unwrap();
    expect("shows the death");
    drop(monitor);
    writeln!(input, "gone").unwrap();
    expect("says that nobody answers");
    expect("asked nobody else, and had nothing to complain of");
    assert!(browser.0.wait().unwrap().success());
}
