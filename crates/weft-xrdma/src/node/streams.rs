//! The TCP streams that carry channels when RDMA cannot.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::event::epoll::{self, EventFlags};
use weft_msg::ChannelId;

use super::{ChannelStream, Node, NodeError, Source};
use crate::clock;
use crate::greeting::would_block;

/// Maximum bytes moved between a channel and its stream at a time.
const CHUNK: usize = 64 << 10;

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
        self.watch(&socket, Source::Stream, number, EventFlags::IN)?;
        self.context.attach_stream(channel);
        self.stream_numbers.insert(number, channel);
        self.streams.insert(channel, ChannelStream { socket, number, unwritten: Vec::new() });
        Ok(())
    }

    /// Serves a stream that is readable or writable.
    pub(super) fn serve_stream(&mut self, number: u64) {
        let Some(&channel) = self.stream_numbers.get(&number) else { return };
        let mut bytes = vec![0; CHUNK];
        while self.context.stream_wants_to_read(channel) {
            let Some(stream) = self.streams.get_mut(&channel) else { return };
            match stream.socket.read(&mut bytes) {
                Ok(0) => return self.handle_stream_end(channel),
                Ok(got) => self.context.handle_stream(clock::now(), channel, &bytes[..got]),
                Err(error) if would_block(&error) => break,
                Err(_) => return self.handle_stream_end(channel),
            }
        }
        self.write_stream(channel);
    }

    /// Writes the channels' pending bytes to their streams.
    pub(super) fn write_streams(&mut self) {
        let waiting: Vec<ChannelId> = self.streams.keys().copied().collect();
        waiting.into_iter().for_each(|channel| self.write_stream(channel));
    }

    fn write_stream(&mut self, channel: ChannelId) {
        let mut chunk = vec![0; CHUNK];
        loop {
            let Some(stream) = self.streams.get_mut(&channel) else { return };
            if stream.unwritten.is_empty() {
                let filled = self.context.poll_stream(channel, &mut chunk);
                stream.unwritten.extend_from_slice(&chunk[..filled]);
            }
            if stream.unwritten.is_empty() {
                break;
            }
            match stream.socket.write(&stream.unwritten) {
                Ok(written) => drop(stream.unwritten.drain(..written)),
                Err(error) if would_block(&error) => break,
                Err(_) => return self.handle_stream_end(channel),
            }
        }
        let Some(stream) = self.streams.get(&channel) else { return };
        let wants = |wanted, flag| if wanted { flag } else { EventFlags::empty() };
        let flags = wants(!stream.unwritten.is_empty(), EventFlags::OUT)
            | wants(self.context.stream_wants_to_read(channel), EventFlags::IN);
        let data = Source::Stream.data(stream.number);
        let _ = epoll::modify(&self.epoll, &stream.socket, data, flags);
    }

    /// Handles a stream that the peer closed or that broke; its channel ends too if the stream carries it.
    fn handle_stream_end(&mut self, channel: ChannelId) {
        self.drop_stream(channel);
        self.context.handle_stream_end(clock::now(), channel);
    }

    /// Closes the streams of channels that are gone.
    pub(super) fn drop_ended_streams(&mut self) {
        let gone = |channel: &&ChannelId| self.context.status(**channel).is_none();
        let dead: Vec<ChannelId> = self.streams.keys().filter(gone).copied().collect();
        dead.into_iter().for_each(|channel| self.drop_stream(channel));
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
