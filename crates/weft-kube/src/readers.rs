//! The clients that may read `/metrics`, by the rules of all daemons of Weft: this host, whoever shows the token, or anyone.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use weft_guard::{Token, TokenError, is_exposed};

/// The rights to read.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    token: Option<Token>,
    is_open: bool,
}

/// The reason that a page may not be served at an address.
#[derive(Debug, thiserror::Error)]
pub enum ReadersError {
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Other hosts reach the address, and nothing says which of them may read.
    #[error(
        "other hosts reach {0}, and there is no token that they would have to show to read /metrics: give one with \
         --token-file FILE (`weft adm token FILE` makes it), let them all read with --anyone-may-read, or listen at \
         127.0.0.1"
    )]
    Undecided(SocketAddr),
}

impl Readers {
    /// Returns the rights at an address.
    ///
    /// # Errors
    /// The token cannot be read or is open to other users; or other hosts reach the address, and neither is given.
    pub fn at(
        listen: SocketAddr,
        token_file: Option<&Path>,
        anyone_may_read: bool,
    ) -> Result<Self, ReadersError> {
        let token = token_file.map(Token::read).transpose()?;
        if is_exposed(listen.ip()) && token.is_none() && !anyone_may_read {
            return Err(ReadersError::Undecided(listen));
        }
        Ok(Self { token, is_open: anyone_may_read })
    }

    /// Returns `true` if a client at `peer` may read with the value of its header `Authorization`.
    pub(crate) fn include(&self, peer: IpAddr, authorization: Option<&str>) -> bool {
        let shown = authorization.and_then(|value| value.strip_prefix("Bearer "));
        let has_token = || self.token.as_ref().zip(shown).is_some_and(|(ours, it)| ours.is(it));
        self.is_open || !is_exposed(peer) || has_token()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 66));

    /// The attacker: a host that reaches the address, and has no token.
    #[test]
    fn other_hosts_read_with_the_token_or_where_anyone_may() {
        let everywhere = SocketAddr::from(([0; 4], 9466));
        let file = std::env::temp_dir().join(format!("weft-kube-token-{}", std::process::id()));
        let token = Token::create(&file).unwrap();
        let readers = Readers::at(everywhere, Some(&file), false).unwrap();
        std::fs::remove_file(&file).unwrap();
        let shown = format!("Bearer {}", token.reveal());
        let here = IpAddr::from([127, 0, 0, 1]);
        for (peer, authorization, want) in [
            (ELSEWHERE, None, false),
            (ELSEWHERE, Some(token.reveal()), false),
            (ELSEWHERE, Some("Bearer 0123456789abcdef"), false),
            (ELSEWHERE, Some(&*shown), true),
            (here, None, true),
        ] {
            assert_eq!(readers.include(peer, authorization), want, "{peer} {authorization:?}");
        }
        assert!(Readers::at(everywhere, None, true).unwrap().include(ELSEWHERE, None));
        assert!(matches!(Readers::at(everywhere, Some(&file), true), Err(ReadersError::Token(_))));
        let error = Readers::at(everywhere, None, false).unwrap_err().to_string();
        assert!(error.contains("--token-file") && error.contains("--anyone-may-read"), "{error}");
        assert!(Readers::at(([127, 0, 0, 1], 9466).into(), None, false).is_ok());
    }
}
