//! The socket that queries and changes a running daemon: one JSON object per line in each direction.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Uid, geteuid};
use serde::{Deserialize, Serialize};
use weft_units::Probability;
use weft_vpc::{AclConfig, Limit};

use crate::config::{Config, Destination, Network, Port, Route};
use crate::{OpenError, Reloaded, Status};

mod connection;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

use connection::Connection;
pub use connection::MAX_REQUEST_BYTES;

/// Largest number of clients connected at a time.
const MAX_CLIENTS: usize = 64;

/// A request to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Returns the daemon's status.
    Status,
    /// Returns the changes made by command that are in force.
    Changes,
    /// Adds a tenant's interface.
    AddPort {
        /// The interface.
        port: Box<Port>,
    },
    /// Removes a tenant's interface.
    RemovePort {
        /// Its name.
        name: String,
    },
    /// Sets a network's configuration and its other hosts.
    SetNetwork {
        /// The network.
        network: Network,
    },
    /// Adds a host to a network, or removes it.
    Peer {
        /// The network's number.
        vni: u32,
        /// The host's address.
        peer: IpAddr,
        /// `true` to remove the host.
        remove: bool,
    },
    /// Sets the place of a machine or the next hop of a prefix.
    SetRoute {
        /// The route.
        route: Route,
    },
    /// Removes a route.
    ForgetRoute {
        /// The network's number.
        vni: u32,
        /// The route's destination.
        destination: Destination,
    },
    /// Replaces the configuration.
    Reload {
        /// The new configuration.
        config: Box<Config>,
        /// `true` to drop the changes made by command.
        #[serde(default)]
        discard_changes: bool,
    },
    /// Sets the rate limits of a port.
    Limit {
        /// The port's name.
        port: String,
        /// The limit on traffic to its tenant.
        ingress: Option<Limit>,
        /// The limit on traffic from its tenant.
        egress: Option<Limit>,
    },
    /// Drops frames between the switch and a port on purpose.
    Lose {
        /// The port's name.
        port: String,
        /// The probability of a drop.
        loss: Probability,
    },
    /// Starts a capture of a port to a file, or stops it.
    Capture {
        /// The port's name.
        port: String,
        /// The file on the daemon's machine; `None` stops the capture.
        file: Option<PathBuf>,
    },
    /// Sets the access list of a port, or removes it.
    Acl {
        /// The port's name.
        port: String,
        /// The list; `None` removes it.
        acl: Option<AclConfig>,
    },
}

/// A daemon's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The request was carried out.
    Done,
    /// The changes made by command that are in force, as the requests that made them.
    Changes(Vec<Request>),
    /// The configuration was replaced.
    Reloaded(Reloaded),
    /// The daemon's status.
    Status(Box<Status>),
    /// The request was refused, with the reason.
    Refused(String),
}

/// The number of a client while it is connected.
pub(crate) type Client = u64;

/// The listening socket and the connected clients.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    /// The path of the socket, unless a service manager keeps it.
    own_path: Option<PathBuf>,
    clients: BTreeMap<Client, Connection>,
    next: Client,
}

impl Control {
    /// Listens at `path`, where this program's user and root may connect. A socket on which no process listens any
    /// more is replaced.
    ///
    /// # Errors
    /// Another process listens there, or the system refuses.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let refused = |cause| OpenError::Control { socket: path.display().to_string(), cause };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(refused)?;
        }
        if UnixStream::connect(path).is_ok() {
            return Err(refused(io::ErrorKind::AddrInUse.into()));
        }
        match fs::remove_file(path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(refused(cause)),
            _ => {}
        }
        let listener = listen(path).map_err(refused)?;
        let own_path = Some(path.to_owned());
        Ok(Self { listener, own_path, clients: BTreeMap::new(), next: 0 })
    }

    /// Uses a socket that a service manager listens with at `path`, and which it keeps.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn on(listener: UnixListener, path: &Path) -> Result<Self, OpenError> {
        let refused = |cause| OpenError::Control { socket: path.display().to_string(), cause };
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Self { listener, own_path: None, clients: BTreeMap::new(), next: 0 })
    }

    /// Returns the descriptors to wait on.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.values().map(Connection::fd);
        std::iter::once(self.listener.as_fd()).chain(clients)
    }

    /// Returns the requests that have arrived; a line that is no request is an error to be sent back.
    pub(crate) fn poll_requests(&mut self) -> Vec<(Client, Result<Request, String>)> {
        while let Ok((stream, _)) = self.listener.accept() {
            let full = self.clients.len() >= MAX_CLIENTS;
            if full || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut connection = Connection::new(stream);
            match check_user(connection.fd()) {
                Ok(()) => {
                    self.clients.insert(self.next, connection);
                    self.next += 1;
                }
                // The client may have closed: the refusal has no other receiver.
                Err(refusal) => {
                    let answer = Answer::Refused(refusal.to_string());
                    drop(connection.send(&line_of(&answer)));
                }
            }
        }
        let mut requests = vec![];
        self.clients.retain(|&client, connection| {
            let open = connection.receive();
            while let Some(line) = connection.next_line() {
                let parse = |line: Vec<u8>| {
                    serde_json::from_slice(&line).map_err(|error| error.to_string())
                };
                requests.push((client, line.map_err(|error| error.to_string()).and_then(parse)));
            }
            // A client that sent a request and closed its half still reads the answer.
            open || requests.iter().any(|(requesting, _)| *requesting == client)
        });
        requests
    }

    /// Sends an answer to a client. A client that does not read is dropped.
    pub(crate) fn answer(&mut self, client: Client, answer: Result<Answer, String>) {
        let Some(connection) = self.clients.get_mut(&client) else { return };
        let line = line_of(&answer.unwrap_or_else(Answer::Refused));
        if connection.send(&line).is_err() {
            self.clients.remove(&client);
        }
    }
}

/// Listens at `path`, where only this program's user and root may connect, whatever its umask: the socket has its
/// mode before it has a name (unix(7)).
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, i32::try_from(MAX_CLIENTS).expect("a small number"))?;
    Ok(UnixListener::from(socket))
}

/// The reason that a client may not send requests.
#[derive(Debug, thiserror::Error)]
enum UserError {
    /// The kernel does not report the client's user.
    #[error("the user of the client is unknown: {0}")]
    Unknown(#[source] nix::Error),
    /// The client is of another user.
    #[error("user {user} may not ask this daemon: only root and its own user {own} may (sudo)")]
    Other { user: u32, own: u32 },
}

/// Refuses clients of other users, who can connect if the socket's mode was changed: a request may name any file
/// that this program can write.
fn check_user(client: BorrowedFd<'_>) -> Result<(), UserError> {
    // rustix takes process 0 for an error, which is that of a client outside this process namespace.
    let credentials = getsockopt(&client, PeerCredentials).map_err(UserError::Unknown)?;
    let user = Uid::from_raw(credentials.uid());
    if is_allowed(user, geteuid()) {
        return Ok(());
    }
    Err(UserError::Other { user: user.as_raw(), own: geteuid().as_raw() })
}

fn is_allowed(user: Uid, own: Uid) -> bool {
    user.is_root() || user == own
}

fn line_of(answer: &Answer) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer).expect("an answer has no map with other keys");
    line.push(b'\n');
    line
}

impl Drop for Control {
    fn drop(&mut self) {
        self.own_path.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// The reason that a request to a daemon got no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No process listens on the socket.
    #[error("no daemon at {} (start one: `weft vpc serve`, or name its --control)", socket.display())]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The daemon would refuse a request of this length.
    #[error(transparent)]
    TooLong(#[from] connection::TooLong),
    /// The connection ended before the answer.
    #[error("the daemon at {} ended the connection before it answered", socket.display())]
    Ended {
        /// The socket.
        socket: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The answer cannot be read.
    #[error("the answer of the daemon at {} is not one that this version reads", socket.display())]
    Malformed {
        /// The socket.
        socket: PathBuf,
        /// The first thing that is wrong.
        #[source]
        cause: serde_json::Error,
    },
}

/// Sends a request to the daemon at `socket` and returns its answer.
///
/// # Errors
/// See [`RequestError`].
pub fn send_request(socket: &Path, request: &Request) -> Result<Answer, RequestError> {
    send_within(socket, request, None)
}

/// Sends a request as [`send_request`] does, and gives up after a silence of `limit`.
///
/// # Errors
/// See [`RequestError`]; a silence is `Ended`.
pub fn send_within(
    socket: &Path,
    request: &Request,
    limit: Option<Duration>,
) -> Result<Answer, RequestError> {
    let mut line = serde_json::to_vec(request).expect("a request has no map with other keys");
    line.push(b'\n');
    connection::check_length(line.len())?;
    let no_daemon = |cause| RequestError::NoDaemon { socket: socket.into(), cause };
    let ended = |cause| RequestError::Ended { socket: socket.into(), cause };
    let mut stream = UnixStream::connect(socket).map_err(no_daemon)?;
    let limited = stream.set_write_timeout(limit).and_then(|()| stream.set_read_timeout(limit));
    limited.and_then(|()| stream.write_all(&line)).map_err(ended)?;
    let mut answer = String::new();
    if BufReader::new(stream).read_line(&mut answer).map_err(ended)? == 0 {
        return Err(ended(io::ErrorKind::UnexpectedEof.into()));
    }
    let malformed = |cause| RequestError::Malformed { socket: socket.into(), cause };
    serde_json::from_str(&answer).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn only_this_user_and_root_reach_the_socket_whatever_the_umask_is() {
        let path = std::env::temp_dir().join(format!("weft-control-{}.sock", std::process::id()));
        let mut control = Control::open(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // This user may connect.
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"{\"do\":\"status\"}\n").unwrap();
        assert!(matches!(control.poll_requests()[..], [(_, Ok(Request::Status))]));
        let (own, other) = (Uid::from_raw(7), Uid::from_raw(8));
        assert_eq!([own, Uid::ROOT, other].map(|user| is_allowed(user, own)), [true, true, false]);
    }

    /// The manager would serve the next daemon with it.
    #[test]
    fn a_given_socket_is_served_and_outlives_the_daemon() {
        let path = std::env::temp_dir().join(format!("weft-given-{}.sock", std::process::id()));
        let _ = fs::remove_file(&path);
        let given = UnixListener::bind(&path).unwrap();
        // A client that comes before the daemon.
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"{\"do\":\"status\"}\n").unwrap();
        let mut control = Control::on(given.try_clone().unwrap(), &path).unwrap();
        assert!(matches!(control.poll_requests()[..], [(_, Ok(Request::Status))]));
        assert!(control.poll_requests().is_empty(), "it waits for no other client");
        drop(control);
        assert!(path.exists());
        fs::remove_file(path).unwrap();
    }

    /// Checks the attack of another user of this host after the socket's mode was opened by mistake.
    #[test]
    fn another_user_is_refused_whatever_the_sockets_mode_is() {
        let nobody = Uid::from_raw(65_534);
        if !geteuid().is_root() {
            return weft_testkit::skip(
                "requests of another user",
                "only root becomes another user",
            );
        }
        let path = std::env::temp_dir().join(format!("weft-others-{}.sock", std::process::id()));
        let mut control = Control::open(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let other_user = std::thread::spawn(move || {
            // Only this thread's user changes, as the kernel defines it.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(b"{\"do\":\"status\"}\n").unwrap();
            client
        });
        let client = other_user.join().unwrap();
        assert!(control.poll_requests().is_empty(), "its request is not even read");
        let mut answer = String::new();
        BufReader::new(client).read_line(&mut answer).unwrap();
        assert!(answer.contains("user 65534 may not ask this daemon"), "{answer}");
    }

    /// Checks a daemon in a container whose client is in the system around it: the kernel reports it as process 0.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "another process is waited for in real time")]
    fn a_client_outside_the_process_namespace_is_served() {
        const INSIDE: &str = "WEFT_TEST_CONTROL_SOCKET";
        if let Some(path) = std::env::var_os(INSIDE) {
            let mut control = Control::open(Path::new(&path)).unwrap();
            let began = Instant::now();
            while !matches!(control.poll_requests()[..], [(_, Ok(Request::Status))]) {
                assert!(began.elapsed() < Duration::from_secs(30), "no request is accepted");
                weft_testkit::pause();
            }
            return;
        }
        if !geteuid().is_root() {
            return weft_testkit::skip(
                "requests from outside a container",
                "only root makes a process namespace",
            );
        }
        let path = std::env::temp_dir().join(format!("weft-outside-{}.sock", std::process::id()));
        let mut inside = Command::new("unshare");
        inside.args(["--pid", "--fork", "--kill-child"]).arg(std::env::current_exe().unwrap());
        inside.arg("control::tests::a_client_outside_the_process_namespace_is_served");
        let mut daemon = inside.arg("--exact").env(INSIDE, &path).spawn().unwrap();
        let mut client = loop {
            match UnixStream::connect(&path) {
                Ok(client) => break client,
                Err(_) => assert!(daemon.try_wait().unwrap().is_none(), "the daemon has ended"),
            }
        };
        client.write_all(b"{\"do\":\"status\"}\n").unwrap();
        assert!(daemon.wait().unwrap().success());
    }
}
