//! The sockets that a service manager listens with for the daemon (`sd_listen_fds(3)`): clients that come while it starts or
//! restarts wait for it. A socket is used where the daemon would listen at its address; names of descriptors do not matter.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, getsockname};

/// A passed socket.
#[derive(Debug)]
enum Passed {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// A Unix socket that keeps the bounds of messages.
    Sequential(OwnedFd),
}

impl Passed {
    /// Returns the path of a Unix socket.
    fn path(&self) -> Option<PathBuf> {
        let address = match self {
            Self::Tcp(_) => return None,
            Self::Unix(listener) => getsockname(listener),
            Self::Sequential(listener) => getsockname(listener),
        };
        let address = SocketAddrUnix::try_from(address.ok()?).ok()?;
        Some(PathBuf::from(address.path()?.to_str().ok()?))
    }

    fn is_at(&self, at: SocketAddr) -> bool {
        matches!(self, Self::Tcp(listener) if listener.local_addr().is_ok_and(|own| own == at))
    }

    fn is_listening(&self) -> bool {
        let file = match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
            Self::Sequential(listener) => listener.as_fd(),
        };
        socket_acceptconn(file).unwrap_or(false)
    }

    /// Returns the address, for people.
    fn words(&self) -> String {
        match (self, self.path()) {
            (Self::Tcp(listener), _) => {
                listener.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string())
            }
            (_, Some(path)) => path.display().to_string(),
            (_, None) => "a socket without a path".into(),
        }
    }
}

/// The passed sockets that nobody has taken.
#[derive(Debug, Default)]
pub(super) struct PassedSockets(Mutex<Vec<Passed>>);

impl PassedSockets {
    /// Takes over the sockets of this process. Children do not have them.
    ///
    /// # Errors
    /// One of the descriptors is no socket that listens, or of a kind that no daemon uses.
    pub(super) fn from_environment() -> Result<Self> {
        let mut passed = ListenFd::from_env();
        let sockets: Result<Vec<_>> = (0..passed.len()).map(|at| take(&mut passed, at)).collect();
        Ok(Self(Mutex::new(sockets.context("LISTEN_FDS of the service manager")?)))
    }

    /// Takes the TCP socket at an address.
    pub(super) fn take_tcp(&self, at: SocketAddr) -> Option<TcpListener> {
        match self.take(|passed| passed.is_at(at))? {
            Passed::Tcp(listener) => Some(listener),
            Passed::Unix(_) | Passed::Sequential(_) => None,
        }
    }

    /// Takes the Unix stream socket at a path.
    pub(super) fn take_unix(&self, path: &Path) -> Option<UnixListener> {
        let is_it = |it: &Passed| matches!(it, Passed::Unix(_)) && is_same(it.path(), path);
        match self.take(is_it)? {
            Passed::Unix(listener) => Some(listener),
            Passed::Tcp(_) | Passed::Sequential(_) => None,
        }
    }

    /// Takes the Unix socket at a path that keeps the bounds of messages.
    pub(super) fn take_sequential(&self, path: &Path) -> Option<OwnedFd> {
        let is_it = |it: &Passed| matches!(it, Passed::Sequential(_)) && is_same(it.path(), path);
        match self.take(is_it)? {
            Passed::Sequential(listener) => Some(listener),
            Passed::Tcp(_) | Passed::Unix(_) => None,
        }
    }

    /// Checks that every socket was taken: clients of another would wait without end.
    ///
    /// # Errors
    /// Names the others.
    pub(super) fn check_all_taken(&self) -> Result<()> {
        let left: Vec<String> = self.sockets().iter().map(Passed::words).collect();
        if left.is_empty() {
            return Ok(());
        }
        bail!(
            "the service manager listens at {} for this daemon, which serves nothing there: give the daemon that address, or \
             take it out of the `.socket` unit",
            left.join(" and ")
        );
    }

    fn take(&self, is_it: impl Fn(&Passed) -> bool) -> Option<Passed> {
        let mut sockets = self.sockets();
        let at = sockets.iter().position(is_it)?;
        Some(sockets.swap_remove(at))
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<Passed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the descriptor with this index, whatever its kind is.
fn take(from: &mut ListenFd, index: usize) -> Result<Passed> {
    let (unix, sequential) = (AddressFamily::UNIX.as_raw(), SocketType::SEQPACKET.as_raw());
    let kind = i32::try_from(sequential).expect("a small number");
    // A descriptor of another kind stays.
    let taken = if let Ok(Some(listener)) = from.take_unix_listener(index) {
        Passed::Unix(listener)
    } else if let Ok(Some(listener)) =
        from.take_custom(index, unix.into(), kind, "socket of messages")
    {
        Passed::Sequential(listener)
    } else {
        let listener = from.take_tcp_listener(index)?;
        Passed::Tcp(listener.context("a descriptor was taken twice")?)
    };
    if !taken.is_listening() {
        bail!("{} does not listen", taken.words());
    }
    Ok(taken)
}

/// Returns `true` if two paths name one socket. The folder may be reached by a link, as `/var/run` is.
fn is_same(one: Option<PathBuf>, other: &Path) -> bool {
    let resolved = |path: &Path| {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok())?;
        Some(folder.join(path.file_name()?))
    };
    one.is_some_and(|one| {
        one == other || (resolved(&one).is_some() && resolved(&one) == resolved(other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_once_by_its_address_and_one_that_is_left_is_named() {
        let folder = std::env::temp_dir().join(format!("weft-passed-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("real")).unwrap();
        let (link, path) = (folder.join("link"), folder.join("real/vpc.sock"));
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(folder.join("real"), &link).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = tcp.local_addr().unwrap();
        let unix = UnixListener::bind(&path).unwrap();
        let passed = PassedSockets(Mutex::new(vec![Passed::Tcp(tcp), Passed::Unix(unix)]));

        assert!(passed.take_tcp(SocketAddr::from(([127, 0, 0, 1], 1))).is_none());
        assert!(passed.take_sequential(&path).is_none(), "it is of the other kind");
        assert!(passed.take_unix(&folder.join("other.sock")).is_none());
        assert!(passed.take_unix(&link.join("vpc.sock")).is_some());
        assert!(passed.take_unix(&path).is_none(), "it is taken");
        let error = passed.check_all_taken().unwrap_err().to_string();
        assert!(error.contains(&at.to_string()) && !error.contains("vpc.sock"), "{error}");
        assert!(passed.take_tcp(at).is_some());
        passed.check_all_taken().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
