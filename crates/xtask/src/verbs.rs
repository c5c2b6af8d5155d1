//! The linking of `libibverbs.so.1` and its companions from a crate's archive, stubs for the missing symbols, and the
//! symbol versions that programs expect. Cargo can link neither versions nor a soname portably.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A library that programs load.
struct Library {
    package: &'static str,
    name: &'static str,
    /// The path of the symbol table, from the workspace's root.
    symbols: &'static str,
    /// The Weft libraries that it calls.
    needs: &'static [&'static str],
}

const VERBS: Library = Library {
    package: "weft-verbs",
    name: "libibverbs",
    symbols: "crates/weft-verbs/symbols/libibverbs.txt",
    needs: &[],
};

const RDMACM: Library = Library {
    package: "weft-rdmacm",
    name: "librdmacm",
    symbols: "crates/weft-rdmacm/symbols/librdmacm.txt",
    needs: &["libibverbs.so.1"],
};

const NIC_PORTS: Library = Library {
    package: "weft-nic-ports",
    name: "libweft_nic_ports",
    symbols: "crates/weft-nic-ports/symbols/libweft_nic_ports.txt",
    // Programs find every function but one there.
    needs: &["libibverbs.so.1"],
};

const MALLOC: Library = Library {
    package: "weft-malloc",
    name: "libweft_malloc",
    symbols: "crates/weft-malloc/symbols/libweft_malloc.txt",
    needs: &[],
};

/// The library that `weft run` preloads into a program: sources and name.
const PRELOAD: (&[&str], &str) = (
    &["crates/weft-verbs/preload/paths.c", "crates/weft-verbs/preload/elsewhere.c"],
    "libweft_preload.so",
);

/// A row of the symbol table.
#[derive(Debug, PartialEq, Eq)]
struct Symbol<'a> {
    /// [`NO_VERSION`] in a library whose symbols have none.
    version: &'a str,
    name: &'a str,
    implementation: Implementation,
}

/// Stands for the version in a table of symbols without one.
const NO_VERSION: &str = "-";

/// The implementation of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Implementation {
    /// A function of Weft.
    Ours,
    /// A stub that returns `EOPNOTSUPP`.
    Errno,
    /// A stub that sets `errno` and returns a null pointer.
    Pointer,
    /// A stub that sets `errno` and returns -1.
    Failure,
    /// A stub that does nothing.
    Nothing,
    /// A variable of eight zero bytes.
    Data,
}

/// The archives to link and the folder for the libraries.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The archive of weft-verbs; by default a release build makes it.
    #[arg(long)]
    archive: Option<PathBuf>,
    /// The archive of weft-rdmacm; without it, a given `--archive` links only libibverbs.
    #[arg(long, requires = "archive")]
    rdmacm: Option<PathBuf>,
    /// The archive of weft-nic-ports, likewise.
    #[arg(long, requires = "archive")]
    nic_ports: Option<PathBuf>,
    /// The archive of weft-malloc, likewise.
    #[arg(long, requires = "archive")]
    malloc: Option<PathBuf>,
    /// The folder for the libraries.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Links the libraries, by default into the folder `verbs` of the release build.
///
/// # Errors
/// Returns the command that failed, or the mistake in a table.
pub(crate) fn link(root: &Path, args: &Args) -> Result<()> {
    let release = target(root)?.join("release");
    let folder = args.out.clone().unwrap_or_else(|| release.join("verbs"));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let Some(verbs) = &args.archive else {
        for library in [&VERBS, &RDMACM, &NIC_PORTS, &MALLOC] {
            let build = ["build", "--release", "--lib", "--package", library.package];
            run(Command::new(env!("CARGO")).current_dir(root).args(build))?;
            let archive = format!("lib{}.a", library.package.replace('-', "_"));
            link_one(root, library, &release.join(archive), &folder)?;
        }
        return link_preload(root, &folder);
    };
    link_one(root, &VERBS, verbs, &folder)?;
    link_preload(root, &folder)?;
    let others = [(&RDMACM, &args.rdmacm), (&NIC_PORTS, &args.nic_ports), (&MALLOC, &args.malloc)];
    for (library, archive) in others {
        archive.iter().try_for_each(|archive| link_one(root, library, archive, &folder))?;
    }
    Ok(())
}

fn link_one(root: &Path, library: &Library, archive: &Path, folder: &Path) -> Result<()> {
    let Library { name, .. } = library;
    let text = read(&root.join(library.symbols))?;
    let symbols = parse(&text).with_context(|| format!("in {}", library.symbols))?;
    let map = folder.join(format!("{name}.map"));
    let stubs = folder.join(format!("{name}.c"));
    write(&map, &version_map(&symbols))?;
    write(&stubs, &definitions(&symbols))?;
    let linked = folder.join(format!("{name}.so.1"));
    // The library is never unloaded because its thread runs until the process ends.
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wl,--gc-sections", "-Wl,-z,nodelete"])
        .arg(format!("-Wl,-soname,{name}.so.1"))
        .arg(format!("-Wl,--version-script={}", map.display()))
        .arg(&stubs)
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-Wl,--no-as-needed"])
        .args(library.needs.iter().map(|needed| folder.join(needed)))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&linked))?;
    println!("verbs: {}", linked.display());
    Ok(())
}

/// Links the library to preload, which calls libibverbs.so.1 of its own folder.
fn link_preload(root: &Path, folder: &Path) -> Result<()> {
    let (sources, name) = PRELOAD;
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", "-o"])
        .arg(folder.join(name))
        .args(sources.iter().map(|source| root.join(source)))
        .arg(folder.join("libibverbs.so.1"))
        .arg("-ldl"))?;
    // Some programs open the library by the name that compilers use (NCCL before 2.30), which a system with rdma-core's
    // headers has too.
    let link = folder.join("libibverbs.so");
    if !link.is_symlink() {
        symlink("libibverbs.so.1", &link)
            .with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(())
}

/// Returns cargo's target directory.
///
/// # Errors
/// Returns an error if `cargo metadata` fails.
pub(crate) fn target(root: &Path) -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("`cargo metadata` cannot read the workspace")?;
    Ok(metadata.target_directory.into())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Runs a command.
///
/// # Errors
/// Returns an error with the command if it does not start or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

fn parse(text: &str) -> Result<Vec<Symbol<'_>>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    lines.map(|(index, line)| symbol(line).with_context(|| format!("line {}", index + 1))).collect()
}

fn symbol(line: &str) -> Result<Symbol<'_>> {
    let [version, name, implementation] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("expected a version, a name and an implementation, got {line:?}");
    };
    let implementation = match implementation {
        "ours" => Implementation::Ours,
        "errno" => Implementation::Errno,
        "pointer" => Implementation::Pointer,
        "failure" => Implementation::Failure,
        "nothing" => Implementation::Nothing,
        "data" => Implementation::Data,
        _ => bail!("{implementation:?} is not one of ours, errno, pointer, failure, nothing, data"),
    };
    Ok(Symbol { version, name, implementation })
}

/// Returns a linker's version script: each version with its symbols, and no other exports.
fn version_map(symbols: &[Symbol<'_>]) -> String {
    let mut map = String::new();
    for of_version in symbols.chunk_by(|a, b| a.version == b.version) {
        let names = of_version.iter().fold(String::new(), |mut names, symbol| {
            let _ = writeln!(names, "    {};", symbol.name);
            names
        });
        let rest = if map.is_empty() { "  local:\n    *;\n" } else { "" };
        let version = Some(of_version[0].version).filter(|&version| version != NO_VERSION);
        let version = version.map(|version| format!("{version} ")).unwrap_or_default();
        let _ = write!(map, "{version}{{\n  global:\n{names}{rest}}};\n");
    }
    map
}

/// Returns C stubs for the symbols that Weft does not implement. They ignore their arguments.
fn definitions(symbols: &[Symbol<'_>]) -> String {
    let mut source = String::from("#include <errno.h>\n#include <stddef.h>\n\n");
    for Symbol { name, implementation, .. } in symbols {
        let _ = match implementation {
            Implementation::Ours => Ok(()),
            Implementation::Errno => writeln!(source, "int {name}(void) {{ return EOPNOTSUPP; }}"),
            Implementation::Pointer => {
                writeln!(source, "void *{name}(void) {{ errno = EOPNOTSUPP; return NULL; }}")
            }
            Implementation::Failure => {
                writeln!(source, "int {name}(void) {{ errno = EOPNOTSUPP; return -1; }}")
            }
            Implementation::Nothing => writeln!(source, "void {name}(void) {{}}"),
            Implementation::Data => writeln!(source, "char {name}[8];"),
        };
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# words\nV_1 a ours\nV_1 b errno\nV_2 c pointer\n";

    #[test]
    fn versions_have_their_symbols_and_nothing_else_is_exported() {
        let symbols = parse(TABLE).unwrap();
        let map = version_map(&symbols);
        let expected = "V_1 {\n  global:\n    a;\n    b;\n  local:\n    *;\n};\n\
                        V_2 {\n  global:\n    c;\n};\n";
        assert_eq!(map, expected);
    }

    #[test]
    fn symbols_without_a_version_have_none_in_the_map() {
        let map = version_map(&parse("- a ours\n- b ours\n").unwrap());
        assert_eq!(map, "{\n  global:\n    a;\n    b;\n  local:\n    *;\n};\n");
    }

    #[test]
    fn symbols_that_are_not_ours_have_stubs_by_return_type() {
        let source = definitions(&parse(TABLE).unwrap());
        assert!(!source.contains(" a("), "{source}");
        assert!(source.contains("int b(void) { return EOPNOTSUPP; }"), "{source}");
        assert!(source.contains("void *c(void) { errno = EOPNOTSUPP; return NULL; }"), "{source}");
    }

    #[test]
    fn a_bad_row_is_named() {
        for (table, expected) in [("# x\nV_1 a\n", "line 2"), ("V_1 a mine\n", "line 1")] {
            let error = format!("{:#}", parse(table).unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_table_names_every_symbol_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for library in [VERBS, RDMACM, MALLOC] {
            let text = read(&root.join(library.symbols)).unwrap();
            let symbols = parse(&text).unwrap();
            let mut names: Vec<_> = symbols.iter().map(|symbol| symbol.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), symbols.len());
        }
    }
}
