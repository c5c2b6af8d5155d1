//! Access control of an HTTP server: the host names that it answers to, and the token that other hosts need.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Result, bail};
use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::Authority;
use hyper::{Uri, Version};
use weft_guard::{Token, is_exposed};

use super::{MAX_REQUEST, Reply};

/// Command-line options of access control.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct AccessOptions {
    /// A file with a token (`weft adm token FILE`): who shows it may give orders, and read from other hosts
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let whoever reaches the address read, without the token
    #[arg(long)]
    anyone_may_read: bool,
    /// A name that clients reach this server by, besides localhost and its addresses; others are refused
    #[arg(long = "host-name", value_name = "NAME")]
    host_names: Vec<String>,
}

/// Access rights of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    token: Option<Token>,
    anyone_may_read: bool,
    host_names: Vec<String>,
    /// Bytes that a request's body may have with the token; without, it may have 64 KiB.
    longest: usize,
}

impl AccessOptions {
    /// Returns the access rights at an address.
    ///
    /// # Errors
    /// The token's file cannot be read or is open to other users; other hosts reach the address, and there is neither a token
    /// nor leave for anyone to read.
    pub(crate) fn at(&self, listen: SocketAddr) -> Result<Access> {
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        if is_exposed(listen.ip()) && token.is_none() && !self.anyone_may_read {
            bail!(
                "other hosts reach {listen}, and there is no token that they would have to show: give one with \
                 --token-file FILE (`weft adm token FILE` makes it), let them all read with --anyone-may-read, or \
                 listen at 127.0.0.1"
            );
        }
        let host_names = self.host_names.iter().map(|name| plain(name)).collect();
        let anyone_may_read = self.anyone_may_read;
        Ok(Access { token, anyone_may_read, host_names, longest: 0 })
    }
}

impl Access {
    /// Returns the same access, where the body of a request with the token may have so many bytes.
    pub(crate) fn with_longest(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// # Errors
    /// The answer with which `who` refuses an order, if `shown` is not the token.
    pub(crate) fn check_order(&self, shown: Option<&str>, who: &str) -> Result<(), Reply> {
        let Some(token) = &self.token else {
            let why = format!("this one takes no orders: start {who} with --token-file");
            return Err(Reply::refuse(StatusCode::FORBIDDEN, &why));
        };
        if shown.is_some_and(|shown| token.is(shown)) {
            return Ok(());
        }
        let why = format!("that is not the token that {who} was given");
        Err(Reply::refuse(StatusCode::UNAUTHORIZED, &why))
    }

    /// # Errors
    /// The answer that refuses a reader at `peer`, if it needs the token and `shown` is not it.
    pub(super) fn check_read(&self, shown: Option<&str>, peer: IpAddr) -> Result<(), Reply> {
        if self.anyone_may_read || !is_exposed(peer) || self.knows(shown) {
            return Ok(());
        }
        let why = "other hosts read with the token that this server was given (Authorization: Bearer TOKEN), or where \
                   it was started with --anyone-may-read";
        Err(Reply::refuse(StatusCode::UNAUTHORIZED, why))
    }

    /// Returns how many bytes the body of a request may have.
    pub(super) fn longest(&self, shown: Option<&str>) -> usize {
        if self.knows(shown) { self.longest.max(MAX_REQUEST) } else { MAX_REQUEST }
    }

    fn knows(&self, shown: Option<&str>) -> bool {
        self.token.as_ref().zip(shown).is_some_and(|(token, shown)| token.is(shown))
    }

    /// Checks that a request is for this server, by the name in it. A page of another site whose name was made to point
    /// here (DNS rebinding) has a browser send that name.
    ///
    /// # Errors
    /// The answer that refuses a request that came to the address `local` and names another host.
    pub(super) fn check_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        version: Version,
        local: IpAddr,
    ) -> Result<(), Reply> {
        let mut hosts = headers.get_all(HOST).iter();
        let named = match (uri.authority(), hosts.next(), hosts.next()) {
            (_, _, Some(_)) => {
                return Err(Reply::refuse(
                    StatusCode::BAD_REQUEST,
                    "the request has more than one Host header: send one",
                ));
            }
            (Some(authority), ..) => Some(authority.clone()),
            // Whoever has a browser send something has it name a host.
            (None, None, None) if version < Version::HTTP_11 => return Ok(()),
            (None, host, None) => host.and_then(|it| Authority::try_from(it.as_bytes()).ok()),
        };
        let name = named.map(|authority| plain(authority.host())).unwrap_or_default();
        if self.answers_to(&name, local) {
            return Ok(());
        }
        let why = format!(
            "this server is not called {name:?}: reach it by its address, or start it with --host-name NAME"
        );
        Err(Reply::refuse(StatusCode::MISDIRECTED_REQUEST, &why))
    }

    fn answers_to(&self, name: &str, local: IpAddr) -> bool {
        let is_ours = |address: IpAddr| {
            !is_exposed(address) || address.to_canonical() == local.to_canonical()
        };
        name == "localhost"
            || self.host_names.iter().any(|known| known == name)
            || name.parse().is_ok_and(is_ours)
    }
}

/// Returns a host's name in lower case, without the dot of its root; an IPv6 address without brackets.
fn plain(name: &str) -> String {
    let name = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    use hyper::header::HeaderValue;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";
    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 66));

    fn options(test: &str) -> AccessOptions {
        let path = std::env::temp_dir().join(format!("weft-access-{}-{test}", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(TOKEN.as_bytes()).unwrap();
        AccessOptions { token_file: Some(path), ..AccessOptions::default() }
    }

    /// The attacker: a host that reaches the address, and has no token.
    #[test]
    fn other_hosts_read_with_the_token_or_where_anyone_may() {
        let everywhere = SocketAddr::from(([0; 4], 0));
        let with_token = options("read");
        let access = with_token.at(everywhere).unwrap();
        for (shown, peer, want) in [
            (None, ELSEWHERE, Some(StatusCode::UNAUTHORIZED)),
            (Some("0123456789abcdeF"), ELSEWHERE, Some(StatusCode::UNAUTHORIZED)),
            (Some(TOKEN), ELSEWHERE, None),
            (None, [127, 0, 0, 1].into(), None),
            (None, "::ffff:127.0.0.1".parse().unwrap(), None),
        ] {
            let refused = access.check_read(shown, peer).err().map(|reply| reply.status);
            assert_eq!(refused, want, "{shown:?} from {peer}");
        }
        fs::remove_file(with_token.token_file.unwrap()).unwrap();
        let open = AccessOptions { anyone_may_read: true, ..AccessOptions::default() };
        let open = open.at(everywhere).unwrap();
        assert!(open.check_read(None, ELSEWHERE).is_ok());
        let refused = open.check_order(Some(TOKEN), "it").err().map(|reply| reply.status);
        assert_eq!(refused, Some(StatusCode::FORBIDDEN), "reading is not ordering");
    }

    #[test]
    fn an_address_that_other_hosts_reach_wants_a_token_or_leave_to_read() {
        let nothing = AccessOptions::default();
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let error = nothing.at(listen.parse().unwrap()).unwrap_err().to_string();
            let fixes = ["--token-file", "weft adm token", "--anyone-may-read", "127.0.0.1"];
            assert!(fixes.iter().all(|fix| error.contains(fix)), "{error}");
        }
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(nothing.at(listen.parse().unwrap()).is_ok(), "{listen}");
        }
    }

    /// The attacker: a page in a browser of this host, whose name was made to point here.
    #[test]
    fn a_request_for_another_name_is_refused() {
        let access = Access { host_names: vec![plain("Weft.Example.")], ..Access::default() };
        let local = IpAddr::from([10, 0, 0, 1]);
        let status = |uri: &str, host: &[&str], version| {
            let mut headers = HeaderMap::new();
            for value in host {
                headers.append(HOST, HeaderValue::from_str(value).unwrap());
            }
            let refused = access.check_host(&uri.parse().unwrap(), &headers, version, local);
            refused.err().map(|reply| reply.status.as_u16())
        };
        for (host, want) in [
            ("evil.example", Some(421)),
            ("evil.example:7480", Some(421)),
            ("localhost.evil.example", Some(421)),
            ("10.0.0.2", Some(421)),
            ("", Some(421)),
            ("localhost:7480", None),
            ("LOCALHOST", None),
            ("127.0.0.1:7480", None),
            ("[::1]:7480", None),
            ("10.0.0.1", None),
            ("weft.example", None),
            ("weft.example.:7480", None),
        ] {
            assert_eq!(status("/", &[host], Version::HTTP_11), want, "{host:?}");
        }
        // The name in the first line goes before the header's.
        assert_eq!(status("http://evil.example/", &["localhost"], Version::HTTP_11), Some(421));
        assert_eq!(status("/", &["localhost", "evil.example"], Version::HTTP_11), Some(400));
        assert_eq!(status("/", &[], Version::HTTP_11), Some(421));
        assert_eq!(status("/", &[], Version::HTTP_10), None);
    }
}
