//! Slow clients of a server, in memory and in real time.

use tokio::io::{AsyncReadExt, DuplexStream, duplex, split};
use tokio::task::{JoinHandle, JoinSet};

use super::*;

/// The time in which a server must have disconnected a client; the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(60);
/// The time between two bytes of a slow client.
const TRICKLE: Duration = Duration::from_millis(500);

/// Starts a server of one connection, which holds `room` bytes in each direction.
fn serve_client(room: usize) -> (DuplexStream, JoinHandle<()>) {
    let (client, server) = duplex(room);
    let here = IpAddr::from([127, 0, 0, 1]);
    let connection = ConnectionInfo { local: here, peer: here, is_certified: false };
    let handler: Handler = Arc::new(|_| Reply::new(TEXT, "done\n"));
    let access = Arc::new(Access::default());
    (client, tokio::spawn(serve_one(server, connection, access, handler)))
}

/// Sends `text` and then a byte from time to time, without end. Returns the server's responses up to its disconnection.
async fn send_slowly(text: &str) -> String {
    let (client, serving) = serve_client(1 << 16);
    let (mut from, mut to) = split(client);
    to.write_all(text.as_bytes()).await.unwrap();
    tokio::spawn(async move {
        while to.write_all(b"x").await.is_ok() {
            tokio::time::sleep(TRICKLE).await;
        }
    });
    let mut answers = String::new();
    let read = tokio::time::timeout(DEADLINE, from.read_to_string(&mut answers)).await;
    read.unwrap_or_else(|_| panic!("not disconnected: {text:?}")).unwrap();
    serving.await.unwrap();
    answers
}

/// Sends `text` and then nothing, and leaves the connection open. Returns as `send_slowly`.
async fn send_once(text: &str) -> String {
    let (mut client, serving) = serve_client(1 << 16);
    client.write_all(text.as_bytes()).await.unwrap();
    let mut answers = String::new();
    let read = tokio::time::timeout(DEADLINE, client.read_to_string(&mut answers)).await;
    read.unwrap_or_else(|_| panic!("not disconnected: {text:?}")).unwrap();
    serving.await.unwrap();
    answers
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HALF_BODY: &str = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf";

/// The attacker: a host that keeps its connections open and never ends a request (Slowloris).
#[test]
fn a_client_that_does_not_end_its_request_is_disconnected_after_10_s() {
    block_on(async {
        let mut clients = JoinSet::new();
        for (text, answer) in [
            ("", ""),
            ("GET / HTTP/1.1\r\nHost: local", ""),
            (HALF_BODY, " 413 "),
            (REQUEST, " 200 "),
        ] {
            clients.spawn(async move { (text, answer, send_once(text).await) });
            // A byte from time to time extends no limit.
            clients.spawn(async move { (text, answer, send_slowly(text).await) });
        }
        for (text, answer, answers) in clients.join_all().await {
            assert!(answers.contains(answer), "{text:?}: {answers}");
        }
    })
    .unwrap();
}

/// The attacker: a host that sends requests and reads no response.
#[test]
fn a_client_that_reads_nothing_is_disconnected_after_10_s() {
    block_on(async {
        let (client, serving) = serve_client(4096);
        let (_unread, mut to) = split(client);
        let sending = tokio::spawn(async move {
            // The server stops reading when its responses fill the connection.
            while to.write_all(REQUEST.as_bytes()).await.is_ok() {}
        });
        let served = tokio::time::timeout(DEADLINE, serving).await;
        served.expect("it is disconnected").unwrap();
        sending.abort();
    })
    .unwrap();
}
