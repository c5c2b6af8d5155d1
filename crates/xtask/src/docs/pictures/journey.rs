//! The picture of a packet's way through files, downward when it is sent and upward when it is received, in the order
//! of ARCHITECTURE.md's table.

use std::path::Path;

use anyhow::{Result, bail};

use super::svg::{HEIGHT, Picture};

/// A step of the way: its name, and the paths of the files that do it, from `crates/`.
struct Step {
    name: &'static str,
    out: &'static [&'static str],
    back: &'static [&'static str],
}

#[rustfmt::skip]
const STEPS: &[Step] = &[
    Step { name: "owner", out: &["weft-transport/src/endpoint/mod.rs"], back: &["weft-transport/src/endpoint/mod.rs"] },
    Step { name: "message and packets", out: &["weft-transport/src/connection/message.rs"], back: &["weft-transport/src/connection/reassembly.rs"] },
    Step { name: "may we send?", out: &["weft-transport/src/connection/egress.rs", "weft-transport/src/congestion/mod.rs"], back: &["weft-transport/src/connection/ack_received.rs", "weft-transport/src/connection/loss.rs"] },
    Step { name: "which path?", out: &["weft-transport/src/path/mod.rs"], back: &["weft-transport/src/path/mod.rs", "weft-transport/src/path/health.rs"] },
    Step { name: "acknowledge", out: &[], back: &["weft-transport/src/connection/ack_sent.rs"] },
    Step { name: "connection and endpoint", out: &["weft-transport/src/endpoint/transmit.rs"], back: &["weft-transport/src/endpoint/mod.rs"] },
    Step { name: "header and bytes", out: &["weft-wire/src/packet.rs"], back: &["weft-wire/src/packet.rs"] },
    Step { name: "sealed datagram", out: &["weft-seal/src/seals/mod.rs"], back: &["weft-seal/src/seals/mod.rs"] },
    Step { name: "real world", out: &["weft-udp/src/driver.rs", "weft-udp/src/sockets/mod.rs"], back: &["weft-udp/src/sockets/mod.rs", "weft-udp/src/driver.rs"] },
    Step { name: "or simulated", out: &["weft-sim/src/world/packets.rs", "weft-sim/src/nic.rs"], back: &["weft-sim/src/fabric/plain.rs", "weft-sim/src/world/packets.rs"] },
];

/// Widths of the columns: the files of the way out and of the way in, and between them the names of the steps.
const COLUMN: u32 = 400;
const MIDDLE: u32 = 200;
const WIDTH: u32 = 2 * COLUMN + MIDDLE;
const ROW: u32 = HEIGHT + 8;
const GAP: u32 = 12;

/// Returns the picture.
///
/// # Errors
/// Returns the files that do not exist.
pub(super) fn render(root: &Path) -> Result<String> {
    let files = STEPS.iter().flat_map(|step| step.out.iter().chain(step.back));
    let missing = files.filter(|file| !root.join("crates").join(file).exists());
    let missing: Vec<_> = missing.map(|file| format!("\n  crates/{file}")).collect();
    if !missing.is_empty() {
        bail!(
            "files of a packet's way do not exist; see crates/xtask/src/docs/pictures/journey.rs:{}",
            missing.concat()
        );
    }
    let rows = |step: &Step| u32::try_from(step.out.len().max(step.back.len())).expect("a few");
    let height = STEPS.iter().map(|step| rows(step) * ROW + GAP).sum::<u32>() + 40;
    let mut picture = Picture::new(WIDTH, height, "A packet's way through files");
    picture.note((8, 14), "sent: downward");
    picture.note((COLUMN + MIDDLE + 8, 14), "received: upward");
    picture.line((COLUMN / 2, 24), (COLUMN / 2, height - 8), true);
    picture.line((WIDTH - COLUMN / 2, height - 8), (WIDTH - COLUMN / 2, 24), true);
    let mut y = 34;
    for step in STEPS {
        for (files, left) in [(step.out, 4), (step.back, COLUMN + MIDDLE + 4)] {
            for (file, row) in files.iter().zip(0..) {
                let text = file.trim_start_matches("weft-").replace("/src/", ": ");
                picture.labelled_box("file", (left, y + row * ROW), COLUMN - 8, &text);
            }
        }
        picture.labelled_box("step", (COLUMN + 4, y), MIDDLE - 8, step.name);
        y += rows(step) * ROW + GAP;
    }
    Ok(picture.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_gone_is_named() {
        let error = render(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("crates/weft-wire/src/packet.rs"), "{error}");
    }

    #[test]
    fn architecture_has_every_file_of_the_steps() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
        for file in STEPS.iter().flat_map(|step| step.out.iter().chain(step.back)) {
            let name = file.rsplit('/').next().unwrap();
            let folder = file.rsplit('/').nth(1).unwrap();
            assert!(
                page.contains(name) || page.contains(folder),
                "{file} is not in ARCHITECTURE.md"
            );
        }
    }
}
