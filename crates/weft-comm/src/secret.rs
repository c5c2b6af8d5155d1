//! Numbers computed from texts: those that only ranks of a job can compute, which ranks send on each channel, and those
//! of servers.

use std::net::SocketAddr;

use ring::hmac::{HMAC_SHA256, Key, sign};
use weft_guard::Token;

/// Returns the number of the group whose ranks listen at these addresses. Two groups cannot listen at the same
/// addresses, and without the job's token the number cannot be computed from the addresses.
pub(crate) fn group_number(
    token: Option<&Token>,
    addresses: &[SocketAddr],
    agreement: &str,
) -> u64 {
    let key = token.map_or("", Token::reveal);
    number(key.as_bytes(), &format!("group {addresses:?} {agreement}"))
}

/// Returns the number of a server: a text that is equal at its ranks.
pub(crate) fn server_number(text: &str) -> u64 {
    number(b"server", text)
}

/// Returns the number in the name of a group's job at a route controller, whose readers see names.
pub(crate) fn job_number(group: u64) -> u64 {
    number(&group.to_le_bytes(), "job")
}

/// Returns the first eight bytes of HMAC-SHA256 (RFC 2104).
fn number(key: &[u8], text: &str) -> u64 {
    let tag = sign(&Key::new(HMAC_SHA256, key), text.as_bytes());
    u64::from_le_bytes(tag.as_ref()[..8].try_into().expect("it has 32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attacker: a host that knows the ranks' addresses and their agreement.
    #[test]
    fn a_groups_number_does_not_follow_from_addresses() {
        let addresses = ["10.0.0.1:7000".parse().unwrap(), "10.0.0.2:7000".parse().unwrap()];
        let [one, other] = [Token::random().unwrap(), Token::random().unwrap()];
        let of = |token| group_number(token, &addresses, "ranks=2");
        assert_eq!(of(Some(&one)), of(Some(&one)));
        assert_ne!(of(Some(&one)), of(Some(&other)));
        assert_ne!(of(Some(&one)), of(None));
        assert_ne!(of(None), group_number(None, &addresses, "ranks=2,lanes=1"));
    }
}
