//! Addresses of servers as people write them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, anyhow};

/// Returns the address of `host`, `host:port`, `address` or `[address]:port`.
///
/// # Errors
/// Returns an error if the name does not resolve.
pub(crate) fn resolve(server: &str, default_port: u16) -> Result<SocketAddr> {
    if let Ok(address) = server.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(address) = server.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, default_port));
    }
    let target =
        if server.contains(':') { server.into() } else { format!("{server}:{default_port}") };
    target
        .to_socket_addrs()
        .with_context(|| format!("cannot resolve {server:?}; expected HOST or HOST:PORT"))?
        .next()
        .ok_or_else(|| anyhow!("{server:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_optional() {
        for (text, want) in [
            ("10.2.0.2", "10.2.0.2:4792"),
            ("10.2.0.2:99", "10.2.0.2:99"),
            ("::1", "[::1]:4792"),
            ("[::1]", "[::1]:4792"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(resolve(text, 4792).unwrap(), want.parse().unwrap(), "{text}");
        }
        assert_eq!(resolve("localhost:99", 4792).unwrap().port(), 99);
    }

    #[test]
    fn a_port_that_is_none_is_refused() {
        assert!(resolve("10.2.0.2:99999", 4792).is_err());
    }
}
