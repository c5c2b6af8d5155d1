//! Access control of sockets that take orders: the token or the certificate that callers show, the addresses at which a socket may
//! listen without, and the record of those who were refused.
//!
//! | what | where |
//! | --- | --- |
//! | a token from a file or the environment, compared in constant time | [`Token`] |
//! | addresses that other hosts reach | [`is_exposed`] |
//! | TLS: certificates that servers and clients show (feature `tls`) | [`TlsFiles`], `tls::Acceptor`, `tls::Connector` |
//! | refused peers, counted, named and logged at a bounded rate | [`Refusals`] |
//!
//! It is called by whatever listens: the route controller, the monitor, ranks that meet. It never knows what an order says.
#![deny(unsafe_code)]

mod refusals;
#[cfg(feature = "tls")]
pub mod tls;
mod tls_files;
mod token;

use std::net::IpAddr;

pub use refusals::{Refusals, Refused};
pub use tls_files::TlsFiles;
pub use token::{Token, TokenError, is_same};

/// Returns `true` if hosts other than this one may reach what listens at an address.
///
/// ```
/// assert!(!weft_guard::is_exposed("127.0.0.2".parse()?));
/// assert!(weft_guard::is_exposed("0.0.0.0".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub const fn is_exposed(address: IpAddr) -> bool {
    !address.to_canonical().is_loopback()
}
