//! Access control for sockets that accept commands: the token or certificate that a client presents, the addresses on
//! which a socket may listen without one, the number of its connections, and the record of refused peers.
//!
//! | what | where |
//! | --- | --- |
//! | a token from a file or the environment, compared in constant time | [`Token`] |
//! | addresses that other hosts reach | [`is_exposed`] |
//! | TLS: certificates of servers and clients (feature `tls`) | [`TlsFiles`], `tls::Acceptor`, `tls::Connector` |
//! | a task for each connection, and their maximum number (feature `accept`) | `serve_each` |
//! | refused peers, counted, named and logged at a bounded rate | [`Refusals`] |
//!
//! Servers call it: the route controller, the monitor, the rendezvous of ranks, the controller of Kubernetes. It never knows the content of a
//! command.
//!
//! ```
//! use weft_guard::Token;
//!
//! # let folder = std::env::temp_dir().join(format!("weft-guard-front-page-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let file = folder.join("token");
//! let made = Token::create(&file)?;
//! // The server reads the file, which only its user may read.
//! let token = Token::read(&file)?;
//! assert!(token.is(made.reveal()));
//! assert!(!token.is("0123456789abcdef"));
//! // Values are logged; the secret is not.
//! assert_eq!(format!("{token:?}"), "Token(…)");
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

#[cfg(feature = "accept")]
mod accept;
mod refusals;
#[cfg(feature = "tls")]
pub mod tls;
mod tls_files;
mod token;

use std::net::IpAddr;

#[cfg(feature = "accept")]
pub use accept::serve_each;
pub use refusals::{Refusals, Refused};
pub use tls_files::TlsFiles;
pub use token::{Token, TokenError, constant_time_eq};

/// Returns `true` if other hosts can reach a socket that listens on this address.
///
/// ```
/// assert!(!weft_guard::is_exposed("127.0.0.2".parse()?));
/// assert!(weft_guard::is_exposed("0.0.0.0".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub const fn is_exposed(address: IpAddr) -> bool {
    !address.to_canonical().is_loopback()
}
