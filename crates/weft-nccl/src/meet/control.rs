//! The control connection of two comms: a TCP connection that sets up their queue pairs, sets them up again after the network was
//! gone for longer than the device waits, and ends with either process.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};

use crate::handle::Nonce;
use crate::verbs::Endpoint;

/// Size of a message, bytes.
const LEN: usize = 64;
/// The first bytes of a message.
const MAGIC: [u8; 4] = *b"WNC1";

/// A message between two comms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A queue pair to connect to.
    Offer {
        /// Zero for the first queue pair; one more for each renewal.
        epoch: u32,
        /// The queue pair.
        from: Endpoint,
        /// Messages that the sender of the offer has received.
        received: u64,
        /// The listener's nonce.
        nonce: Nonce,
    },
    /// The connecting side has connected its queue pair.
    Ready,
    /// The receiving side closes.
    Farewell {
        /// Messages that it has received.
        received: u64,
    },
}

impl Message {
    fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        let kind = match self {
            Self::Offer { epoch, from, received, nonce } => {
                bytes[8..12].copy_from_slice(&epoch.to_le_bytes());
                bytes[12..16].copy_from_slice(&from.qpn.to_le_bytes());
                bytes[16..20].copy_from_slice(&from.psn.to_le_bytes());
                bytes[24..32].copy_from_slice(&received.to_le_bytes());
                bytes[32..48].copy_from_slice(&from.address.octets());
                bytes[48..64].copy_from_slice(&nonce);
                1_u32
            }
            Self::Ready => 2,
            Self::Farewell { received } => {
                bytes[24..32].copy_from_slice(&received.to_le_bytes());
                3
            }
        };
        bytes[4..8].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; LEN]) -> io::Result<Self> {
        let word =
            |from: usize| u32::from_le_bytes(bytes[from..from + 4].try_into().expect("4 bytes"));
        let long = |from: usize| <[u8; 16]>::try_from(&bytes[from..from + 16]).expect("16 bytes");
        let received = u64::from_le_bytes(bytes[24..32].try_into().expect("8 bytes"));
        match (bytes[..4] == MAGIC, word(4)) {
            (true, 1) => {
                let from =
                    Endpoint { qpn: word(12), psn: word(16), address: Ipv6Addr::from(long(32)) };
                Ok(Self::Offer { epoch: word(8), from, received, nonce: long(48) })
            }
            (true, 2) => Ok(Self::Ready),
            (true, 3) => Ok(Self::Farewell { received }),
            _ => {
                Err(io::Error::new(ErrorKind::InvalidData, "not a message of libnccl-net-weft.so"))
            }
        }
    }
}

/// The result of a look at the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Message(Message),
    /// Nothing has arrived.
    Nothing,
    /// The peer has closed the connection, or its process has ended.
    End,
}

/// One end of the connection. It never blocks.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    pub(crate) peer: SocketAddr,
    incoming: [u8; LEN],
    filled: usize,
    outgoing: Vec<u8>,
}

impl Control {
    /// Takes over a connected stream.
    ///
    /// # Errors
    /// The kernel refuses an option.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?;
        Ok(Self { stream, peer, incoming: [0; LEN], filled: 0, outgoing: Vec::new() })
    }

    /// Sends a message, or what the kernel takes of it; [`Self::poll`] sends the rest.
    pub(crate) fn send(&mut self, message: Message) {
        self.outgoing.extend_from_slice(&message.to_bytes());
        self.flush();
    }

    fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(taken) => drop(self.outgoing.drain(..taken)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A broken connection is reported by the next read.
                Err(_) => return,
            }
        }
    }

    /// Sends what is left to send, and returns what has arrived.
    ///
    /// # Errors
    /// The kernel has given the peer's host up, or the peer is not this plugin.
    pub(crate) fn poll(&mut self) -> io::Result<Received> {
        self.flush();
        while self.filled < LEN {
            match self.stream.read(&mut self.incoming[self.filled..]) {
                Ok(0) => return Ok(Received::End),
                Ok(len) => self.filled += len,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock => return Ok(Received::Nothing),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Ok(Received::End),
                    _ => return Err(error),
                },
            }
        }
        self.filled = 0;
        Message::from_bytes(&self.incoming).map(Received::Message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes_and_others_are_refused() {
        let from = Endpoint { qpn: 17, psn: 0xff_ffff, address: "2001:db8::7".parse().unwrap() };
        let offer = Message::Offer { epoch: 3, from, received: 1 << 40, nonce: [9; 16] };
        for message in [offer, Message::Ready, Message::Farewell { received: 5 }] {
            let mut bytes = message.to_bytes();
            assert_eq!(Message::from_bytes(&bytes).unwrap(), message);
            bytes[4] = 0;
            assert!(Message::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn a_message_in_pieces_is_whole_and_the_end_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut raw = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut control = Control::new(listener.accept().unwrap().0).unwrap();
        let bytes = Message::Ready.to_bytes();
        raw.write_all(&bytes[..10]).unwrap();
        assert_eq!(control.poll().unwrap(), Received::Nothing);
        raw.write_all(&bytes[10..]).unwrap();
        let until = |control: &mut Control, wanted| {
            for _ in 0..1_000_000 {
                match control.poll().unwrap() {
                    Received::Nothing => std::thread::yield_now(),
                    received => return assert_eq!(received, wanted),
                }
            }
            panic!("{wanted:?} does not arrive");
        };
        until(&mut control, Received::Message(Message::Ready));
        drop(raw);
        until(&mut control, Received::End);
    }
}
