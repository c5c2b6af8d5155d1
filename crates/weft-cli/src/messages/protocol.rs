//! The protocol of commands over messages: a request is either an echo, which names the length of its response, or an
//! order to ping other hosts.

use serde::{Deserialize, Serialize};

/// The first byte of an order; JSON follows. An echo begins with the length of its response.
const ORDER: u8 = 0xff;

/// Bytes of an echo's head. A response is shorter than 2^31 bytes, so the first byte is never [`ORDER`].
pub(crate) const HEAD: usize = 4;

/// Writes the head of an echo that asks for a response of this length.
pub(crate) fn echo(request: &mut [u8], response: u32) {
    let head = (response & 0x7fff_ffff).to_be_bytes();
    let len = request.len().min(HEAD);
    request[..len].copy_from_slice(&head[..len]);
}

/// An order to ping these hosts and to report the round-trip times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Addresses with ports.
    pub(crate) targets: Vec<std::net::SocketAddr>,
    /// Number of pings of each target.
    pub(crate) count: u32,
    /// Bytes of a ping and of its response.
    pub(crate) size: u32,
    /// The time after which a ping is lost, nanoseconds.
    pub(crate) timeout_ns: u64,
    /// The token of the client, if it has one.
    pub(crate) token: Option<String>,
}

/// The result of an order: outcomes in the order of its targets, or the reason for its refusal.
pub(crate) type OrderResult = Result<Vec<Outcome>, String>;

/// The results of the pings of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The round-trip times of answered pings, nanoseconds.
    pub(crate) round_trips_ns: Vec<u64>,
    /// Number of lost pings.
    pub(crate) lost: u32,
    /// The reason why there is no channel; `None` if there is one.
    pub(crate) error: Option<String>,
}

/// A request as its receiver reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Echo { response: u32 },
    Order(Order),
}

impl Request {
    /// Reads a request. One that is too short for a head gets a response of the same length.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        match bytes {
            [ORDER, json @ ..] => serde_json::from_slice(json).map(Self::Order),
            [a, b, c, d, ..] => {
                Ok(Self::Echo { response: u32::from_be_bytes([*a, *b, *c, *d]) & 0x7fff_ffff })
            }
            short => Ok(Self::Echo { response: u32::try_from(short.len()).unwrap_or(0) }),
        }
    }
}

impl Order {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![ORDER];
        bytes.extend(serde_json::to_vec(self).expect("plain values"));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        for len in [4, 5, 4096] {
            for response in [0, 7, 1 << 20, 0x7fff_ffff] {
                let mut bytes = vec![9; len];
                echo(&mut bytes, response);
                assert_eq!(Request::parse(&bytes).unwrap(), Request::Echo { response });
            }
        }
        let targets = vec!["10.0.0.1:4792".parse().unwrap(), "[::1]:1".parse().unwrap()];
        let order = Order { targets, count: 3, size: 64, timeout_ns: 5, token: None };
        assert_eq!(Request::parse(&order.emit()).unwrap(), Request::Order(order));
        assert!(Request::parse(&[ORDER, b'{']).is_err());
        assert_eq!(Request::parse(&[1, 2]).unwrap(), Request::Echo { response: 2 });
    }
}
