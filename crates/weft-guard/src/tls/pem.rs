//! PEM files: certificates, private keys, authorities.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// The permission bits that a key file must not have: group and others have no access.
const FORBIDDEN: u32 = 0o077;
/// Maximum bytes of a key file: an RSA key of 16,384 bits has 13 KB.
const MAX_KEY_FILE: u64 = 64 << 10;

/// Returns a certificate followed by those of intermediate authorities.
pub(super) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates("certificate", path)
}

/// Returns the authorities in a file.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("authorities", path)? {
        roots.add(certificate).map_err(|error| TlsError::Malformed {
            what: "authorities",
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::Io { what, path: path.to_owned(), source };
    let malformed = |reason| TlsError::Malformed { what, path: path.to_owned(), reason };
    let text = fs::read(path).map_err(failed)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(|error| malformed(error.to_string()))?;
    if read.is_empty() {
        return Err(malformed("expected a PEM file with `-----BEGIN CERTIFICATE-----`".into()));
    }
    Ok(read)
}

/// Returns the private key in a file that only its owner can read.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failed = |source: io::Error| TlsError::Io { what: "key", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    // Checks the mode of the opened file: the path may name another file by now.
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & FORBIDDEN != 0 {
        return Err(TlsError::OpenKey { path: path.to_owned(), mode });
    }
    let mut text = Vec::new();
    file.take(MAX_KEY_FILE).read_to_end(&mut text).map_err(failed)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Malformed {
        what: "key",
        path: path.to_owned(),
        // The parser's reason is left out because it may quote a line of the file.
        reason: "expected a PEM file with `-----BEGIN PRIVATE KEY-----`, without a passphrase"
            .into(),
    })
}
