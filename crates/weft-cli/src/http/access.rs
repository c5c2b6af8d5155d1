//! Access control of an HTTP server: accepted host names, and the token or the certificate that other hosts need.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::Authority;
use hyper::{Uri, Version};
use weft_guard::tls::{Acceptor, Clients};
use weft_guard::{TlsFiles, Token, is_exposed};

use super::{MAX_REQUEST, Reply};

/// Command-line options of access control.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct AccessOptions {
    /// A file with a token (`weft adm token FILE`): clients that show it may give orders, and read from other hosts
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let any client that reaches the address read, without the token
    #[arg(long)]
    anyone_may_read: bool,
    /// A name that clients reach this server by, besides localhost and its addresses; others are refused
    #[arg(long = "host-name", value_name = "NAME")]
    host_names: Vec<String>,
    #[command(flatten)]
    tls: TlsOptions,
}

/// Command-line options of a server's TLS.
#[derive(Clone, Debug, Default, clap::Args)]
struct TlsOptions {
    /// Speak HTTPS with this certificate, a PEM file; intermediate authorities' follow in it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's private key, a PEM file of mode 0600
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Authorities, a PEM file: clients with a certificate of theirs may read and give orders, without a token
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_clients: Option<PathBuf>,
}

impl TlsOptions {
    fn files(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_certificate.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { certificate, key, clients: self.tls_clients.clone() })
    }
}

/// Access rights of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    token: Option<Token>,
    tls: Option<Arc<Acceptor>>,
    /// `true` if a client's certificate grants the rights.
    takes_certificates: bool,
    anyone_may_read: bool,
    host_names: Vec<String>,
    /// The longest body, bytes, of requests from clients that may give orders; other clients may send 64 KiB.
    max_body: usize,
}

/// The credentials that a client shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(super) token: Option<String>,
    /// `true` if the client has a certificate that was issued by one of the authorities for clients.
    pub(super) is_certified: bool,
}

impl AccessOptions {
    /// Returns the access rights at an address. The TLS options of the command line take precedence over `configured`.
    ///
    /// # Errors
    /// Returns an error if the token, the certificate or the key cannot be read or is open to other users, or if other
    /// hosts reach the address and there is neither a token, nor authorities for clients, nor permission for anyone to
    /// read.
    pub(crate) fn at(&self, listen: SocketAddr, configured: Option<&TlsFiles>) -> Result<Access> {
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        let files = self.tls.files().or_else(|| configured.cloned());
        let takes_certificates = files.as_ref().is_some_and(|files| files.clients.is_some());
        if is_exposed(listen.ip())
            && token.is_none()
            && !takes_certificates
            && !self.anyone_may_read
        {
            bail!(
                "other hosts reach {listen}, and there is no token that they would have to show: give one with \
                 --token-file FILE (`weft adm token FILE` makes it), name the authority of their certificates with \
                 --tls-clients FILE, let them all read with --anyone-may-read, or listen at 127.0.0.1"
            );
        }
        let clients = if token.is_some() || self.anyone_may_read {
            Clients::MayCertify
        } else {
            Clients::MustCertify
        };
        let tls = files.map(|files| Acceptor::new(files, clients)).transpose()?.map(Arc::new);
        let host_names = self.host_names.iter().map(|name| normalized(name)).collect();
        let anyone_may_read = self.anyone_may_read;
        Ok(Access { token, tls, takes_certificates, anyone_may_read, host_names, max_body: 0 })
    }
}

impl Access {
    /// Returns the access rights of a server with a token and a name.
    #[cfg(any(test, fuzzing))]
    pub(super) fn with(token: &Token, anyone_may_read: bool, name: &str) -> Self {
        let (token, host_names) = (Some(token.clone()), vec![normalized(name)]);
        Self { token, anyone_may_read, host_names, ..Self::default() }
    }

    /// Returns the same access, with the longest body of a request with an order, in bytes.
    pub(crate) fn with_max_body(self, max_body: usize) -> Self {
        Self { max_body, ..self }
    }

    /// Returns the acceptor of encrypted connections, if TLS is on.
    pub(super) const fn tls(&self) -> Option<&Arc<Acceptor>> {
        self.tls.as_ref()
    }

    /// Returns the scheme of this server's URLs.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Checks that `shown` grants the right to give orders.
    ///
    /// # Errors
    /// Returns the response with which the server `who` refuses the order.
    pub(crate) fn check_order(&self, shown: &Shown, who: &str) -> Result<(), Reply> {
        if self.may_order(shown) {
            return Ok(());
        }
        let (status, why) = match (&self.token, self.takes_certificates) {
            (None, false) => (
                StatusCode::FORBIDDEN,
                format!("this one takes no orders: start {who} with --token-file or --tls-clients"),
            ),
            (None, true) => {
                (StatusCode::UNAUTHORIZED, format!("{who} wants a client's certificate"))
            }
            (Some(_), false) => {
                (StatusCode::UNAUTHORIZED, format!("that is not the token that {who} was given"))
            }
            (Some(_), true) => (
                StatusCode::UNAUTHORIZED,
                format!("{who} wants a client's certificate or its token, and that is neither"),
            ),
        };
        Err(Reply::refuse(status, &why))
    }

    /// Checks that a client at `peer` may read: anyone may, it is on this host, or `shown` grants the right.
    ///
    /// # Errors
    /// Returns the response that refuses the client.
    pub(super) fn check_read(&self, shown: &Shown, peer: IpAddr) -> Result<(), Reply> {
        if self.anyone_may_read || !is_exposed(peer) || self.may_order(shown) {
            return Ok(());
        }
        let why = "other hosts read with the token that this server was given (Authorization: Bearer TOKEN), with a \
                   certificate of its --tls-clients, or where it was started with --anyone-may-read";
        Err(Reply::refuse(StatusCode::UNAUTHORIZED, why))
    }

    /// Returns the longest body, in bytes, that the server accepts from this client.
    pub(super) fn max_body(&self, shown: &Shown) -> usize {
        if self.may_order(shown) { self.max_body.max(MAX_REQUEST) } else { MAX_REQUEST }
    }

    /// Returns `true` if `shown` grants the rights to read and to give orders.
    fn may_order(&self, shown: &Shown) -> bool {
        let has_token =
            || self.token.as_ref().zip(shown.token.as_ref()).is_some_and(|(ours, it)| ours.is(it));
        (self.takes_certificates && shown.is_certified) || has_token()
    }

    /// Checks that the request names this server as its host, and returns that name with its port. A page of another
    /// site whose name was made to point here (DNS rebinding) makes a browser send that site's name.
    ///
    /// # Errors
    /// Returns the response that refuses a request to the address `local` which names another host.
    pub(super) fn check_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        version: Version,
        local: IpAddr,
    ) -> Result<Option<Authority>, Reply> {
        let mut hosts = headers.get_all(HOST).iter();
        let named = match (uri.authority(), hosts.next(), hosts.next()) {
            (_, _, Some(_)) => {
                return Err(Reply::refuse(
                    StatusCode::BAD_REQUEST,
                    "the request has more than one Host header: send one",
                ));
            }
            (Some(authority), ..) => Some(authority.clone()),
            // Browsers always name a host: a request without one comes from another client.
            (None, None, None) if version < Version::HTTP_11 => return Ok(None),
            (None, host, None) => host.and_then(|it| Authority::try_from(it.as_bytes()).ok()),
        };
        let name = named.as_ref().map(|it| normalized(it.host())).unwrap_or_default();
        if self.answers_to(&name, local) {
            return Ok(named);
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
fn normalized(name: &str) -> String {
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

    fn shown(token: Option<&str>) -> Shown {
        Shown { token: token.map(str::to_owned), is_certified: false }
    }

    /// The attacker: a host that reaches the address, and has no token.
    #[test]
    fn other_hosts_read_with_the_token_or_where_anyone_may() {
        let everywhere = SocketAddr::from(([0; 4], 0));
        let with_token = options("read");
        let access = with_token.at(everywhere, None).unwrap();
        for (token, peer, want) in [
            (None, ELSEWHERE, Some(StatusCode::UNAUTHORIZED)),
            (Some("0123456789abcdeF"), ELSEWHERE, Some(StatusCode::UNAUTHORIZED)),
            (Some(TOKEN), ELSEWHERE, None),
            (None, [127, 0, 0, 1].into(), None),
            (None, "::ffff:127.0.0.1".parse().unwrap(), None),
        ] {
            let refused = access.check_read(&shown(token), peer).err().map(|reply| reply.status);
            assert_eq!(refused, want, "{token:?} from {peer}");
        }
        fs::remove_file(with_token.token_file.unwrap()).unwrap();
        let open = AccessOptions { anyone_may_read: true, ..AccessOptions::default() };
        let open = open.at(everywhere, None).unwrap();
        assert!(open.check_read(&shown(None), ELSEWHERE).is_ok());
        let refused = open.check_order(&shown(Some(TOKEN)), "it").err().map(|reply| reply.status);
        assert_eq!(refused, Some(StatusCode::FORBIDDEN), "reading is not ordering");
    }

    #[test]
    fn an_address_that_other_hosts_reach_needs_a_token_or_permission_to_read() {
        let nothing = AccessOptions::default();
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let error = nothing.at(listen.parse().unwrap(), None).unwrap_err().to_string();
            let fixes = [
                "--token-file",
                "weft adm token",
                "--tls-clients",
                "--anyone-may-read",
                "127.0.0.1",
            ];
            assert!(fixes.iter().all(|fix| error.contains(fix)), "{error}");
        }
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(nothing.at(listen.parse().unwrap(), None).is_ok(), "{listen}");
        }
    }

    /// The attacker: a page in a browser of this host, whose name was made to point here.
    #[test]
    fn a_request_for_another_name_is_refused() {
        let access = Access { host_names: vec![normalized("Weft.Example.")], ..Access::default() };
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
        // The name in the request line takes precedence over the header's.
        assert_eq!(status("http://evil.example/", &["localhost"], Version::HTTP_11), Some(421));
        assert_eq!(status("/", &["localhost", "evil.example"], Version::HTTP_11), Some(400));
        assert_eq!(status("/", &[], Version::HTTP_11), Some(421));
        assert_eq!(status("/", &[], Version::HTTP_10), None);
    }
}
