//! The properties of every message header. The mutation test and the fuzz target both call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_coll::{HEADER_LEN, Header, HeaderError};

/// Parses a header and checks that it encodes to the same bytes, except for the reserved ones, and parses to the same
/// value.
///
/// # Errors
/// Returns the fault of the header.
pub fn header(bytes: &[u8]) -> Result<(), HeaderError> {
    let (header, body) = Header::parse(bytes)?;
    assert_eq!(body.len(), bytes.len() - HEADER_LEN);
    let again = header.emit();
    assert_eq!(again[..44], bytes[..44]);
    assert_eq!(Header::parse(&again), Ok((header, &[][..])));
    Ok(())
}
