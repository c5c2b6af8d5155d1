//! Cross-site request forgery: a page of another site can make a browser send a request to this server, and the browser
//! then shows its user's certificate. Browsers name that page's site in headers that the page cannot change.

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;

use super::Reply;

/// The relation of the page that sends a request to this server (W3C, Fetch Metadata).
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Checks that a request that changes something comes from no page of another origin. `scheme` is the server's and
/// `host` is the request's accepted host, with its port. Clients that are not browsers send neither header.
///
/// # Errors
/// Returns the response that refuses the request; it names the header and the fix.
pub(super) fn check_origin(
    headers: &HeaderMap,
    scheme: &str,
    host: Option<&Authority>,
) -> Result<(), Reply> {
    let is_own_site = |site: &HeaderValue| *site == "same-origin" || *site == "none";
    if let Some(site) = headers.get_all(SEC_FETCH_SITE).iter().find(|site| !is_own_site(site)) {
        return Err(refuse("Sec-Fetch-Site", site));
    }
    let is_own = |origin: &HeaderValue| {
        host.is_some_and(|host| origin.to_str().is_ok_and(|it| is_origin_of(it, scheme, host)))
    };
    match headers.get_all(ORIGIN).iter().find(|origin| !is_own(origin)) {
        Some(origin) => Err(refuse("Origin", origin)),
        None => Ok(()),
    }
}

fn refuse(name: &str, value: &HeaderValue) -> Reply {
    let why = format!(
        "the header {name} is {value:?}: pages of other sites may not change anything here; send the request with \
         `weft adm`, `weft route` or curl, without this header"
    );
    Reply::refuse(StatusCode::FORBIDDEN, &why)
}

/// Returns `true` if `origin` is that of `scheme` and `host`. Both may leave out the scheme's port.
fn is_origin_of(origin: &str, scheme: &str, host: &Authority) -> bool {
    let Some(named) = origin.strip_prefix(scheme).and_then(|it| it.strip_prefix("://")) else {
        return false;
    };
    let default_port = if scheme == "https" { 443 } else { 80 };
    let port = |of: &Authority| of.port_u16().unwrap_or(default_port);
    named.parse().is_ok_and(|named: Authority| {
        named.host().eq_ignore_ascii_case(host.host()) && port(&named) == port(host)
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    /// Returns `true` if a request to `scheme://host` with these headers is accepted.
    fn is_accepted(scheme: &str, host: Option<&str>, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            map.append(HeaderName::from_static(name), value);
        }
        let host = host.map(|host| host.parse().unwrap());
        match check_origin(&map, scheme, host.as_ref()) {
            Ok(()) => true,
            Err(reply) => {
                assert_eq!(reply.status, StatusCode::FORBIDDEN);
                false
            }
        }
    }

    /// The attacker: a page of another site, in the browser of a user who may order.
    #[test]
    fn only_the_servers_own_origin_may_change_something() {
        for (scheme, host, origin, want) in [
            ("https", "weft.example:7480", "https://weft.example:7480", true),
            ("https", "weft.example:7480", "https://Weft.Example:7480", true),
            ("https", "weft.example", "https://weft.example:443", true),
            ("https", "weft.example:443", "https://weft.example", true),
            ("http", "10.0.0.1:80", "http://10.0.0.1", true),
            ("http", "[::1]:7480", "http://[::1]:7480", true),
            ("http", "[::1]:7480", "http://[::2]:7480", false),
            ("https", "weft.example:7480", "http://weft.example:7480", false),
            ("https", "weft.example:7480", "https://weft.example", false),
            ("https", "weft.example:7480", "https://weft.example:7481", false),
            ("https", "weft.example:7480", "https://evil.example:7480", false),
            ("https", "weft.example:7480", "https://weft.example:7480.evil.example", false),
            ("https", "weft.example:7480", "https://weft.example:7480@evil.example:7480", false),
            ("https", "weft.example:7480", "weft.example:7480", false),
            ("https", "weft.example:7480", "null", false),
            ("https", "weft.example:7480", "", false),
            ("https", "weft.example:7480", "\u{e9}", false),
        ] {
            let got = is_accepted(scheme, Some(host), &[("origin", origin)]);
            assert_eq!(got, want, "{origin} at {scheme}://{host}");
        }
        assert!(!is_accepted("http", None, &[("origin", "http://localhost")]), "no host is named");
        let both = [("origin", "http://localhost"), ("origin", "http://evil.example")];
        assert!(!is_accepted("http", Some("localhost"), &both), "every value is checked");
    }

    #[test]
    fn requests_of_other_sites_are_refused_and_those_of_other_clients_are_not() {
        let site = |sites: &[&str]| {
            let headers: Vec<_> = sites.iter().map(|site| ("sec-fetch-site", *site)).collect();
            is_accepted("http", Some("localhost"), &headers)
        };
        assert!(site(&[]) && site(&["same-origin"]) && site(&["none"]));
        for refused in [&["cross-site"][..], &["same-site"], &[""], &["none", "cross-site"]] {
            assert!(!site(refused), "{refused:?}");
        }
        let own = ("origin", "http://localhost");
        let cross = [own, ("sec-fetch-site", "cross-site")];
        assert!(!is_accepted("http", Some("localhost"), &cross), "both headers are checked");
    }
}
