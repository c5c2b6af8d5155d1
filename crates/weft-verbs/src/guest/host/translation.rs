//! The guest's commands as the daemon gets them.

use std::sync::Arc;

use super::ram::{MapError, Mapping, Ram};
use crate::attach::{Refusal, Run};
use crate::engine::Region;
use crate::engine::command::Command;
use crate::guest::{PAGE, pages_of};

/// Returns a guest's command as the daemon gets it: a region has its address in the relay, where its pages are mapped,
/// instead of that in the guest's process.
///
/// # Errors
/// The pages are not those of the region, or not the guest's.
pub(super) fn translate(
    ram: &Arc<Ram>,
    command: Command,
    pages: &[Run],
) -> Result<(Command, Option<Mapping>), Refusal> {
    match command {
        Command::Register(domain, region) if region.length > 0 => {
            let mapping = map(ram, region.address, region.length, pages)?;
            let address = mapping.address() + region.address % PAGE;
            let region = Region { address, ..region };
            Ok((Command::Register(domain, region), Some(mapping)))
        }
        Command::Register(domain, region) => {
            Ok((Command::Register(domain, Region { address: 0, ..region }), None))
        }
        Command::Reregister { place: Some(_), .. } => {
            let reason = "a region in a guest keeps its range: register another one";
            Err(Refusal::new(libc::EOPNOTSUPP, reason))
        }
        command => Ok((command, None)),
    }
}

/// Maps the pages of a range of addresses.
fn map(ram: &Arc<Ram>, address: u64, length: u64, pages: &[Run]) -> Result<Mapping, Refusal> {
    let given: u64 = pages.iter().map(|run| u64::from(run.pages)).sum();
    if pages_of(address, length) != Some(given) {
        let reason = format!("{given} pages came for {length} bytes at {address:#x}");
        return Err(Refusal::new(libc::EINVAL, reason));
    }
    ram.map(pages).map_err(|error| {
        let errno = if matches!(error, MapError::Outside) { libc::EFAULT } else { libc::ENOMEM };
        Refusal::new(errno, error.to_string())
    })
}
