//! The properties of every message header. The mutation test and the fuzz target both call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_coll::{HEAD, Head, HeadError};

/// Reads a head. What was read is written and read again the same, whatever stood in the bytes that mean nothing.
pub fn head(bytes: &[u8]) -> Result<(), HeadError> {
    let (head, body) = Head::parse(bytes)?;
    assert_eq!(body.len(), bytes.len() - HEAD);
    let again = head.emit();
    assert_eq!(again[..44], bytes[..44]);
    assert_eq!(Head::parse(&again), Ok((head, &[][..])));
    Ok(())
}
