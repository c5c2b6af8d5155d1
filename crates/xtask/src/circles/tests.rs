use super::*;

fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let test = std::thread::current().id();
    let folder = std::env::temp_dir().join(format!("weft-circles-{}-{test:?}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    for (path, text) in files {
        let path = folder.join("crates/one/src").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let found = circles(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    found.into_values().collect()
}

#[test]
fn two_files_that_import_from_each_other_are_a_circle() {
    let circles = found(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; impl B { fn a() -> super::a::A { todo() } }"),
    ]);
    let arrows = [
        "crates/one/src/a.rs uses B of crates/one/src/b.rs",
        "crates/one/src/b.rs uses A of crates/one/src/a.rs",
    ];
    assert_eq!(circles, [arrows]);
}

#[test]
fn a_path_is_followed_through_exports_modules_and_globs() {
    let circles = found(&[
        ("lib.rs", "mod a; mod b; pub use b::deep as alias; pub use a::*;"),
        ("a.rs", "use crate::alias; pub fn f() { alias::g() }"),
        ("b/mod.rs", "pub mod deep;"),
        ("b/deep.rs", "pub fn g() { crate::f() }"),
    ]);
    assert_eq!(circles[0].len(), 2, "{circles:?}");
}

#[test]
fn a_module_and_one_inside_it_and_tests_are_no_circle() {
    let circles = found(&[
        ("lib.rs", "mod a; mod c;"),
        ("a/mod.rs", "mod b; use b::B; pub struct A(B);"),
        ("a/b.rs", "use super::A; pub struct B(A);"),
        ("c.rs", "use crate::a::A; pub struct C(A);"),
    ]);
    assert!(circles.is_empty(), "{circles:?}");
    let circles = found(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }"),
        ("b.rs", "use crate::a::A; pub struct B(A);"),
    ]);
    assert!(circles.is_empty(), "{circles:?}");
}

#[test]
fn a_row_names_files() {
    let circle = row("| `crates/one/src/a.rs`, `crates/one/src/b.rs` | why `x` |").unwrap();
    assert_eq!(
        circle.into_iter().collect::<Vec<_>>(),
        ["crates/one/src/a.rs", "crates/one/src/b.rs"]
    );
    assert!(row("| files | reason |").is_none());
}
