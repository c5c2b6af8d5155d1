//! Real handshakes over loopback, with certificates made by the tests.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use weft_testkit::{Authority, Issued, Validity};

use super::{AcceptError, Acceptor, Clients, Connector, TlsClientFiles};
use crate::TlsFiles;

/// A test's folder with an authority and a server certificate for 127.0.0.1.
struct Place {
    folder: PathBuf,
    authority: Authority,
    server: Issued,
}

impl Place {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weft-tls-{}-{test}", std::process::id()));
        let authority = Authority::new(&folder, "authority");
        let server = authority.issue("server", &["127.0.0.1"], Validity::Current);
        Self { folder, authority, server }
    }

    fn client(&self) -> Issued {
        self.authority.issue("client", &[], Validity::Current)
    }

    /// Returns an authority that is not trusted.
    fn other(&self) -> Authority {
        Authority::new(&self.folder.join("other"), "other")
    }

    fn files(&self) -> TlsFiles {
        let Issued { certificate, key } = self.server.clone();
        TlsFiles { certificate, key, clients: Some(self.authority.certificate.clone()) }
    }

    fn acceptor(&self, clients: Clients) -> Acceptor {
        Acceptor::new(self.files(), clients).unwrap()
    }

    fn connector(&self, identity: Option<&Issued>) -> Connector {
        connector(&self.authority, identity)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn connector(authority: &Authority, identity: Option<&Issued>) -> Connector {
    let identity = identity.map(|it| (it.certificate.clone(), it.key.clone()));
    let authorities = authority.certificate.clone();
    Connector::new(TlsClientFiles { authorities, identity }).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

type Accepted = Result<bool, AcceptError>;

/// Accepts one connection and echoes one byte. The task returns `true` if the client is certified.
async fn echo(acceptor: Acceptor) -> (SocketAddr, JoinHandle<Accepted>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await?;
        let byte = stream.read_u8().await.unwrap();
        stream.write_u8(byte).await.unwrap();
        stream.shutdown().await.unwrap();
        Ok(Acceptor::is_certified(&stream))
    });
    (at, served)
}

/// Exchanges one byte over a connection and returns the results of the client and of the server.
async fn exchange(acceptor: Acceptor, connector: &Connector) -> (Result<u8, String>, Accepted) {
    let (at, served) = echo(acceptor).await;
    let stream = TcpStream::connect(at).await.unwrap();
    let client = async {
        let connected = connector.connect("127.0.0.1", stream).await;
        let mut stream = connected.map_err(|error| error.to_string())?;
        let words = |error: std::io::Error| {
            let error = connector.explain("127.0.0.1", &error).expect("TLS is the cause");
            error.to_string()
        };
        stream.write_u8(7).await.map_err(words)?;
        stream.read_u8().await.map_err(words)
    };
    (client.await, served.await.unwrap())
}

#[test]
fn both_sides_authenticate() {
    let place = Place::new("both");
    let connector = place.connector(Some(&place.client()));
    for clients in [Clients::MustCertify, Clients::MayCertify] {
        let (client, server) = block_on(exchange(place.acceptor(clients), &connector));
        assert_eq!((client, server.unwrap()), (Ok(7), true), "{clients:?}");
    }
}

#[test]
fn a_client_without_certificate_is_accepted_only_if_certificates_are_optional() {
    let place = Place::new("none");
    let connector = place.connector(None);
    let (client, server) = block_on(exchange(place.acceptor(Clients::MayCertify), &connector));
    assert_eq!((client, server.unwrap()), (Ok(7), false));
    let (client, server) = block_on(exchange(place.acceptor(Clients::MustCertify), &connector));
    let error = client.unwrap_err();
    assert!(error.contains("give --certificate and --key"), "{error}");
    assert!(matches!(server, Err(AcceptError::Failed(_))), "{server:?}");
}

/// The attacker is a client with a certificate of its own authority, or with an expired one.
#[test]
fn a_certificate_of_another_authority_or_of_the_past_is_refused() {
    let place = Place::new("wrong");
    let expired = place.authority.issue("past", &[], Validity::Expired);
    for (shown, wanted) in [
        (place.other().issue("forged", &[], Validity::Current), "--tls-clients"),
        (expired, "has expired: renew it"),
    ] {
        let connector = place.connector(Some(&shown));
        // A wrong certificate is refused also if a certificate is optional.
        for clients in [Clients::MustCertify, Clients::MayCertify] {
            let (client, server) = block_on(exchange(place.acceptor(clients), &connector));
            let error = client.unwrap_err();
            assert!(error.contains(wanted), "{error}");
            assert!(error.contains(&shown.certificate.display().to_string()), "{error}");
            assert!(matches!(server, Err(AcceptError::Failed(_))), "{server:?}");
        }
    }
}

/// The attacker is a host that took the server's address.
#[test]
fn a_server_that_cannot_prove_its_name_receives_no_request() {
    let place = Place::new("server");
    let client = place.client();
    let serves = |issued: Issued| TlsFiles {
        certificate: issued.certificate,
        key: issued.key,
        clients: place.files().clients,
    };
    let other = place.other().issue("server", &["127.0.0.1"], Validity::Current);
    let expired = place.authority.issue("old", &["127.0.0.1"], Validity::Expired);
    let named = place.authority.issue("named", &["10.0.0.1", "weft.example"], Validity::Current);
    for (issued, wanted) in [
        (other, "give --ca the one that issued it"),
        (expired, "has expired: renew it there"),
        (named, "is for other names"),
    ] {
        let acceptor = Acceptor::new(serves(issued), Clients::MustCertify).unwrap();
        let connector = place.connector(Some(&client));
        let (client, server) = block_on(exchange(acceptor, &connector));
        let error = client.unwrap_err();
        assert!(error.contains(wanted), "{error}");
        assert!(server.is_err());
    }
}

#[test]
fn a_client_without_tls_is_found_out_by_its_first_byte() {
    let place = Place::new("clear");
    let server = block_on(async {
        let (at, served) = echo(place.acceptor(Clients::MustCertify)).await;
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        served.await.unwrap()
    });
    assert!(matches!(server, Err(AcceptError::Clear(_))), "{server:?}");
    // The client in turn detects a server without TLS.
    let error = block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        });
        let stream = TcpStream::connect(at).await.unwrap();
        let error = place.connector(None).connect("127.0.0.1", stream).await.unwrap_err();
        drop(served.await);
        error.to_string()
    });
    assert!(error.contains("speaks no TLS there: use http://"), "{error}");
}

#[test]
fn a_client_that_says_nothing_is_given_up() {
    let place = Place::new("slow");
    let server = block_on(async {
        let (at, served) = echo(place.acceptor(Clients::MustCertify)).await;
        // The client sends half a record header and then nothing.
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(&[22, 3, 1]).await.unwrap();
        let server = tokio::time::timeout(Duration::from_secs(60), served).await;
        drop(stream);
        server.expect("it is given up").unwrap()
    });
    assert!(matches!(server, Err(AcceptError::Slow)), "{server:?}");
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let place = Place::new("renewed");
    let acceptor = place.acceptor(Clients::MayCertify);
    let first = acceptor.config();
    assert!(std::ptr::eq(&*first, &*acceptor.config()), "files that stay are read once");
    fs::write(&place.server.certificate, "not a certificate").unwrap();
    assert!(std::ptr::eq(&*first, &*acceptor.config()));
    // The server's certificate is now issued by another authority.
    let other = place.other();
    let issued = other.issue("server", &["127.0.0.1"], Validity::Current);
    fs::rename(issued.key, &place.server.key).unwrap();
    fs::rename(issued.certificate, &place.server.certificate).unwrap();
    let (client, _) = block_on(exchange(acceptor, &connector(&other, None)));
    assert_eq!(client, Ok(7));
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_fix() {
    let place = Place::new("files");
    let other = place.client();
    let (files, path) = (place.files(), |path: &PathBuf| path.display().to_string());
    let fails = |files: TlsFiles, words: &[&str]| {
        let error = Acceptor::new(files, Clients::MustCertify).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    for mode in [0o640, 0o604, 0o660, 0o644] {
        fs::set_permissions(&files.key, Permissions::from_mode(mode)).unwrap();
        fails(files.clone(), &[&format!("chmod 600 {}", path(&files.key))]);
    }
    fs::set_permissions(&files.key, Permissions::from_mode(0o400)).unwrap();
    Acceptor::new(files.clone(), Clients::MustCertify).unwrap();
    fails(
        TlsFiles { key: other.key.clone(), ..files.clone() },
        &["are no pair", &path(&other.key), &path(&files.certificate)],
    );
    fails(
        TlsFiles { certificate: files.key.clone(), ..files.clone() },
        &["has no certificate", "BEGIN CERTIFICATE", &path(&files.key)],
    );
    fails(
        TlsFiles { clients: Some(place.folder.join("none")), ..files.clone() },
        &["cannot read the authorities in", "none"],
    );
    let no_key = place.folder.join("no.key");
    fs::write(&no_key, "a line that is not repeated").unwrap();
    fs::set_permissions(&no_key, Permissions::from_mode(0o600)).unwrap();
    fails(TlsFiles { key: no_key.clone(), ..files }, &["has no key", "BEGIN PRIVATE KEY"]);
}

#[test]
fn the_table_tls_names_files_and_nothing_else() {
    let parse = |text: &str| toml::from_str::<TlsFiles>(text);
    let files = parse("certificate = 'c'\nkey = 'k'\nclients = 'a'").unwrap();
    assert_eq!(files.clients, Some("a".into()));
    assert_eq!(parse("certificate = 'c'\nkey = 'k'").unwrap().clients, None);
    for text in ["certificate = 'c'", "certificate = 'c'\nkey = 'k'\nca = 'a'"] {
        assert!(parse(text).is_err(), "{text}");
    }
}
