//! Proof of address without state: a keyed hash of the requester and the time (as SYN cookies and QUIC's Retry do).

use core::hash::{Hash, Hasher};
use core::net::IpAddr;

use siphasher::sip::SipHasher24;
use weft_units::Instant;

use super::secret::{Purpose, Secret};

/// Minimum lifetime of a token, nanoseconds; the maximum is twice that.
const EPOCH_NANOS: u64 = 8_000_000_000;

/// A generator and checker of tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    key: (u64, u64),
}

/// The sender of a request: its address, its receive port, and the id it chose.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Requester {
    pub(super) ip: IpAddr,
    pub(super) receive_port: u16,
    pub(super) cid: u32,
}

impl Tokens {
    pub(super) fn new(secret: &Secret) -> Self {
        let draw = |half| secret.draw(Purpose::TokenKey, half);
        Self { key: (draw(0), draw(1)) }
    }

    /// Returns the token for `requester`. It is never zero, which stands for no token.
    pub(super) fn make(&self, now: Instant, requester: &Requester) -> u64 {
        self.of_epoch(now.as_nanos() / EPOCH_NANOS, requester)
    }

    /// Returns `true` if `token` was made for `requester` in this epoch or the one before.
    pub(super) fn check(&self, now: Instant, requester: &Requester, token: u64) -> bool {
        let epoch = now.as_nanos() / EPOCH_NANOS;
        [epoch, epoch.saturating_sub(1)].iter().any(|&at| self.of_epoch(at, requester) == token)
    }

    fn of_epoch(&self, epoch: u64, requester: &Requester) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        epoch.hash(&mut hasher);
        requester.hash(&mut hasher);
        hasher.finish().max(1)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use weft_units::Duration;

    use super::*;

    #[test]
    fn a_token_proves_one_address_for_a_while() {
        let tokens = Tokens::new(&Secret::new([1; 16]));
        let requester = Requester { ip: Ipv4Addr::LOCALHOST.into(), receive_port: 7, cid: 9 };
        let now = Instant::from_nanos(EPOCH_NANOS * 5 - 1);
        let token = tokens.make(now, &requester);
        assert!(tokens.check(now + Duration::from_secs(8), &requester, token));
        assert!(!tokens.check(now + Duration::from_secs(17), &requester, token));
        let elsewhere = Ipv4Addr::new(127, 0, 0, 2).into();
        assert!(!tokens.check(now, &Requester { ip: elsewhere, ..requester }, token));
        assert!(!tokens.check(now, &Requester { receive_port: 8, ..requester }, token));
        assert!(!tokens.check(now, &Requester { cid: 8, ..requester }, token));
        assert!(!Tokens::new(&Secret::new([2; 16])).check(now, &requester, token));
        assert!(!tokens.check(now, &requester, 0));
    }
}
