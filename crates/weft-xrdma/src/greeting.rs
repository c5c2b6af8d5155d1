//! The greeting of two nodes over TCP: the client sends a request and its channel's offer, the server answers with its
//! own offer. After that the connection is closed, or stays as the channel's other carrier.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use weft_units::Instant;
use weft_wire::{ChannelOffer, ParseError};

/// First byte of a request for a channel whose connection is closed afterwards.
const CHANNEL: u8 = b'C';
/// First byte of a request for a channel whose connection stays open as its stream.
const CHANNEL_WITH_STREAM: u8 = b'S';

/// A TCP connection on which the greeting is not finished.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) socket: TcpStream,
    pub(crate) side: Side,
    /// The deadline of the greeting.
    pub(crate) until: Instant,
    /// Bytes that are not written yet.
    out: Vec<u8>,
    /// Bytes read so far.
    input: Vec<u8>,
}

/// The role of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The end that connects.
    Client {
        /// `true` if the connection stays open.
        stream: bool,
    },
    /// The end that accepts.
    Server,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The greeting is not complete.
    Waiting,
    /// The peer's offer arrived.
    Complete { offer: ChannelOffer, stream: bool },
}

/// The errors of a greeting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the connection was closed before the channel was there")]
    Closed,
    #[error("the peer does not speak X-RDMA: {0}")]
    Parse(#[from] ParseError),
    #[error("the peer does not speak X-RDMA: it begins with byte {0:#04x}")]
    Kind(u8),
}

impl Greeting {
    /// Returns the client's end, which requests a channel and sends its offer.
    pub(crate) fn client(
        socket: TcpStream,
        offer: &ChannelOffer,
        stream: bool,
        until: Instant,
    ) -> Self {
        let mut out = vec![if stream { CHANNEL_WITH_STREAM } else { CHANNEL }];
        out.extend_from_slice(&offer.emit());
        Self { socket, side: Side::Client { stream }, until, out, input: Vec::new() }
    }

    /// Returns the server's end, which waits for the client's offer.
    pub(crate) const fn server(socket: TcpStream, until: Instant) -> Self {
        Self { socket, side: Side::Server, until, out: Vec::new(), input: Vec::new() }
    }

    /// Sends the server's own offer.
    pub(crate) fn reply(&mut self, offer: &ChannelOffer) -> Result<(), GreetingError> {
        self.out.extend_from_slice(&offer.emit());
        self.write()
    }

    /// Returns `true` if bytes wait to be written.
    pub(crate) const fn wants_to_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Writes pending bytes until the socket accepts no more.
    pub(crate) fn write(&mut self) -> Result<(), GreetingError> {
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(0) => return Err(GreetingError::Closed),
                Ok(written) => drop(self.out.drain(..written)),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads only the bytes of the greeting: later bytes belong to the stream.
    pub(crate) fn read(&mut self) -> Result<Progress, GreetingError> {
        let prefix = usize::from(self.side == Side::Server);
        let wanted = prefix + ChannelOffer::LEN;
        while self.input.len() < wanted {
            let mut bytes = [0; 1 + ChannelOffer::LEN];
            match self.socket.read(&mut bytes[..wanted - self.input.len()]) {
                Ok(0) => return Err(GreetingError::Closed),
                Ok(got) => self.input.extend_from_slice(&bytes[..got]),
                Err(error) if would_block(&error) => return Ok(Progress::Waiting),
                Err(error) => return Err(error.into()),
            }
        }
        let stream = match (self.side, self.input[0]) {
            (Side::Client { stream }, _) => stream,
            (Side::Server, CHANNEL) => false,
            (Side::Server, CHANNEL_WITH_STREAM) => true,
            (Side::Server, other) => return Err(GreetingError::Kind(other)),
        };
        let offer = ChannelOffer::parse(&self.input[prefix..])?;
        self.input.clear();
        Ok(Progress::Complete { offer, stream })
    }
}

pub(crate) fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
