//! Comparison of hand-written Rust structures with the layouts that the C compiler gives those of a header.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Declares the structures to compare, each with its name and fields; `rust = c` gives a C name that differs.
macro_rules! layouts {
    ($($name:ident { $($field:ident $(= $c:literal)?),* $(,)? })+) => {
        /// Returns, for each structure and field, its name, a C expression for its size or offset, and the value in
        /// Rust.
        fn layouts() -> Vec<(String, String, usize)> {
            let mut lines = Vec::new();
            $(
                let name = stringify!($name);
                let size = format!("sizeof(struct {name})");
                lines.push((format!("{name}"), size, size_of::<$name>()));
                $(
                    let rust = stringify!($field);
                    let c = [$($c,)? rust][0];
                    let offset = format!("offsetof(struct {name}, {c})");
                    lines.push((format!("{name}.{rust}"), offset, core::mem::offset_of!($name, $field)));
                )*
            )+
            lines
        }
    };
}

/// Compiles and runs a C program with `header` of the Debian package `package`, and compares its output with `layouts`.
pub(crate) fn compare(header: &str, package: &str, layouts: &[(String, String, usize)]) {
    let mut source = format!("#include <{header}>\n#include <stdio.h>\n");
    source += "#include <stddef.h>\nint main(void) {\n";
    for (_, expression, _) in layouts {
        writeln!(source, "printf(\"%zu\\n\", {expression});").unwrap();
    }
    source += "}\n";
    let hint = format!("no {header} (apt-get install {package})?");
    let printed = output_of(&source, &hint);
    let in_c: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(in_c.len(), layouts.len());
    let wrong: Vec<_> = layouts
        .iter()
        .zip(in_c)
        .filter(|((_, _, in_rust), in_c)| in_rust != in_c)
        .map(|((name, _, in_rust), in_c)| format!("{name}: {in_rust}, {header} has {in_c}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn output_of(source: &str, hint: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // The tests of several crates share the folder.
    let program = folder.join(concat!(env!("CARGO_PKG_NAME"), "-layout"));
    let file = program.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg(&file).arg("-o").arg(&program).output().unwrap();
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{hint} {complaint}");
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}
