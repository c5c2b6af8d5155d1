//! The protocol between a program's process and the daemon that has the device: messages over a Unix socket for rare
//! requests, rings in shared memory for work requests and completions. Neither side trusts the other: input is copied
//! once, then checked.

mod caller;
mod devices;
mod message;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod shared;
mod socket;
mod work;

pub use caller::CallError;
pub(crate) use caller::{Attachment, Caller};
pub use devices::{Amounts, DeviceCounters, DeviceLimits, DeviceState, Names, Totals};
pub(crate) use message::{
    Answer, Description, MAX_MESSAGE, PROTOCOL, Probe, Refusal, Request, Row, Run,
};
pub(crate) use shared::{Page, Signal};
pub use socket::default_socket;
pub(crate) use socket::{Socket, daemon_socket, listen_at};
pub(crate) use weft_ring::messages::{Consumer, Corrupt, Producer};
pub(crate) use work::{Awaited, Notice, Posted, Work};

use serde::{Deserialize, Serialize};

/// Encodes a message or a record.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    out.clear();
    let written = postcard::to_extend(value, core::mem::take(out));
    *out = written.expect("these values can be encoded, and a vector grows");
}

/// Returns the value that exactly these bytes encode, or `None`.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        Ok(_) | Err(_) => None,
    }
}
