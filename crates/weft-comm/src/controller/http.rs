//! One HTTP request over a connection of its own, and over others if a controller sends it on to the one that steers.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use ureq::http::StatusCode;
use ureq::{Agent, Error, Timeout};
use weft_guard::Token;

use crate::ControllerError;

/// The time limit for the first connection to an address. It doubles up to [`LAST_CONNECT_TIMEOUT`]: each connection has
/// another source port, and may take another path than the one that loses its packets.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// The time limit for the last connection to an address, 3 s after the first began.
const LAST_CONNECT_TIMEOUT: Duration = Duration::from_millis(1600);
/// The time limit for a response: a controller answers a request within 30 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);
/// Maximum length of a response in bytes: the ports of a million flows.
const MAX_ANSWER: u64 = 128 << 20;

/// Number of controllers to which a request is sent on.
const MAX_REDIRECTS: usize = 3;

/// Posts `body` to `path` at the first of several controllers that is reached, and returns the body of a successful response.
/// A controller that sends the request on to another is followed.
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
    let mut refusal = None;
    for at in at.split(',') {
        let (mut at, mut path) = (at.to_owned(), path.to_owned());
        for _ in 0..=MAX_REDIRECTS {
            match post_to(&at, &path, token, body) {
                Ok(Answer::Body(answer)) => return Ok(answer),
                Ok(Answer::Elsewhere(server, request)) => (at, path) = (server, request),
                Err(error @ ControllerError::Unreachable(_)) => {
                    refusal = refusal.or(Some(error));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(refusal.unwrap_or_else(|| {
        ControllerError::Malformed("it sends the request on to others without end".into())
    }))
}

/// A response to a request.
#[derive(Debug)]
enum Answer {
    /// The body of a successful one.
    Body(Vec<u8>),
    /// Another controller answers: its `HOST:PORT`, the path and query.
    Elsewhere(String, String),
}

/// Posts a request to one controller.
fn post_to(
    at: &str,
    path: &str,
    token: Option<&Token>,
    body: &[u8],
) -> Result<Answer, ControllerError> {
    let mut refusal = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    // The server accepts its address as the name of the host, whatever name resolved to it.
    for address in at.to_socket_addrs().map_err(ControllerError::Unreachable)? {
        let mut connect = FIRST_CONNECT_TIMEOUT;
        loop {
            match exchange(address, path, token, body, connect) {
                Ok(Response { status: StatusCode::OK, body, .. }) => return Ok(Answer::Body(body)),
                Ok(Response { status: StatusCode::TEMPORARY_REDIRECT, location, .. }) => {
                    let elsewhere = location.as_deref().and_then(elsewhere);
                    return elsewhere.ok_or_else(|| {
                        let to = location.unwrap_or_default();
                        ControllerError::Malformed(format!(
                            "it sends requests on to {to:?}, which is no http://HOST:PORT"
                        ))
                    });
                }
                Ok(Response { status, body, .. }) => {
                    let why = String::from_utf8_lossy(&body).trim().to_owned();
                    return Err(ControllerError::Refused { status: status.as_u16(), why });
                }
                Err(Error::Timeout(Timeout::Connect)) if connect < LAST_CONNECT_TIMEOUT => {
                    connect *= 2;
                }
                Err(error @ (Error::Io(_) | Error::Timeout(_))) => {
                    refusal = error.into_io();
                    break;
                }
                Err(error) => {
                    let why = format!("it does not answer as an HTTP server ({error})");
                    return Err(ControllerError::Malformed(why));
                }
            }
        }
    }
    Err(ControllerError::Unreachable(refusal))
}

/// Returns the server and the path of a URL. TLS is not supported here.
fn elsewhere(location: &str) -> Option<Answer> {
    let (at, path) = location.strip_prefix("http://")?.split_once('/')?;
    Some(Answer::Elsewhere(at.to_owned(), format!("/{path}")))
}

/// A server's answer.
struct Response {
    status: StatusCode,
    /// The URL at which another server answers.
    location: Option<String>,
    body: Vec<u8>,
}

/// Sends a request.
fn exchange(
    address: SocketAddr,
    path: &str,
    token: Option<&Token>,
    body: &[u8],
    connect: Duration,
) -> Result<Response, Error> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(0)
        // A controller is within the fabric, and its token is for no one else.
        .proxy(None)
        .timeout_connect(Some(connect))
        .timeout_recv_response(Some(ANSWER_TIMEOUT))
        .timeout_recv_body(Some(ANSWER_TIMEOUT))
        .build();
    let mut request = Agent::new_with_config(config).post(format!("http://{address}{path}"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {}", token.reveal()));
    }
    let (head, body) = request.send(body)?.into_parts();
    let location = head.headers.get("location").and_then(|it| it.to_str().ok());
    let location = location.map(str::to_owned);
    let body = body.into_with_config().limit(MAX_ANSWER).read_to_vec()?;
    Ok(Response { status: head.status, location, body })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
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
        assert!(request.contains(&format!("authorization: Bearer {}\r\n", token.reveal())));
        assert!(!format!("{result:?}").contains(token.reveal()), "no error shows the token");
        (result, request)
    }

    #[test]
    fn a_request_names_its_host_and_its_length() {
        let (result, request) = answered("HTTP/1.1 200 OK\r\nx: y\r\n\r\n{\"a\":\r\n\r\n1}");
        assert_eq!(result.unwrap(), b"{\"a\":\r\n\r\n1}");
        assert!(request.starts_with("POST /v1/jobs?job=a HTTP/1.1\r\n"), "{request}");
        for header in ["host: 127.0.0.1:", "content-length: 6\r\n"] {
            assert!(request.contains(header), "{request}");
        }
    }

    #[test]
    fn a_request_goes_to_the_next_controller_and_on_to_the_one_that_steers() {
        let serve = |answer: String| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = vec![];
                while !request.ends_with(b"a body") {
                    let mut some = [0; 512];
                    let read = stream.read(&mut some).unwrap();
                    request.extend_from_slice(&some[..read]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8(request).unwrap()
            });
            (at, server)
        };
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (leader, led) = serve("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".into());
        let head = "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: ";
        let (other, asked) = serve(format!("{head}http://{leader}/v1/jobs?job=a\r\n\r\n"));
        let token = Token::random().unwrap();
        let answer = post(&format!("{gone},{other}"), "/v1/jobs?job=a", Some(&token), b"a body");
        assert_eq!(answer.unwrap(), b"{}");
        for request in [asked.join().unwrap(), led.join().unwrap()] {
            assert!(request.starts_with("POST /v1/jobs?job=a HTTP/1.1\r\n"), "{request}");
            assert!(request.contains(&format!("Bearer {}\r\n", token.reveal())), "{request}");
        }
        let (secure, _) = serve(format!("{head}https://{leader}/v1/jobs\r\n\r\n"));
        let error = post(&secure.to_string(), "/", None, b"a body").unwrap_err().to_string();
        assert!(error.contains("which is no http://HOST:PORT"), "{error}");
    }

    #[test]
    fn refusals_have_their_reason_and_other_servers_are_named() {
        let error = answered("HTTP/1.1 401 Unauthorized\r\n\r\nnot the token\n").0.unwrap_err();
        assert_eq!(error.to_string(), "refuses (401): not the token");
        for answer in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 \r\n\r\n"] {
            let error = answered(answer).0.unwrap_err();
            assert!(matches!(error, ControllerError::Malformed(_)), "{answer:?}: {error}");
        }
        for answer in ["", "HTTP/1.1 200 OK\r\n"] {
            let error = answered(answer).0.unwrap_err();
            assert!(matches!(error, ControllerError::Unreachable(_)), "{answer:?}: {error}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let error = post(&closed, "/", None, b"").unwrap_err().to_string();
        assert!(error.contains("weft route serve") && error.contains("refused"), "{error}");
    }
}
