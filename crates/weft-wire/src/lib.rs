//! Packet headers as bytes and as values.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod ack;
mod bits;
mod data;
mod error;
mod message;
mod packet;
mod setup;
pub mod spec;

pub use ack::{AckHeader, AckType, BITMAP_PACKETS, Bitmap};
pub use bits::{Bits, U3, U4, U5, U6, U11, U13, U20, U24, WideBits};
pub use data::{DataHeader, Next};
pub use error::ParseError;
pub use message::MessageHeader;
pub use packet::{PACKET_TYPES, Packet};
pub use setup::{SetupHeader, SetupKind, Terms};
