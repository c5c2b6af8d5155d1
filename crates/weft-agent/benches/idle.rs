//! Memory of connections that do nothing. `cargo bench -p weft-agent --bench idle -- [CONNECTIONS]`
//! sets up 100,000 unless told otherwise, prints a table, then one line of JSON.

use weft_agent::idle::{IdleReport, measure};

fn main() {
    let connections = std::env::args()
        .skip(1)
        .find(|argument| argument != "--bench")
        .map_or(Ok(100_000), |number| number.parse());
    let Ok(connections) = connections else {
        eprintln!("usage: idle [CONNECTIONS]");
        std::process::exit(2);
    };
    let report = match measure(connections, |_| {}) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    print_table(&report);
    println!("{}", serde_json::to_string(&report).expect("numbers"));
}

#[expect(clippy::cast_precision_loss, reason = "printed, not computed with")]
fn print_table(report: &IdleReport) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{} connections over loopback, both ends in this process, set up in {:.1} s",
        report.connections, report.setup_seconds
    );
    println!("{:<34} {:>12} {:>18} {:>12}", "", "resident MiB", "bytes/connection", "bytes/end");
    println!("{:<34} {:>12.1}", "before", mib(report.resident_before));
    for (state, resident, bytes) in [
        ("set up, idle", report.resident_idle, report.bytes_per_connection()),
        (
            "after a message each, and 2 s rest",
            report.resident_rested,
            report.bytes_per_rested_connection(),
        ),
    ] {
        println!("{state:<34} {:>12.1} {bytes:>18.0} {:>12.0}", mib(resident), bytes / 2.0);
    }
}
