//! One HTTP request over a connection of its own (RFC 9112).

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use weft_guard::Token;

use crate::ControllerError;

/// The time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit for a part of the response: a controller answers a request within 30 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);
/// Maximum length of a response in bytes: the ports of a million flows.
const MAX_ANSWER: u64 = 128 << 20;

/// Posts `body` to `path` and returns the body of a successful response.
///
/// # Errors
/// Returns `Unreachable` if there is no whole response, `Refused` if its status is not success, or `Malformed` if it is
/// not HTTP.
pub(super) fn post(
    at: &str,
    path: &str,
    token: Option<&Token>,
    body: &[u8],
) -> Result<Vec<u8>, ControllerError> {
    let answer = exchange(at, path, token, body).map_err(ControllerError::Unreachable)?;
    let malformed = || ControllerError::Malformed("it does not answer as an HTTP server".into());
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(malformed)?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let head = std::str::from_utf8(head).map_err(|_| malformed())?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    match status.ok_or_else(malformed)? {
        200 => Ok(body.to_vec()),
        status => {
            let why = String::from_utf8_lossy(body).trim().to_owned();
            Err(ControllerError::Refused { status, why })
        }
    }
}

/// Sends a request and reads until the server closes the connection.
fn exchange(at: &str, path: &str, token: Option<&Token>, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect(at)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    // The server accepts its address as the name of the host, whatever name resolved to it.
    let host = stream.peer_addr()?;
    let token = token.map(|token| format!("Authorization: Bearer {}\r\n", token.reveal()));
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n",
        token.unwrap_or_default(),
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Connects to the first address of a name that accepts.
fn connect(at: &str) -> io::Result<TcpStream> {
    let mut refusal = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in at.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Answers one request with these bytes; returns the request.
    fn answered(answer: &'static str) -> (Result<Vec<u8>, ControllerError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let mut read = 0;
            while !request[..read].ends_with(b"a body") {
                read += stream.read(&mut request[read..]).unwrap();
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let token = Token::random().unwrap();
        let result = post(&at, "/v1/jobs?job=a", Some(&token), b"a body");
        let request = server.join().unwrap();
        assert!(request.contains(&format!("Authorization: Bearer {}\r\n", token.reveal())));
        assert!(!format!("{result:?}").contains(token.reveal()), "no error shows the token");
        (result, request)
    }

    #[test]
    fn a_request_names_its_host_and_its_length() {
        let (result, request) = answered("HTTP/1.1 200 OK\r\nx: y\r\n\r\n{\"a\":\r\n\r\n1}");
        assert_eq!(result.unwrap(), b"{\"a\":\r\n\r\n1}");
        assert!(
            request.starts_with("POST /v1/jobs?job=a HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{request}"
        );
        assert!(
            request.contains("Connection: close\r\n") && request.contains("Content-Length: 6\r\n")
        );
    }

    #[test]
    fn refusals_have_their_reason_and_other_servers_are_named() {
        let error = answered("HTTP/1.1 401 Unauthorized\r\n\r\nnot the token\n").0.unwrap_err();
        assert_eq!(error.to_string(), "refuses (401): not the token");
        for answer in ["", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 \r\n\r\n"] {
            let error = answered(answer).0.unwrap_err();
            assert!(matches!(error, ControllerError::Malformed(_)), "{answer:?}: {error}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let error = post(&closed, "/", None, b"").unwrap_err().to_string();
        assert!(error.contains("weft route serve") && error.contains("refused"), "{error}");
    }
}
