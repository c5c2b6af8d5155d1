//! Network namespaces, and work inside of them.

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::{panic, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::PortError;

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// The name of a namespace of `ip netns`.
    Name(String),
    /// A file that represents a namespace, such as `/proc/<pid>/ns/net`.
    Path(PathBuf),
}

impl Namespace {
    /// Returns the file that represents it.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Name(name) => PathBuf::from("/run/netns").join(name),
            Self::Path(path) => path.clone(),
        }
    }

    /// Runs `action` on a thread of its own inside the namespace. Sockets that it opens stay there, whichever thread
    /// uses them.
    ///
    /// # Errors
    /// There is no such namespace, or this process may not enter it (`CAP_SYS_ADMIN`).
    ///
    /// # Panics
    /// Panics if `action` does.
    pub fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T, PortError> {
        let path = self.path();
        let file = File::open(&path)
            .map_err(PortError::io(format!("open network namespace {}", path.display())))?;
        // Only this thread changes its namespace, and it ends here.
        let inside = move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).map_err(|errno| {
                PortError::io(format!("enter network namespace {}", path.display()))(errno.into())
            })?;
            Ok(action())
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|cause| panic::resume_unwind(cause))
    }
}

impl FromStr for Namespace {
    type Err = Infallible;

    /// A text with a slash is a path.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text.contains('/') { Self::Path(text.into()) } else { Self::Name(text.into()) })
    }
}
