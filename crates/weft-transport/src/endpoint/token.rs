//! Proof of address without memory: a keyed hash of who asks and when (as SYN cookies and QUIC's
//! Retry do).

use core::hash::{Hash, Hasher};
use core::net::IpAddr;

use siphasher::sip::SipHasher24;
use weft_units::Instant;

use super::secret::{Purpose, Secret};

/// A token is good for this long at least, and twice as long at most.
const EPOCH_NANOS: u64 = 8_000_000_000;

/// Makes and checks tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    key: (u64, u64),
}

/// Who asks: address, receive port, and the id it chose.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Asker {
    pub(super) ip: IpAddr,
    pub(super) receive_port: u16,
    pub(super) cid: u32,
}

impl Tokens {
    pub(super) fn new(secret: &Secret) -> Self {
        let draw = |half| secret.draw(Purpose::TokenKey, half);
        Self { key: (draw(0), draw(1)) }
    }

    /// The token for `asker`. Never zero, which stands for no token.
    pub(super) fn make(&self, now: Instant, asker: &Asker) -> u64 {
        self.of_epoch(now.as_nanos() / EPOCH_NANOS, asker)
    }

    /// Whether `token` was made for `asker` not long ago.
    pub(super) fn check(&self, now: Instant, asker: &Asker, token: u64) -> bool {
        let epoch = now.as_nanos() / EPOCH_NANOS;
        [epoch, epoch.saturating_sub(1)].iter().any(|&at| self.of_epoch(at, asker) == token)
    }

    fn of_epoch(&self, epoch: u64, asker: &Asker) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        epoch.hash(&mut hasher);
        asker.hash(&mut hasher);
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
        let asker = Asker { ip: Ipv4Addr::LOCALHOST.into(), receive_port: 7, cid: 9 };
        let now = Instant::from_nanos(EPOCH_NANOS * 5 - 1);
        let token = tokens.make(now, &asker);
        assert!(tokens.check(now + Duration::from_secs(8), &asker, token));
        assert!(!tokens.check(now + Duration::from_secs(17), &asker, token));
        assert!(!tokens.check(now, &Asker { receive_port: 8, ..asker }, token));
        assert!(!tokens.check(now, &Asker { cid: 8, ..asker }, token));
        assert!(!Tokens::new(&Secret::new([2; 16])).check(now, &asker, token));
        assert!(!tokens.check(now, &asker, 0));
    }
}
