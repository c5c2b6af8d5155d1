//! Connections to rank 0 that have not yet identified their rank. Each has a limited time to send its line,
//! independently of the others. Until it has presented the job's token, the length of its line is limited too.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags};
use weft_guard::Refusals;
use weft_units::{Duration, Instant};

use crate::CommError;
use crate::error::socket;
use crate::line::{Line, NAME, Progress};
use crate::wait::wait;

/// Maximum number of pending connections; beyond it the one that has waited longest is closed.
const MAX_CALLERS: usize = 256;
/// Maximum number of connections accepted before the pending ones are read again.
const MAX_ACCEPTED: usize = 64;
/// The socket of rank 0, and its pending connections.
#[derive(Debug)]
pub(crate) struct Callers {
    listener: TcpListener,
    /// The connections, in the order of their arrival.
    callers: Vec<Caller>,
    /// The time limit for a connection to send its line.
    hello_timeout: Duration,
    refusals: Refusals,
}

/// A pending connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) connection: TcpStream,
    pub(crate) peer: SocketAddr,
    line: Line,
    until: Instant,
}

impl Callers {
    /// Listens at rank 0's address.
    ///
    /// # Errors
    /// Returns `Socket` if the kernel refuses it.
    pub(crate) fn listen(at: SocketAddr, hello_timeout: Duration) -> Result<Self, CommError> {
        let listening = format!("listening at {at}");
        let listener = TcpListener::bind(at).map_err(socket(listening.clone()))?;
        listener.set_nonblocking(true).map_err(socket(listening))?;
        Ok(Self { listener, callers: Vec::new(), hello_timeout, refusals: Refusals::default() })
    }

    /// Waits until a connection has data, a new one arrives or one times out, but not beyond
    /// `until`.
    pub(crate) fn wait(&self, now: Instant, until: Instant) {
        let first = self.callers.iter().map(|it| it.until).fold(until, Instant::min);
        let mut watched = vec![PollFd::new(&self.listener, PollFlags::IN)];
        watched.extend(self.callers.iter().map(|it| PollFd::new(&it.connection, PollFlags::IN)));
        wait(&mut watched, first.since(now));
    }

    /// Accepts connections and returns their number. If too many are pending, the oldest is closed; the caller has read
    /// it before.
    ///
    /// # Errors
    /// Returns `Socket` if the kernel accepts none.
    pub(crate) fn accept(&mut self, now: Instant) -> Result<usize, CommError> {
        for accepted_count in 0..MAX_ACCEPTED {
            let (connection, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(accepted_count),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(socket("taking a rank's connection")(error)),
            };
            if self.callers.len() >= MAX_CALLERS {
                let oldest = self.callers.remove(0);
                self.refuse(oldest, "too many others came meanwhile", now);
            }
            // A socket that cannot be set non-blocking would delay all others.
            if connection.set_nonblocking(true).is_ok() {
                let until = now + self.hello_timeout;
                self.callers.push(Caller::new(connection, peer, until));
            }
        }
        Ok(MAX_ACCEPTED)
    }

    /// Returns a connection whose line is complete, with the line. `has_token` returns `true` if the beginning of a
    /// line contains the job's token. Connections that exceed a limit are closed.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        has_token: impl Fn(&str) -> bool,
    ) -> Option<(Caller, String)> {
        let mut at = 0;
        while at < self.callers.len() {
            match self.callers[at].read(now, &has_token) {
                Progress::Waiting => at += 1,
                Progress::Whole(line) => return Some((self.callers.remove(at), line)),
                Progress::Failed(why) => {
                    let caller = self.callers.remove(at);
                    self.refuse(caller, &why, now);
                }
            }
        }
        None
    }

    /// Closes a connection and logs its source address.
    pub(crate) fn refuse(&mut self, mut caller: Caller, why: &str, now: Instant) {
        // A peer that does not read the answer gets none.
        let _ = writeln!(caller.connection, "{NAME} error {why}");
        let source = caller.peer;
        if let Some(callers) = self.refusals.note(source.ip(), now) {
            tracing::warn!(%source, callers, why, "no rank of this job: its connection was closed");
        }
    }
}

impl Caller {
    pub(crate) const fn new(connection: TcpStream, peer: SocketAddr, until: Instant) -> Self {
        Self { connection, peer, line: Line::new(), until }
    }

    /// Reads received bytes until the line is complete, refused, or no more bytes have arrived.
    pub(crate) fn read(&mut self, now: Instant, has_token: impl Fn(&str) -> bool) -> Progress {
        let mut bytes = [0; 4096];
        loop {
            match self.connection.read(&mut bytes) {
                Ok(0) => return Progress::Failed("it hung up in the middle of its line".into()),
                Ok(count) => match self.line.push(&bytes[..count], &has_token) {
                    Progress::Waiting => {}
                    progress => return progress,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_late = now >= self.until;
                    let why = "it did not say in time who it is";
                    return if is_late { Progress::Failed(why.into()) } else { Progress::Waiting };
                }
                Err(error) => return Progress::Failed(error.to_string()),
            }
        }
    }
}
