//! Certificate authorities and certificates for tests of TLS, as PEM files in a test's folder.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// A certificate authority whose key exists only in memory.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// The PEM file of its certificate.
    pub certificate: PathBuf,
}

/// The PEM files of a certificate and its key. The key file has mode 0600.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Valid from 1975 to 4096.
    Current,
    /// Valid only in the year 2000.
    Expired,
}

impl Authority {
    /// Makes a certificate authority and writes its certificate to `folder/name.pem`.
    ///
    /// # Panics
    /// Panics if a file cannot be written.
    pub fn new(folder: &Path, name: &str) -> Self {
        fs::create_dir_all(folder).expect("the test's folder can be made");
        let mut params = named(name, vec![]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.self_signed(&key).expect("the parameters are complete");
        let file = folder.join(format!("{name}.pem"));
        write(&file, &certificate.pem());
        Self { issuer: Issuer::new(params, key), folder: folder.to_owned(), certificate: file }
    }

    /// Issues a certificate for `subjects`: host names and addresses. The names of its files begin with `name`.
    ///
    /// # Panics
    /// Panics if a file cannot be written or a subject is malformed.
    pub fn issue(&self, name: &str, subjects: &[&str], validity: Validity) -> Issued {
        let mut params = named(name, subjects.iter().map(|&it| it.to_owned()).collect());
        if validity == Validity::Expired {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2000, 12, 31);
        }
        let key = KeyPair::generate().expect("there is randomness");
        let signed = params.signed_by(&key, &self.issuer).expect("the parameters are complete");
        let file = |end: &str| self.folder.join(format!("{name}.{end}"));
        let issued = Issued { certificate: file("pem"), key: file("key") };
        write(&issued.certificate, &signed.pem());
        write(&issued.key, &key.serialize_pem());
        issued
    }
}

fn named(name: &str, subjects: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(subjects).expect("subjects are names or addresses");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Writes a new file of mode 0600 and removes an existing one first.
///
/// # Panics
/// Panics if the file cannot be written.
fn write(path: &Path, text: &str) {
    // The new file has another inode, like a renewed certificate that is moved into place.
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
