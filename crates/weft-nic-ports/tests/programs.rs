//! Programs with this library, over Weft's libibverbs. Where there is no mlx5 NIC, the function of its library that sets
//! a port is a stand-in that records its calls and refuses queue pairs that are not ready to send, as a NIC does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use weft_lab::{Lab, LabSpec};
use weft_testkit::lab_is_missing;

// Cargo makes the archives of weft-verbs and of this crate. Both define `ibv_modify_qp`, so this program links neither.

/// The folder of the libraries.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nic-ports");
    let folder = weft_testkit::link_nic_ports(folder);
    let ibverbs = folder.join("libibverbs.so.1");
    let shared = ["-shared", "-fPIC", ibverbs.to_str().unwrap()];
    compile("mlx5", &shared, &folder.join("libmlx5.so.1"));
    compile("nccl", &[], &folder.join("nccl"));
    folder
});

fn compile(name: &str, options: &[&str], to: &Path) {
    let source = format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Werror", "-o"]).arg(to).arg(source).args(options);
    let output = command.output().unwrap_or_else(|error| panic!("cc: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors} (apt-get install libibverbs-dev)");
}

/// A host with a network of its own, so that the address of its device is known.
struct Host(Lab);

impl Host {
    /// Returns a new host; `None`, with a message, where there can be none.
    fn new(test: &str) -> Option<Self> {
        if lab_is_missing(&format!("planned ports on NICs: {test}"), &[]) {
            return None;
        }
        let name = format!("wnp{}{test}", std::process::id());
        let spec = LabSpec { leaves: 1, spines: 1, ..LabSpec::named(name) };
        Some(Self(Lab::up(&spec).unwrap()))
    }

    /// Returns a table with these ports from the host to itself.
    fn table(&self, ports: &[u16]) -> String {
        let host = self.0.fabric().address(0);
        let rows = ports.iter().map(|port| format!("{host},{host},{port}\n"));
        format!("source,destination,source_port\n{}", rows.collect::<String>())
    }

    /// Runs a command with this table and driver. Returns its output, and the record of the stand-in.
    fn run(&self, mut command: Command, table: &str, driver: &str) -> (Output, String) {
        let [csv, record] =
            ["csv", "record"].map(|kind| LIBRARY.join(self.0.name()).with_extension(kind));
        let _ = fs::remove_file(&record);
        fs::write(&csv, table).unwrap();
        command.env("WEFT_NIC_PORTS", &csv).env("WEFT_NIC_DRIVER", driver).env("RECORD", &record);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = self.0.spawn("h0", &mut command).unwrap().wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        (output, fs::read_to_string(&record).unwrap_or_default())
    }
}

/// Returns a program that makes NCCL's calls for three queue pairs.
fn nccl() -> Command {
    let [program, library] = ["nccl", "libweft_nic_ports.so.1"].map(|name| LIBRARY.join(name));
    weft_testkit::program_on(&LIBRARY, &[program.to_str().unwrap(), library.to_str().unwrap(), "3"])
}

/// Returns the lines of a program's output that begin with a word, without it.
fn lines<'a>(output: &'a str, word: &str) -> Vec<&'a str> {
    output.lines().filter_map(|line| line.strip_prefix(word)).collect()
}

#[test]
fn the_queue_pairs_of_a_program_that_opens_libraries_as_nccl_does_get_planned_ports_in_turn() {
    let Some(host) = Host::new("opened") else { return };
    let (output, record) = host.run(nccl(), &host.table(&[50_000, 60_000]), "mlx5_core");
    let printed = String::from_utf8_lossy(&output.stdout);
    // Every function but one is that of the libibverbs below.
    assert_eq!(lines(&printed, "ibv_modify_qp in "), ["libweft_nic_ports.so.1"]);
    assert_eq!(printed.matches(" in libibverbs.so.1").count(), 21, "{printed}");
    let numbers = lines(&printed, "queue pair ");
    let expected: String = numbers
        .iter()
        .zip([50_000, 60_000, 50_000])
        .map(|(number, port)| format!("{number} {port}\n"))
        .collect();
    assert_eq!((numbers.len(), record), (3, expected));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "weft: weft0 sends from planned ports\n");
}

#[test]
fn the_library_can_be_preloaded_into_programs_that_link_libibverbs() {
    let Some(host) = Host::new("linked") else { return };
    // The client ends at once if the server does not listen yet.
    let script = "ibv_rc_pingpong -g 0 -n 10 & until ibv_rc_pingpong -g 0 -n 10 127.0.0.1; do :; done; wait $!";
    let mut command = weft_testkit::program_on(&LIBRARY, &["sh", "-c", script]);
    command.env("LD_PRELOAD", LIBRARY.join("libweft_nic_ports.so.1"));
    let (_, record) = host.run(command, &host.table(&[51_234]), "mlx5_core");
    let ports: Vec<&str> = record.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(ports, ["51234", "51234"], "the server's queue pair and the client's");
}

#[test]
fn a_port_that_cannot_be_set_is_reported_and_fails_nothing() {
    let Some(host) = Host::new("refused") else { return };
    let (good, address) = (host.table(&[50_000]), host.0.fabric().address(0));
    let elsewhere = good.replace(&address.to_string(), "192.0.2.1");
    for (table, driver, message) in [
        (elsewhere.as_str(), "mlx5_core", &*format!("no port from {address} to {address}")),
        ("x,y\n", "mlx5_core", "no column \"source\" in the heading"),
        (&good, "mlx6_core", "no driver \"mlx6_core\", did you mean \"mlx5_core\""),
        (&good, "bnxt_en", "no bnxt_re_dv_modify_qp_udp_sport: libbnxt_re"),
    ] {
        let (output, record) = host.run(nccl(), table, driver);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(message), "{errors}");
        assert_eq!((errors.lines().count(), &*record), (1, ""), "{errors}");
    }
}
