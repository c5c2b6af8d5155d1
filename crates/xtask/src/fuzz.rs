//! `cargo xtask fuzz`: runs every target of `fuzz/` for a limited time, starting from valid inputs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The targets and the length of the runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Targets to run; all if none is given.
    targets: Vec<String>,
    /// Seconds per target.
    #[arg(long, default_value_t = 20, conflicts_with = "inputs")]
    seconds: u32,
    /// Number of inputs per target, without a time limit.
    #[arg(long)]
    inputs: Option<u64>,
    /// Build without AddressSanitizer: 3 to 100 times as many inputs per second, enough for crates without `unsafe`.
    #[arg(long)]
    no_sanitizer: bool,
    /// Build without the instrumentation of comparisons: 2 to 3 times as many inputs per second, enough for inputs
    /// that are scripts, which have no magic numbers to find.
    #[arg(long)]
    no_compares: bool,
}

/// The valid inputs to start from: targets, and the folder or file with the inputs. A `.hex` file is annotated
/// hexadecimal and is decoded; each line of a `.corpus` file is an input in hexadecimal; other files are inputs as they
/// are.
const SEEDS: &[(&[&str], &str)] = &[
    (
        &["packet", "rdma", "eth", "ipv4", "ipv6", "udp", "virtio_net", "vxlan", "sealed"],
        "crates/weft-wire/tests/golden",
    ),
    (&["tenant_frame", "offload", "table", "security_groups"], "crates/weft-vpc/tests/golden"),
    (&["sealed"], "crates/weft-seal/tests/golden"),
    (&["topology"], "crates/weft-topo/tests/golden"),
    (&["scenario"], "crates/weft-sim/tests/golden/scenario"),
    (&["flows"], "crates/weft-sim/tests/golden/flows"),
    (&["sizes"], "crates/weft-sim/tests/golden/sizes"),
    (&["htsim"], "crates/weft-sim/tests/golden/htsim"),
    (&["goal"], "crates/weft-sim/tests/golden/goal"),
    (&["goal_binary"], "crates/weft-sim/tests/golden/goal_binary"),
    (&["simai"], "crates/weft-sim/tests/golden/simai"),
    (&["chakra"], "crates/weft-sim/tests/golden/chakra"),
    (&["experiment"], "crates/weft-sim/tests/golden/experiment"),
    (&["nccl"], "crates/weft-plan/tests/golden/nccl"),
    (&["cluster"], "crates/weft-plan/tests/golden/cluster"),
    (&["port_table"], "crates/weft-plan/tests/golden/ports"),
    (&["tuner_table"], "crates/weft-plan/tests/golden/tuner"),
    (&["installed"], "crates/weft-route/tests/golden/installed"),
    (&["route_record"], "crates/weft-route/tests/golden/records"),
    (&["route_state"], "crates/weft-route/tests/golden/state"),
    (&["probe_report"], "crates/weft-route/tests/golden/probes"),
    (&["tables"], "crates/weft-steer/tests/golden/tables"),
    (&["gnmi_answer"], "crates/weft-steer/tests/golden/gnmi"),
    (&["steer_config"], "crates/weft-steer/tests/golden/config"),
    (&["job_table"], "crates/weft-steer/tests/golden/jobs"),
    (&["daemon_message"], "crates/weft-verbs/tests/golden/daemon_message.corpus"),
    (&["daemon_ring"], "crates/weft-verbs/tests/golden/daemon_ring.corpus"),
    (&["daemon"], "crates/weft-verbs/tests/golden/daemon.corpus"),
    (&["device_state"], "crates/weft-verbs/tests/golden/state"),
    (&["same_host"], "crates/weft-verbs/tests/golden/same_host.corpus"),
    (&["same_host_writer"], "crates/weft-verbs/tests/golden/same_host_writer.corpus"),
    (&["same_host_leases"], "crates/weft-verbs/tests/golden/same_host_leases.corpus"),
    (&["greeting"], "crates/weft-verbs/tests/golden/greeting.corpus"),
    (&["front_end"], "crates/weft-ports/tests/golden/front_end.corpus"),
    (&["rdmacm_message"], "crates/weft-rdmacm/tests/golden/rdmacm_message.corpus"),
    (&["rdmacm"], "crates/weft-rdmacm/tests/golden/rdmacm.corpus"),
    (&["messages"], "crates/weft-msg/tests/golden/messages.corpus"),
    (&["control_socket"], "crates/weft-vswitch/tests/golden/control_socket.corpus"),
    (&["fleet_values"], "crates/weft-vswitch/tests/golden/fleet_values.corpus"),
    (&["evpn_neighbour"], "crates/weft-evpn/tests/golden/evpn_neighbour.corpus"),
    (&["orders"], "crates/weft-stat/tests/golden/orders.corpus"),
    (&["rendezvous"], "crates/weft-comm/tests/golden/rendezvous.corpus"),
    (&["cni_call"], "crates/weft-cni/tests/golden/cni_call"),
    (&["http"], "crates/weft-cli/tests/golden/http.corpus"),
];

/// Returns the files and folders of a target's valid inputs. Without any, libFuzzer would start with one or two bytes
/// and take hours to reach longer inputs.
fn seeds_of(target: &str) -> impl Iterator<Item = &'static str> {
    let rows = SEEDS.iter().filter(move |(targets, _)| targets.contains(&target));
    rows.map(|(_, folder)| *folder)
}

/// Maximum input bytes of targets whose long inputs are slow: texts that people write, because a few lines cover all
/// cases of the parser, and scripts, because a few dozen steps reach every state. Other targets have libFuzzer's limit,
/// the longer of 4096 bytes and the longest valid input.
const MAX_LENGTHS: &[(&str, u32)] = &[
    ("units", 64),
    ("selectors", 128),
    ("flow", 128),
    ("orders", 512),
    ("control_socket", 512),
    ("fleet_values", 512),
    ("evpn_neighbour", 1024),
    ("rdmacm", 256),
    ("messages", 256),
    ("endpoint", 128),
    ("daemon", 128),
    ("daemon_ring", 256),
    ("device_state", 1536),
    ("same_host", 256),
    ("same_host_writer", 128),
    ("same_host_leases", 256),
    ("front_end", 168),
    ("cni_call", 1024),
    ("experiment", 1536),
    ("scenario", 1536),
    ("installed", 1536),
    ("htsim", 1536),
    ("goal", 1536),
    ("simai", 1536),
];

/// The seconds after which a running input counts as a hang.
const HANG_SECONDS: u32 = 30;

/// Runs the targets one after another.
///
/// # Errors
/// Returns an error for the first target that fails, with the folder of the input; for an unknown target; and for a
/// missing tool.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let known = targets(root)?;
    for target in &args.targets {
        let list = known.join(", ");
        ensure!(known.contains(target), "no fuzz target {target:?}; known: {list}");
    }
    let chosen = if args.targets.is_empty() { &known } else { &args.targets };
    for target in chosen {
        write_seeds(root, target)?;
        let (extent, limit) = match args.inputs {
            Some(inputs) => (format!("with {inputs} inputs"), format!("-runs={inputs}")),
            None => {
                let seconds = args.seconds;
                (format!("for {seconds} s"), format!("-max_total_time={seconds}"))
            }
        };
        println!("fuzzing {target} {extent}");
        let max_length = MAX_LENGTHS.iter().find(|(name, _)| name == target);
        let status = cargo_fuzz(root)
            // The release profile of `fuzz/` enables assertions, with exceptions.
            .args(["run", "--release", target])
            .args(args.no_sanitizer.then_some(["--sanitizer", "none"]).into_iter().flatten())
            .args(args.no_compares.then_some("--no-trace-compares"))
            .args(["--", "-print_final_stats=1"])
            .args([limit, format!("-timeout={HANG_SECONDS}")])
            .args(max_length.map(|(_, bytes)| format!("-max_len={bytes}")))
            .args(seeds_of(target).next().is_none().then_some("-len_control=0"))
            .status()?;
        ensure!(status.success(), "{target} failed: the input is in fuzz/artifacts/{target}/");
    }
    Ok(())
}

fn cargo_fuzz(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).arg("fuzz");
    // The sanitizers need unstable flags, and the pinned toolchain is stable, so cargo-fuzz needs this variable.
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}

/// Returns the names of the targets that `cargo fuzz` lists.
fn targets(root: &Path) -> Result<Vec<String>> {
    let output = cargo_fuzz(root).arg("list").stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("`cargo fuzz` does not run; install it with `cargo install cargo-fuzz --locked`");
    }
    let names = String::from_utf8(output.stdout).context("a target's name is not text")?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// Copies the valid inputs into the target's corpus.
fn write_seeds(root: &Path, target: &str) -> Result<()> {
    let corpus = root.join("fuzz/corpus").join(target);
    fs::create_dir_all(&corpus)?;
    for place in seeds_of(target).map(|place| root.join(place)) {
        let files: Vec<PathBuf> = if place.is_file() {
            vec![place]
        } else {
            let entries = fs::read_dir(place)?.map(|entry| entry.map(|entry| entry.path()));
            entries.collect::<Result<_, _>>()?
        };
        for file in files.iter().filter(|file| file.is_file()) {
            for (name, seed) in read_seeds(file).with_context(|| file.display().to_string())? {
                fs::write(corpus.join(name), seed)?;
            }
        }
    }
    Ok(())
}

/// Returns the inputs of a file, with a name for each.
fn read_seeds(file: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let name = file.file_stem().context("it has no name")?.to_string_lossy().into_owned();
    let bytes = fs::read(file)?;
    if file.extension() == Some(OsStr::new("corpus")) {
        let lines = bytes.split(|&byte| byte == b'\n').enumerate();
        let inputs =
            lines.map(|(line, text)| anyhow::Ok((format!("{name}-{line}"), decode_hex(text)?)));
        return inputs.filter(|input| !matches!(input, Ok((_, seed)) if seed.is_empty())).collect();
    }
    let is_hex = file.extension() == Some(OsStr::new("hex"));
    Ok(vec![(name, if is_hex { decode_hex(&bytes)? } else { bytes })])
}

/// Decodes hexadecimal bytes with optional white space between them; `#` starts a comment.
fn decode_hex(text: &[u8]) -> Result<Vec<u8>> {
    let lines = std::str::from_utf8(text)?.lines();
    let words = lines.filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace);
    let bytes = words.flat_map(|word| word.as_bytes().chunks(2));
    bytes
        .map(|digits| {
            let digits = std::str::from_utf8(digits)?;
            u8::from_str_radix(digits, 16).with_context(|| format!("{digits:?} is not a byte"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotated_hexadecimal_becomes_bytes() {
        assert_eq!(decode_hex(b"# title\n01 fe # two\n\n7f\n").unwrap(), [0x01, 0xfe, 0x7f]);
        assert_eq!(decode_hex(b"01fe7f # all of them\n").unwrap(), [0x01, 0xfe, 0x7f]);
        assert!(decode_hex(b"01 xy").unwrap_err().to_string().contains("xy"));
    }

    #[test]
    fn every_file_and_folder_of_seeds_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (_, place) in SEEDS {
            let is_corpus = place.ends_with(".corpus");
            assert!(root.join(place).is_dir() != is_corpus, "{place}");
            assert!(!is_corpus || !read_seeds(&root.join(place)).unwrap().is_empty(), "{place}");
        }
    }
}
