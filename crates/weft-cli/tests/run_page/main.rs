//! The page that `weft sim run --html` writes, in Chromium.

use std::path::Path;
use std::process::Command;

use weft_testkit::can_run;

const SCENARIO: &str = r#"
name = "small"
topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }

[[workload]]
kind = "permutation"
size = "200KB"

[[fault]]
kind = "link-down"
links = "busiest-uplink"
at = "8us"
duration = "10us"
"#;

#[test]
fn the_page_draws_zooms_and_names_places_without_network() {
    let missing =
        !can_run(
            "the page of a run",
            "/usr/bin/python3",
            &["-c", "import selenium"],
            "python3-selenium",
        ) || !can_run("the page of a run", "chromedriver", &["--version"], "chromium-driver");
    if missing {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run-page");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("small.toml"), SCENARIO).unwrap();
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    weft.current_dir(&folder).args(["sim", "run", "small.toml", "--html", "page.html"]);
    let output = weft.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run_page/page.py");
    let mut browser = Command::new("timeout");
    browser.args(["--kill-after=5", "120", "/usr/bin/python3"]).arg(script);
    let output = browser.arg(folder.join("page.html")).arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"drawn, zoomed and named, without network\n");
}
