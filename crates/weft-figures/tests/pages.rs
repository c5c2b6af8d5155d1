//! A test that the docs agree with the recorded results. `BLESS=1 cargo test -p weft-figures --test pages` writes them,
//! like `weft experiment pages`.

use std::path::Path;

use weft_figures::{entries, pages};

#[test]
fn the_pages_agree_with_the_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = entries(&root).unwrap();
    let pages = pages(&root, &entries).unwrap();
    assert_eq!(pages.len(), 16);
    for (path, text) in pages {
        let file = root.join(&path);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let same = std::fs::read_to_string(&file).unwrap() == text;
        assert!(same, "{path} differs from docs/data/results.json; run `weft experiment pages`");
    }
}
