//! Structures of C, written by hand in Rust: what the C compiler makes of a header says whether they are
//! the same.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// For each structure its name and fields, as C says them and as Rust has them; `rust = c` where the
/// names differ.
macro_rules! layouts {
    ($($name:ident { $($field:ident $(= $c:literal)?),* $(,)? })+) => {
        /// Lines that a C program prints and what they must be.
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

/// Compiles and runs a C program with this header, of this package, and compares.
pub(crate) fn compare(header: &str, package: &str, layouts: &[(String, String, usize)]) {
    let mut source = format!("#include <{header}>\n#include <stdio.h>\n");
    source += "#include <stddef.h>\nint main(void) {\n";
    for (_, expression, _) in layouts {
        writeln!(source, "printf(\"%zu\\n\", {expression});").unwrap();
    }
    source += "}\n";
    let hint = format!("no {header} (apt-get install {package})?");
    let printed = output_of(&source, &hint);
    let said: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(said.len(), layouts.len());
    let wrong: Vec<_> = layouts
        .iter()
        .zip(said)
        .filter(|((_, _, ours), said)| ours != said)
        .map(|((name, _, ours), said)| format!("{name}: {ours}, {header} has {said}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn output_of(source: &str, hint: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Tests of several crates share the folder.
    let program = folder.join(concat!(env!("CARGO_PKG_NAME"), "-layout"));
    let file = program.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg(&file).arg("-o").arg(&program).output().unwrap();
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{hint} {complaint}");
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}
