//! A request to the collector (OTLP/HTTP, binary protobuf).

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use weft_guard::tls::TlsError;

use super::settings::Settings;

/// The longest response, bytes.
const MAX_ANSWER: usize = 1 << 20;
/// The longest time to wait that a collector may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The reason that the collector did not take a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It may take the same message later, after this time if it said one.
    Later(String, Option<Duration>),
    /// It takes this message never.
    Never(String),
}

impl Fault {
    pub(super) fn reason(&self) -> &str {
        let (Self::Later(reason, _) | Self::Never(reason)) = self;
        reason
    }
}

fn later(error: impl std::fmt::Display) -> Fault {
    Fault::Later(error.to_string(), None)
}

/// The options of Weft's commands that errors of TLS name, and what a collector has in their place.
const OPTIONS: [(&str, &str); 3] = [
    ("--ca", "OTEL_EXPORTER_OTLP_CERTIFICATE"),
    ("--certificate", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
    ("--key", "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
];

/// Returns the fault of a handshake that failed, with the variables of the options that the error names.
fn refused(error: TlsError) -> Fault {
    let text = error.to_string();
    let named = OPTIONS.iter().filter(|(option, _)| text.contains(option));
    let variables: Vec<_> = named.map(|(option, name)| format!("{option} is {name}")).collect();
    match variables.is_empty() {
        true => later(text),
        false => later(format!("{text}. For a collector, {}", variables.join(", "))),
    }
}

impl Settings {
    /// Sends a message to a path below the collector's URL. Returns the response.
    ///
    /// # Errors
    /// There is no response in time, or it refuses the message.
    pub(super) async fn post<T: Message + Default>(
        &self,
        path: &str,
        message: &impl Message,
    ) -> Result<T, Fault> {
        let body = message.encode_to_vec();
        let exchanged = tokio::time::timeout(self.timeout, self.exchange(path, body)).await;
        let body = exchanged.map_err(|_| later(format!("no answer in {:?}", self.timeout)))??;
        T::decode(body).map_err(|error| Fault::Never(format!("it is no OTLP collector: {error}")))
    }

    async fn exchange(&self, path: &str, body: Vec<u8>) -> Result<Bytes, Fault> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(later)?;
        match &self.tls {
            None => self.ask(stream, path, body, later).await,
            Some(connector) => {
                let stream = connector.connect(&self.host, stream).await.map_err(refused)?;
                let cause = |error: hyper::Error| {
                    connector.explain(&self.host, &error).map_or_else(|| later(error), refused)
                };
                self.ask(stream, path, body, cause).await
            }
        }
    }

    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        path: &str,
        body: Vec<u8>,
        cause: impl Fn(hyper::Error) -> Fault,
    ) -> Result<Bytes, Fault> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(&cause)?;
        let connection = tokio::spawn(connection);
        let answer = async {
            let request = self.request(path, body)?;
            let response = sender.send_request(request).await.map_err(&cause)?;
            read(response).await
        };
        let answer = answer.await;
        connection.abort();
        answer
    }

    fn request(&self, path: &str, body: Vec<u8>) -> Result<Request<Full<Bytes>>, Fault> {
        let is_v6 = self.host.contains(':');
        let host = if is_v6 { format!("[{}]", self.host) } else { self.host.clone() };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.path))
            .header(HOST, format!("{host}:{}", self.port))
            .header(USER_AGENT, concat!("weft/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Fault::Never(error.to_string()))?;
        let own = self.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        own.for_each(|(name, value)| drop(request.headers_mut().insert(name, value)));
        Ok(request)
    }
}

/// Returns the body of a successful response.
async fn read(response: Response<Incoming>) -> Result<Bytes, Fault> {
    let status = response.status();
    let seconds = response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    let after = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(later)?;
    // OTLP/HTTP, "Failures": these are retried, and no others.
    match status {
        _ if status.is_success() => Ok(body.to_bytes()),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(Fault::Later(format!("it answers {status}"), after)),
        _ => Err(Fault::Never(format!("it answers {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_error_has_the_variables_of_the_options_that_it_names_alone() {
        let reason = |error: &str| refused(TlsError::Refused(error.into())).reason().to_owned();
        let ca = reason("not issued by an authority in a.pem: give --ca the one that issued it");
        assert!(ca.ends_with(". For a collector, --ca is OTEL_EXPORTER_OTLP_CERTIFICATE"), "{ca}");
        let own = reason("c wants a client's certificate: give --certificate and --key");
        let both = [
            "--certificate is OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
            "--key is OTEL_EXPORTER_OTLP_CLIENT_KEY",
        ];
        assert!(both.iter().all(|part| own.contains(part)) && !own.contains("--ca "), "{own}");
        for other in [
            "c broke off the TLS handshake: end of file",
            "c speaks no TLS there: use http://, or start it with --tls-certificate and --tls-key",
            "the certificate of c has expired: renew it there",
        ] {
            assert_eq!(reason(other), other);
        }
    }
}
