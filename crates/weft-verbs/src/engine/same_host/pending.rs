//! Accepted connections without a greeting. A neighbour greets in the call that connects; a connection that stays silent
//! is closed, so that it keeps no other from being accepted.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use weft_units::Instant;

use super::greeting::{self, Greeting, GreetingState};
use super::{ANSWER_TIME, listen_to};

/// Maximum number of accepted connections without a greeting.
pub(super) const MAX_PENDING_PEERS: usize = 16;

/// A connection that has not greeted yet.
#[derive(Debug)]
struct PendingPeer {
    socket: OwnedFd,
    /// The time after which it no longer waits for an answer itself.
    until: Instant,
}

/// The accepted connections without a greeting.
#[derive(Debug, Default)]
pub(super) struct PendingPeers(Vec<PendingPeer>);

impl PendingPeers {
    pub(super) fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.0.iter().map(|peer| &peer.socket)
    }

    /// Accepts connections, and returns those that have greeted.
    pub(super) fn poll_greetings(
        &mut self,
        listener: &OwnedFd,
        watch: &OwnedFd,
        now: Instant,
    ) -> Vec<(OwnedFd, Greeting)> {
        let mut greeted = Vec::new();
        self.receive(watch, now, &mut greeted);
        self.accept(listener, watch, now);
        self.receive(watch, now, &mut greeted);
        greeted
    }

    /// Moves connections that have greeted to `greeted`, and closes those that were refused or silent for too long.
    fn receive(&mut self, watch: &OwnedFd, now: Instant, greeted: &mut Vec<(OwnedFd, Greeting)>) {
        for peer in core::mem::take(&mut self.0) {
            match greeting::receive(&peer.socket, 2) {
                GreetingState::Nothing if now < peer.until => self.0.push(peer),
                GreetingState::Nothing | GreetingState::Refused => {}
                GreetingState::Accepted(greeting) => {
                    let _ = epoll::delete(watch, &peer.socket);
                    greeted.push((peer.socket, greeting));
                }
            }
        }
    }

    /// Accepts a limited number of connections, and closes those of processes that cannot become neighbours: any user's
    /// process may connect.
    fn accept(&mut self, listener: &OwnedFd, watch: &OwnedFd, now: Instant) {
        for _ in 0..MAX_PENDING_PEERS {
            if self.0.len() == MAX_PENDING_PEERS {
                return;
            }
            let Some(socket) = greeting::accept(listener) else { return };
            if greeting::may_read(&socket) && listen_to(watch, socket.as_fd()).is_ok() {
                self.0.push(PendingPeer { socket, until: now + ANSWER_TIME });
            }
        }
    }
}
