//! Entry into the network namespaces of routers on this machine.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::{panic, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::SteerError;

/// Runs `action` on a new thread inside the namespace of that name (`ip netns`); only that thread changes
/// its namespace. Sockets opened there stay there.
///
/// # Errors
/// Returns `Io` if there is no such namespace or it cannot be entered.
pub(super) fn enter<T: Send>(
    name: &str,
    action: impl FnOnce() -> T + Send,
) -> Result<T, SteerError> {
    let opening = format!("open namespace {name}");
    let file = File::open(Path::new("/run/netns").join(name)).map_err(SteerError::io(opening))?;
    let inside = move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| SteerError::io(format!("enter namespace {name}"))(errno.into()))?;
        Ok(action())
    };
    thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|cause| panic::resume_unwind(cause))
}
