//! `weft monitor` and `weft adm` over TLS: a client's certificate instead of the token, and an encrypted token.

use std::fs::Permissions;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft_guard::tls::{Connector, TlsClientFiles};
use weft_testkit::{Authority, Issued, Validity};

use crate::monitor::Monitor;
use crate::programs::{Folder, said, until};

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// Returns `--tls-certificate` and the other options; `clients` is an authority.
fn serves<'a>(server: &'a Issued, clients: Option<&'a Authority>) -> Vec<&'a str> {
    let pair = ["--tls-certificate", text(&server.certificate), "--tls-key", text(&server.key)];
    let clients = clients.map(|it| ["--tls-clients", text(&it.certificate)]);
    pair.into_iter().chain(clients.into_iter().flatten()).collect()
}

fn shows(client: &Issued) -> [&str; 4] {
    ["--certificate", text(&client.certificate), "--key", text(&client.key)]
}

/// Runs `weft adm set keepalive SPAN` at an agent; returns its exit code and its output.
fn set(folder: &Folder, at: &str, more: &[&str]) -> (Option<i32>, String) {
    let words = ["adm", "set", "keepalive", "3s", "--all", "--hosts", at];
    let output = folder.weft(&[&words, more].concat());
    (output.status.code(), said(&output))
}

/// Posts an order that sets `keepalive` to 3 s, with these header lines, as a browser with the certificate `client`
/// does. Returns the response.
fn post_order(at: &str, authority: &Authority, client: &Issued, headers: &str) -> String {
    let order = r#"{"which":"all","ask":{"set":{"name":"keepalive","value":"3s"}}}"#;
    let request = format!(
        "POST /v1/orders HTTP/1.1\r\nHost: {at}\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{order}",
        order.len()
    );
    let identity = Some((client.certificate.clone(), client.key.clone()));
    let files = TlsClientFiles { authorities: authority.certificate.clone(), identity };
    let connector = Connector::new(files).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(at).await.unwrap();
        let mut stream = connector.connect("127.0.0.1", stream).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    })
}

/// The attacker: a page of another site, in a browser that has a client's certificate (cross-site request forgery).
#[test]
fn a_page_of_another_site_gives_no_orders_with_the_certificate_of_its_reader() {
    let (folder, files) = (Folder::new("csrf"), Folder::new("csrf-files"));
    let _server = folder.server("watched_store");
    let ours = Authority::new(files.path(), "ours");
    let host = ours.issue("host", &["127.0.0.1"], Validity::Current);
    let client = ours.issue("client", &[], Validity::Current);
    let listen = ["--listen", "127.0.0.1:0"];
    let agent = Monitor::agent(&folder, &[&listen[..], &serves(&host, Some(&ours))].concat());
    let keepalive = || {
        let got = folder.json(&["adm", "get", "keepalive"]);
        got[0]["settings"][0]["value"].as_str().unwrap().to_owned()
    };
    let before = keepalive();
    assert_ne!(before, "3s");
    for (headers, header) in [
        ("Origin: https://evil.example\r\n".to_owned(), "Origin"),
        ("Origin: null\r\n".to_owned(), "Origin"),
        // A page of another server of the same host.
        ("Origin: https://127.0.0.1:1\r\n".to_owned(), "Origin"),
        (format!("Origin: http://{}\r\n", agent.at), "Origin"),
        ("Sec-Fetch-Site: cross-site\r\n".to_owned(), "Sec-Fetch-Site"),
        ("Sec-Fetch-Site: same-site\r\n".to_owned(), "Sec-Fetch-Site"),
    ] {
        let answer = post_order(&agent.at, &ours, &client, &headers);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{headers}: {answer}");
        assert!(answer.contains(header) && answer.contains("weft adm"), "{headers}: {answer}");
        assert_eq!(keepalive(), before, "{headers}");
    }
    for headers in [
        String::new(),
        format!("Origin: https://{}\r\nSec-Fetch-Site: same-origin\r\n", agent.at),
        "Sec-Fetch-Site: none\r\n".to_owned(),
    ] {
        let answer = post_order(&agent.at, &ours, &client, &headers);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{headers}: {answer}");
        assert_eq!(keepalive(), "3s", "{headers}");
        let reset = ["adm", "set", "keepalive", before.as_str(), "--all"];
        assert!(folder.weft(&reset).status.success());
    }
}

#[test]
fn orders_need_a_certificate_that_the_agents_authority_issued() {
    let (folder, files) = (Folder::new("mtls"), Folder::new("mtls-files"));
    let _server = folder.server("watched_store");
    let ours = Authority::new(files.path(), "ours");
    let theirs = Authority::new(files.path(), "theirs");
    let host = ours.issue("host", &["127.0.0.1"], Validity::Current);
    let listen = ["--listen", "127.0.0.1:0"];
    let agent = Monitor::agent(&folder, &[&listen[..], &serves(&host, Some(&ours))].concat());
    let url = format!("https://{}", agent.at);
    let ca = ["--ca", text(&ours.certificate)];
    let client = ours.issue("client", &[], Validity::Current);
    let expired = ours.issue("expired", &[], Validity::Expired);
    let forged = theirs.issue("forged", &[], Validity::Current);
    // Connections whose handshake never begins do not delay other connections.
    let _silent: Vec<_> = (0..16).map(|_| TcpStream::connect(&agent.at).unwrap()).collect();

    let other = ["--ca", text(&theirs.certificate)];
    for (at, words, wanted) in [
        (&url, [&ca[..], &shows(&forged)].concat(), "does not know the authority"),
        (&url, [&ca[..], &shows(&expired)].concat(), "has expired: renew it"),
        (&url, ca.to_vec(), "give --certificate and --key"),
        (&url, [&other[..], &shows(&client)].concat(), "give --ca the one that issued it"),
        (&url, vec![], "name that with --ca FILE"),
        (&agent.at, vec![], "this server speaks HTTPS: use https://"),
        (&format!("http://{}", agent.at), ca.to_vec(), "use https://, or leave --ca out"),
    ] {
        let (code, said) = set(&folder, at, &words);
        assert!(code == Some(1) && said.contains(wanted), "{words:?} at {at}: {said}");
    }
    let got = folder.json(&["adm", "get", "keepalive"]);
    assert_ne!(got[0]["settings"][0]["value"], "3s");

    for at in [&url, &agent.at] {
        let (code, said) = set(&folder, at, &[&ca[..], &shows(&client)].concat());
        assert!(code == Some(0) && said.contains("3s"), "{said}");
    }
    let got = folder.json(&["adm", "get", "keepalive"]);
    assert_eq!(got[0]["settings"][0]["value"], "3s");

    // A monitor shows its certificate to agents; the TLS of its page is separate.
    let [_, certificate, _, key] = shows(&client);
    let monitor = Monitor::serve(
        &folder,
        &["--hosts", &url, "--agents-ca", ca[1], "--agents-certificate", certificate]
            .into_iter()
            .chain(["--agents-key", key])
            .collect::<Vec<_>>(),
    );
    until("its program", || {
        let up = format!("weft_host_up{{host=\"{url}\"}} 1.0");
        let metrics = monitor.get("/metrics");
        (metrics.contains("watched_store") && !metrics.contains(&up.replace("1.0", "0.0")))
            .then_some(())
    });
}

#[test]
fn a_token_travels_over_tls_where_clients_have_no_certificates() {
    let (folder, files) = (Folder::new("tls-token"), Folder::new("tls-token-files"));
    let _server = folder.server("watched_store");
    let ours = Authority::new(files.path(), "ours");
    let host = ours.issue("host", &["127.0.0.1"], Validity::Current);
    let token = files.path().join("token");
    assert!(folder.weft(&["adm", "token", text(&token)]).status.success());
    let (token, ca) = (["--token-file", text(&token)], ["--ca", text(&ours.certificate)]);
    let listen = ["--listen", "0.0.0.0:0"];
    let agent = Monitor::agent(&folder, &[&listen[..], &token, &serves(&host, None)].concat());
    let url = agent.at.replace("0.0.0.0", "https://127.0.0.1");
    let (code, said) = set(&folder, &url, &ca);
    assert!(code == Some(1) && said.contains("not the token"), "{said}");
    // A certificate is no right if the server has no authority for clients.
    let client = ours.issue("client", &[], Validity::Current);
    let (code, said) = set(&folder, &url, &[&ca[..], &shows(&client)].concat());
    assert!(code == Some(1) && said.contains("not the token"), "{said}");
    let (code, said) = set(&folder, &url, &[&ca[..], &token].concat());
    assert!(code == Some(0) && said.contains("3s"), "{said}");
    // With both, either is enough.
    let agent = [&["--listen", "127.0.0.1:0"][..], &token, &serves(&host, Some(&ours))].concat();
    let agent = Monitor::agent(&folder, &agent);
    for shown in [&token[..], &shows(&client)] {
        let (code, said) = set(&folder, &agent.at, &[&ca[..], shown].concat());
        assert_eq!(code, Some(0), "{said}");
    }
    let (code, said) = set(&folder, &agent.at, &ca);
    assert!(code == Some(1) && said.contains("a client's certificate or its token"), "{said}");
}

/// The attacker: any host that reaches the address, or any user who reads a key's file.
#[test]
fn encryption_alone_is_no_right_and_a_key_that_others_read_is_refused() {
    let (folder, files) = (Folder::new("tls-exposed"), Folder::new("tls-exposed-files"));
    let ours = Authority::new(files.path(), "ours");
    let host = ours.issue("host", &["127.0.0.1"], Validity::Current);
    let agent = |more: &[&str]| {
        said(&folder.weft(&[&["monitor", "agent", "--listen", "0.0.0.0:0"], more].concat()))
    };
    let refused = agent(&serves(&host, None));
    for fix in ["other hosts reach 0.0.0.0:0", "--token-file", "--tls-clients"] {
        assert!(refused.contains(fix), "{refused}");
    }
    let open = Monitor::agent(
        &folder,
        &[&["--listen", "0.0.0.0:0"][..], &serves(&host, Some(&ours))].concat(),
    );
    assert!(open.at.starts_with("0.0.0.0:"), "{}", open.at);
    std::fs::set_permissions(&host.key, Permissions::from_mode(0o640)).unwrap();
    let refused = agent(&serves(&host, Some(&ours)));
    assert!(refused.contains(&format!("chmod 600 {}", text(&host.key))), "{refused}");
    let alone = agent(&["--tls-clients", text(&ours.certificate)]);
    assert!(alone.contains("--tls-certificate"), "{alone}");
}
