//! Reception of clients' messages. A message may carry descriptors of any file: examining one, or closing it, may wait
//! for a file system that never answers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::tenant::{MemoryError, Provided, check_memory};
use super::{ClientId, Daemon};
use crate::attach::{Page, Request, Socket, decode};
use crate::engine::blocking;

/// A client's memory, if it came with the message; an error if a descriptor is something else.
pub(super) type Memory = Result<Option<Provided>, MemoryError>;

/// A message: its request, if valid, and the memory that came with it.
pub(super) type Received = (Option<Request>, Memory);

impl Daemon {
    /// Receives the next message of a client; returns `None` inside when the client has closed. `message` is a buffer
    /// for its bytes.
    ///
    /// # Errors
    /// There is none now, or it is longer than the maximum.
    pub(super) fn receive(
        &mut self,
        id: ClientId,
        message: &mut Vec<u8>,
    ) -> io::Result<Option<Received>> {
        let Some(client) = self.clients.get(&id) else { return Ok(None) };
        let (user, socket) = (client.user, client.socket.clone());
        // The kernel drops the descriptors of excluded users.
        let with_descriptors = !self.stalls.exclude(self.host.now(), user);
        let mut bytes = core::mem::take(message);
        let (received, stall) = blocking::run(move || {
            let received = receive_from(&socket, &mut bytes, with_descriptors);
            (received, bytes)
        });
        self.note_stall(user, stall);
        let Some((received, bytes)) = received else { return Ok(None) };
        *message = bytes;
        if self.clients.contains_key(&id) { received } else { Ok(None) }
    }

    /// Reads the signals of a client.
    pub(super) fn take_signals(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id) else { return };
        let Some(tenant) = &client.tenant else { return };
        let (user, signal) = (client.user, tenant.signal.clone());
        let (_, stall) = blocking::run(move || signal.take());
        self.note_stall(user, stall);
    }

    /// Drops a value that holds descriptors from a client of `user`, or a socket together with the messages not yet
    /// received from it.
    pub(super) fn close(&mut self, user: u32, holder: impl Send + 'static) {
        let (_, stall) = blocking::run(move || drop(holder));
        self.note_stall(user, stall);
    }
}

fn receive_from(
    socket: &Socket,
    bytes: &mut Vec<u8>,
    with_descriptors: bool,
) -> io::Result<Option<Received>> {
    let Some(descriptors) = socket.receive(bytes, true, with_descriptors)? else { return Ok(None) };
    let request = decode(bytes);
    let memory = take_memory(request.as_ref(), descriptors);
    Ok(Some((request, memory)))
}

/// Returns the memory of an attach request, after it is verified as the client's, and the rings if it names a place for
/// them; closes other descriptors.
pub(super) fn take_memory(request: Option<&Request>, descriptors: Vec<OwnedFd>) -> Memory {
    let Some(Request::Attach { probe, rings, .. }) = request else { return Ok(None) };
    let mut descriptors = descriptors.into_iter();
    let Some(memory) = descriptors.next() else { return Ok(None) };
    check_memory(memory.as_fd(), *probe)?;
    let rings = match (*rings, descriptors.next()) {
        (None, None) => None,
        (Some(offset), Some(file)) if Page::is_lasting(file.as_fd()) => {
            Some(Page::open_in(file, offset).map_err(|_| MemoryError::Rings)?)
        }
        (Some(_), Some(_)) => return Err(MemoryError::Rings),
        (None, Some(_)) | (Some(_), None) => return Ok(None),
    };
    Ok(Some(Provided { memory, rings }))
}
