//! The TCP streams that carry channels when RDMA cannot. A stream that carries nothing costs a poll nothing: the context
//! names the streams that have bytes to write, and epoll those that have bytes to read.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::event::epoll::{self, EventFlags};
use weft_msg::ChannelId;
use weft_units::Duration;

use super::{ChannelStream, Node, NodeError, Source};
use crate::clock;
use crate::greeting::would_block;

/// Maximum bytes moved between a channel and its stream at a time.
const CHUNK: usize = 64 << 10;
/// The time after the last byte of a stream in which its node polls the sockets more often.
const ACTIVE_FOR: Duration = Duration::from_millis(100);

/// Returns `true` if the environment requires encryption, by the rule of Weft's device (`docs/encryption.md`): the mode is
/// `required`, or no mode is set and a key or a list of peers is. An RDMA device of another maker encrypts nothing, but
/// the variables say that its owner must not send in the clear. A mode that the device would refuse counts as `required`.
pub(super) fn encryption_is_required(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let value = |name| variable(name).filter(|value| !value.is_empty());
    value("WEFT_ENCRYPTION").map_or_else(
        || ["WEFT_PRESHARED_KEY", "WEFT_PEERS"].into_iter().any(|name| value(name).is_some()),
        |mode| !matches!(mode.to_string_lossy().trim(), "off" | "preferred"),
    )
}

impl Node {
    /// Makes the connection of a greeting the channel's stream.
    pub(super) fn attach_stream(
        &mut self,
        channel: ChannelId,
        socket: TcpStream,
    ) -> Result<(), NodeError> {
        let _ = socket.set_nodelay(true);
        let number = self.take_number();
        let interest = EventFlags::IN;
        self.watch(&socket, Source::Stream, number, interest)?;
        self.context.attach_stream(channel);
        self.stream_numbers.insert(number, channel);
        let stream = ChannelStream { socket, number, interest, unwritten: Vec::new() };
        self.chunk.resize(CHUNK, 0);
        self.streams.insert(channel, stream);
        Ok(())
    }

    /// Returns `true` if a stream carried bytes a short time ago: more will follow.
    pub(super) fn has_active_stream(&self) -> bool {
        self.streams_active_at.is_some_and(|at| clock::now().since(at) < ACTIVE_FOR)
    }

    /// Serves a stream that is readable or writable.
    pub(super) fn serve_stream(&mut self, number: u64) {
        let Some(&channel) = self.stream_numbers.get(&number) else { return };
        let mut chunk = core::mem::take(&mut self.chunk);
        let alive = self.read_stream(channel, &mut chunk) && self.write_stream(channel, &mut chunk);
        self.chunk = chunk;
        self.end_or_watch(channel, alive);
    }

    /// Serves the streams that the context names, and those whose channel had no room for more bytes.
    #[inline(always)]
    pub(super) fn serve_pending_streams(&mut self) {
        if self.context.has_pending_stream() || !self.full_streams.is_empty() {
            self.serve_streams();
        }
    }

    fn serve_streams(&mut self) {
        while let Some(channel) = self.context.poll_pending_stream() {
            if !self.context.has_channel(channel) {
                self.drop_stream(channel);
                continue;
            }
            let mut chunk = core::mem::take(&mut self.chunk);
            let alive = self.write_stream(channel, &mut chunk);
            self.chunk = chunk;
            self.end_or_watch(channel, alive);
        }
        for channel in core::mem::take(&mut self.full_streams) {
            self.watch_stream(channel);
        }
    }

    /// Reads a stream as long as its channel has room. Returns `false` if the stream ended or broke.
    fn read_stream(&mut self, channel: ChannelId, chunk: &mut [u8]) -> bool {
        while self.context.stream_wants_to_read(channel) {
            let Some(stream) = self.streams.get_mut(&channel) else { return true };
            match stream.socket.read(chunk) {
                Ok(0) => return false,
                Ok(got) => {
                    let now = clock::now();
                    self.streams_active_at = Some(now);
                    self.context.handle_stream(now, channel, &chunk[..got]);
                }
                Err(error) if would_block(&error) => break,
                Err(_) => return false,
            }
        }
        true
    }

    /// Writes the channel's bytes until the socket accepts no more. Returns `false` if the stream broke.
    fn write_stream(&mut self, channel: ChannelId, chunk: &mut [u8]) -> bool {
        loop {
            let Some(stream) = self.streams.get_mut(&channel) else { return true };
            if stream.unwritten.is_empty() {
                let filled = self.context.poll_stream(channel, chunk);
                if filled == 0 {
                    return true;
                }
                self.streams_active_at = Some(clock::now());
                stream.unwritten.extend_from_slice(&chunk[..filled]);
            }
            match stream.socket.write(&stream.unwritten) {
                Ok(written) => drop(stream.unwritten.drain(..written)),
                Err(error) if would_block(&error) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Waits for the stream's next event. If it ended or broke, its channel ends too if the stream carries it.
    fn end_or_watch(&mut self, channel: ChannelId, alive: bool) {
        if alive {
            return self.watch_stream(channel);
        }
        self.drop_stream(channel);
        self.context.handle_stream_end(clock::now(), channel);
    }

    /// Changes the events of the stream that epoll reports, if others are needed now.
    fn watch_stream(&mut self, channel: ChannelId) {
        let Some(stream) = self.streams.get_mut(&channel) else { return };
        let has_room = self.context.stream_wants_to_read(channel);
        if !has_room && !self.full_streams.contains(&channel) {
            self.full_streams.push(channel);
        }
        let wants = |wanted, flag| if wanted { flag } else { EventFlags::empty() };
        let interest =
            wants(!stream.unwritten.is_empty(), EventFlags::OUT) | wants(has_room, EventFlags::IN);
        if interest != stream.interest {
            stream.interest = interest;
            // The socket was added before, so the change needs no memory and cannot fail.
            let data = Source::Stream.data(stream.number);
            let _ = epoll::modify(&self.epoll, &stream.socket, data, interest);
        }
    }

    fn drop_stream(&mut self, channel: ChannelId) {
        if let Some(stream) = self.streams.remove(&channel) {
            let _ = epoll::delete(&self.epoll, &stream.socket);
            self.stream_numbers.remove(&stream.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_or_peers_require_encryption_unless_a_mode_is_set() {
        let with = |set: &[(&str, &str)]| {
            let found = |name: &str| set.iter().find(|(other, _)| *other == name);
            encryption_is_required(|name| found(name).map(|(_, value)| value.into()))
        };
        assert!(!with(&[]));
        assert!(with(&[("WEFT_ENCRYPTION", "required")]));
        assert!(with(&[("WEFT_PRESHARED_KEY", "psk")]) && with(&[("WEFT_PEERS", "peers")]));
        assert!(!with(&[("WEFT_ENCRYPTION", "preferred"), ("WEFT_PRESHARED_KEY", "psk")]));
        // An empty variable counts as none, and spaces around a value do not count.
        assert!(with(&[("WEFT_ENCRYPTION", " required\n")]));
        assert!(with(&[("WEFT_ENCRYPTION", ""), ("WEFT_PRESHARED_KEY", "psk")]));
        assert!(!with(&[("WEFT_PEERS", "")]) && !with(&[("WEFT_ENCRYPTION", "off ")]));
    }
}
