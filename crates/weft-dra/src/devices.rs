//! The daemon's devices of claims. Calls block; they are made on threads for that.

use std::path::Path;

use anyhow::{Context, Result, bail};
use weft_verbs::{Admin, Amounts};

use crate::claim::{Share, is_device_of};

/// Makes the devices of a claim that the daemon at `socket` does not have yet.
///
/// # Errors
/// The daemon cannot be reached, or refuses.
pub(crate) fn create(socket: &Path, shares: &[Share]) -> Result<()> {
    let mut daemon = Admin::connect(Some(socket)).context("cannot reach the device's daemon")?;
    let present = daemon.list()?;
    for share in shares {
        if present.iter().any(|device| device.name == share.name) {
            continue;
        }
        let mut limits = Amounts::default();
        if let Some(queue_pairs) = share.queue_pairs {
            limits.queue_pairs = queue_pairs;
        }
        let made = daemon.create(&share.name, share.owner, limits);
        made.with_context(|| format!("cannot make the device {}", share.name))?;
    }
    Ok(())
}

/// Deletes the devices of a claim, and disconnects processes that still use them.
///
/// # Errors
/// The daemon cannot be reached, or refuses.
pub(crate) fn delete(socket: &Path, uid: &str) -> Result<()> {
    if uid.is_empty() {
        bail!("a claim without a UID");
    }
    let mut daemon = Admin::connect(Some(socket)).context("cannot reach the device's daemon")?;
    for device in daemon.list()?.iter().filter(|device| is_device_of(&device.name, uid)) {
        daemon.delete(&device.name, true)?;
    }
    Ok(())
}
