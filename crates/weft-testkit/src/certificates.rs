//! Certificate authorities and certificates for tests of TLS, as PEM files in a folder of the test's.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// A certificate authority whose key is in memory alone.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// Its certificate, a PEM file.
    pub certificate: PathBuf,
}

/// A certificate and its key, two PEM files; the key's has mode 0600.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Whether a certificate is valid today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// From 1975 to 4096.
    Current,
    /// Only in the year 2000.
    Expired,
}

impl Authority {
    /// Makes an authority whose files are in `folder` and begin with `name`.
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

    /// Issues a certificate for `subjects`, host names and addresses, to files that begin with `name`.
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

/// Writes a file of mode 0600, in place of one that is there.
fn write(path: &Path, text: &str) {
    // Its inode is another, as where a renewed certificate is moved into place.
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
