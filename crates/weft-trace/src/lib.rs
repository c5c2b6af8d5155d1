//! Packet captures: [`pcapng::Writer`] writes the file, and [`Datagram`] writes IP and UDP headers
//! for a payload that was captured without them. The agent and the simulator call both.
//!
//! ```
//! use weft_trace::Datagram;
//! use weft_wire::{Ecn, Ipv4Header};
//!
//! let payload = b"hello";
//! let datagram = Datagram {
//!     source: "10.0.0.1:49152".parse()?,
//!     destination: "10.0.0.2:4791".parse()?,
//!     ecn: Ecn::NotCapable,
//!     hop_limit: 64,
//!     payload_len: 5,
//! };
//! let mut headers = [0; Datagram::MAX_LEN];
//! let len = datagram.emit(&mut headers);
//! let packet = [&headers[..len], payload].concat();
//! let (ip, _) = Ipv4Header::parse(&packet)?;
//! assert_eq!((ip.ttl, packet.len()), (64, 33));
//! # #[cfg(feature = "std")] {
//! use weft_trace::pcapng::{Direction, LinkType, Record, Writer};
//!
//! let mut capture = Writer::new(Vec::new(), "the front page")?;
//! let interface = capture.interface("eth0", LinkType::Raw, 0)?;
//! let (direction, length) = (Direction::Out, packet.len());
//! capture.packet(&Record { interface, time_ns: 0, direction, bytes: &[&packet], length })?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![forbid(unsafe_code)]

mod datagram;
#[cfg(any(test, feature = "std"))]
pub mod pcapng;

pub use datagram::Datagram;
