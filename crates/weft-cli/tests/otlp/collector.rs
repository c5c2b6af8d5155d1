//! A stand-in for an OpenTelemetry collector: it decodes what it is sent, and keeps it.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use weft_guard::TlsFiles;
use weft_guard::tls::{Acceptor, Clients};
use weft_testkit::{Authority, Issued};

/// The messages that a collector has received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) metrics: Vec<ExportMetricsServiceRequest>,
    pub(crate) logs: Vec<ExportLogsServiceRequest>,
    /// The headers of the last request.
    pub(crate) headers: HeaderMap,
    /// Answers that are not success, the next one first.
    pub(crate) refusals: Vec<StatusCode>,
}

/// A running collector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector(pub(crate) Arc<Mutex<Received>>);

impl Collector {
    /// Serves at a listener until the test ends.
    pub(crate) fn serve(&self, listener: TcpListener) {
        self.serve_with(listener, None);
    }

    /// The same, with TLS. The certificate's authority is also that of the clients, which need one.
    pub(crate) fn serve_tls(&self, listener: TcpListener, authority: &Authority, own: Issued) {
        let clients = Some(authority.certificate.clone());
        let files = TlsFiles { certificate: own.certificate, key: own.key, clients };
        self.serve_with(listener, Some(Acceptor::new(files, Clients::MustCertify).unwrap()));
    }

    fn serve_with(&self, listener: TcpListener, tls: Option<Acceptor>) {
        listener.set_nonblocking(true).unwrap();
        let collector = self.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(collector.accept(listener, tls.map(Arc::new)));
        });
    }

    async fn accept(self, listener: TcpListener, tls: Option<Arc<Acceptor>>) {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (collector, tls) = (self.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => collector.speak(stream).await,
                    // A daemon that does not know the authority breaks off.
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            collector.speak(stream).await;
                        }
                    }
                }
            });
        }
    }

    async fn speak(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request| self.answer(request));
        let server = hyper::server::conn::http1::Builder::new();
        // A daemon that ends may break off.
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut received = self.0.lock().unwrap();
        received.headers = head.headers.clone();
        let mut response = Response::new(Full::default());
        if let Some(refusal) = received.refusals.pop() {
            *response.status_mut() = refusal;
            return Ok(response);
        }
        assert_eq!(head.headers["content-type"], "application/x-protobuf");
        match head.uri.path() {
            "/prefix/v1/metrics" => {
                received.metrics.push(ExportMetricsServiceRequest::decode(body).unwrap());
            }
            "/prefix/v1/logs" => {
                received.logs.push(ExportLogsServiceRequest::decode(body).unwrap())
            }
            other => panic!("{other}"),
        }
        Ok(response)
    }
}
