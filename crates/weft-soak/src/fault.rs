//! Faults are made and repaired here.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
use weft_lab::{Direction, Impairment, Probability};

use crate::HOSTS;
use crate::daemons::clock_file;
use crate::memory::Cgroups;
use crate::schedule::Kind;
use crate::stage::Stage;
use crate::supervisor::Supervisor;

/// Makes a fault. Returns what it was like, if there is more to say than its kind.
///
/// # Errors
/// Returns an error if it cannot be made.
pub(crate) fn make(
    kind: &Kind,
    stage: &mut Stage,
    supervisor: &Supervisor,
    cgroups: &Cgroups,
) -> Result<String> {
    match kind {
        Kind::Loss(link) => {
            let loss: Probability = "1%".parse().map_err(anyhow::Error::msg)?;
            stage.lab.impair(
                link,
                Direction::Both,
                &Impairment { loss, ..Impairment::default() },
            )?;
        }
        Kind::Cable(link) => {
            stage.lab.set_down(link)?;
            // What a routing protocol does: the other leaves avoid the way that ends here.
            stage.lab.converge()?;
        }
        Kind::Spine(spine) => {
            for leaf in 0..HOSTS {
                stage.lab.set_down(&format!("l{leaf}-s{spine}"))?;
            }
            stage.lab.converge()?;
        }
        Kind::Kill(daemon) => supervisor.kill(daemon)?,
        Kind::EtcdStop => stage.etcd.pause(0),
        Kind::EtcdKill => stage.etcd.kill(0),
        Kind::Clock(daemon, by) => {
            drop(stage.shared.write(&clock_file(daemon), &format!("{by:+}"))?)
        }
        Kind::Disk(host) => fill(&stage.shared.path(&format!("h{host}/disk/ballast")))?,
        Kind::Memory(daemon) => {
            let limit = cgroups.squeeze(daemon)?;
            return Ok(format!("limit {} KiB", limit >> 10));
        }
    }
    Ok(String::new())
}

/// Repairs a fault. A supervisor repairs `Kill`.
///
/// # Errors
/// Returns an error if it cannot be repaired.
pub(crate) fn repair(kind: &Kind, stage: &mut Stage, cgroups: &Cgroups) -> Result<()> {
    match kind {
        Kind::Loss(link) => stage.lab.impair(link, Direction::Both, &Impairment::default())?,
        Kind::Cable(link) => stage.lab.set_up(link)?,
        Kind::Spine(spine) => {
            for leaf in 0..HOSTS {
                stage.lab.set_up(&format!("l{leaf}-s{spine}"))?;
            }
        }
        Kind::Kill(_) => {}
        Kind::EtcdStop => stage.etcd.resume(0),
        Kind::EtcdKill => stage.etcd.start_again(0),
        Kind::Clock(daemon, _) => drop(stage.shared.write(&clock_file(daemon), "+0")?),
        Kind::Disk(host) => fs::remove_file(stage.shared.path(&format!("h{host}/disk/ballast")))?,
        Kind::Memory(daemon) => cgroups.release(daemon)?,
    }
    Ok(())
}

/// Writes to a file until its disk is full.
fn fill(path: &std::path::Path) -> Result<()> {
    let mut file =
        File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    // The last blocks are filled byte by byte.
    for block in [&[0; 65_536][..], &[0; 512], &[0]] {
        loop {
            match file.write_all(block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
