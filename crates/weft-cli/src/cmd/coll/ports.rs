//! `weft coll perf --ports`: runs a collective whose packets leave from planned source ports.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use weft_plan::output::read_port_csv;

use crate::messages::NodeOptions;

/// The variable that names the table of source ports to Weft's device.
const TABLE: &str = "WEFT_PORTS";

/// Reads the table, and restarts the command if the device would not find it: the device reads its environment only
/// when it is opened.
///
/// # Errors
/// Returns an error if the file cannot be read, is no port table, or is empty, or if the command cannot be restarted.
pub(super) fn take(table: &Path) -> Result<()> {
    let table = fs::canonicalize(table).with_context(|| format!("--ports {}", table.display()))?;
    let text =
        fs::read_to_string(&table).with_context(|| format!("--ports {}", table.display()))?;
    let rows = read_port_csv(&text).with_context(|| format!("--ports {}", table.display()))?;
    if rows.is_empty() {
        bail!("--ports {}: it plans no queue pair", table.display());
    }
    if env::var_os(TABLE).is_some_and(|known| Path::new(&known) == table) {
        return Ok(());
    }
    let program = env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(env::args_os().skip(1)).env(TABLE, &table);
    Err(command.exec()).context("cannot begin again")
}

/// Refuses a device that chooses source ports itself.
///
/// # Errors
/// Returns an error if the device is not Weft's.
pub(super) fn check_device() -> Result<()> {
    if !NodeOptions::is_on_own_device() {
        bail!(
            "--ports: this machine's RDMA device does not take them; --device weft does, and on hardware \
             mlx5dv_modify_qp_udp_sport or the table's flow labels"
        );
    }
    Ok(())
}
