//! The connection of a client: to one of the endpoints, and to the next one when it breaks.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use tower::service_fn;
use weft_guard::tls::Connector;

use crate::error::Closed;
use crate::proto::kv_client::KvClient;
use crate::proto::{RangeRequest, RangeResponse};
use crate::runtime::Runtime;
use crate::{EtcdError, EtcdSettings};

/// Maximum bytes of a message: etcd's own limit for a request is 1.5 MiB, for a page or a batch of changes there is none.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;

/// Time between two pings of a connection with a watch. etcd closes connections with more than one in 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Time without an answer to a ping after which a connection is broken.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Time before a read is tried again at a member that had no leader.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A byte stream to a member, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The thread and the connection that copies of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) connections: Arc<Connections>,
}

/// The connection that requests share.
pub(crate) struct Connections {
    pub(crate) settings: EtcdSettings,
    connector: Option<Connector>,
    present: Mutex<Present>,
}

/// An open connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) channel: Channel,
    pub(crate) endpoint: String,
    /// Its number among those of the client.
    number: u64,
}

struct Present {
    open: Option<Connection>,
    /// Number of connections that were opened.
    opened: u64,
    /// The index of the endpoint to try next.
    next: usize,
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connections")
            .field("endpoints", &self.settings.endpoints)
            .finish_non_exhaustive()
    }
}

impl Connections {
    pub(crate) fn new(settings: &EtcdSettings) -> Result<Arc<Self>, EtcdError> {
        settings.check()?;
        let random = getrandom::u32().map_err(|error| EtcdError::Runtime(error.into()))?;
        let next = random as usize % settings.endpoints.len();
        Ok(Arc::new(Self {
            settings: settings.clone(),
            connector: settings.connector()?,
            present: Mutex::new(Present { open: None, opened: 0, next }),
        }))
    }

    /// Returns the endpoint of the present connection.
    pub(crate) async fn endpoint(&self) -> Option<String> {
        self.present.lock().await.open.as_ref().map(|open| open.endpoint.clone())
    }

    /// Returns the present connection, or opens one to the first endpoint in turn that accepts it.
    ///
    /// # Errors
    /// Returns `Unreachable` with the cause of each endpoint.
    pub(crate) async fn get(&self) -> Result<Connection, EtcdError> {
        let mut present = self.present.lock().await;
        if let Some(open) = &present.open {
            return Ok(open.clone());
        }
        let mut causes = vec![];
        for _ in &self.settings.endpoints {
            let endpoint = self.settings.endpoints[present.next].clone();
            // A caller may give up while it waits: the next one then goes on.
            present.next = (present.next + 1) % self.settings.endpoints.len();
            match timeout(self.connect_timeout(), self.connect(&endpoint)).await {
                Ok(Ok(channel)) => {
                    present.opened += 1;
                    let open = Connection { channel, endpoint, number: present.opened };
                    present.open = Some(open.clone());
                    return Ok(open);
                }
                Ok(Err(cause)) => causes.push(format!("{endpoint}: {cause}")),
                Err(_) => causes.push(format!("{endpoint}: no answer")),
            }
        }
        Err(EtcdError::Unreachable(causes))
    }

    /// Gives a connection up, so that the next request opens one to another endpoint.
    pub(crate) async fn give_up(&self, connection: &Connection) {
        let mut present = self.present.lock().await;
        present.open.take_if(|open| open.number == connection.number);
    }

    /// Makes a read, at another member where one fails, within the timeout.
    pub(crate) async fn read<T, Answer: Future<Output = Result<Response<T>, Status>>>(
        &self,
        what: &str,
        request: impl Fn(Channel) -> Answer,
    ) -> Result<T, EtcdError> {
        let tries = 1 + self.settings.endpoints.len();
        self.in_time(what, async {
            for _ in 1..tries {
                match self.once(what, &request).await {
                    Err(error) if error.is_transient() => sleep(RETRY_DELAY).await,
                    done => return done,
                }
            }
            self.once(what, &request).await
        })
        .await
    }

    /// Reads a range of keys.
    pub(crate) async fn range(
        &self,
        what: &str,
        request: RangeRequest,
    ) -> Result<RangeResponse, EtcdError> {
        let send = |channel| {
            let client = KvClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
            let request = request.clone();
            async { { client }.range(request).await }
        };
        self.read(what, send).await
    }

    /// Makes a write, once. It is made on a second connection if the first was broken before the write was sent.
    pub(crate) async fn write<T, Answer: Future<Output = Result<Response<T>, Status>>>(
        &self,
        what: &str,
        request: impl Fn(Channel) -> Answer,
    ) -> Result<T, EtcdError> {
        self.in_time(what, async {
            match self.once(what, &request).await {
                Err(EtcdError::Broken { unsent: true, .. }) => self.once(what, &request).await,
                done => done,
            }
        })
        .await
    }

    async fn once<T, Answer: Future<Output = Result<Response<T>, Status>>>(
        &self,
        what: &str,
        request: &impl Fn(Channel) -> Answer,
    ) -> Result<T, EtcdError> {
        let connection = self.get().await?;
        match request(connection.channel.clone()).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(self.failed(what, &connection, &status).await),
        }
    }

    /// Returns the error of a failed request, and gives its connection up where another may be better.
    pub(crate) async fn failed(
        &self,
        what: &str,
        connection: &Connection,
        status: &Status,
    ) -> EtcdError {
        let error = match self.explain(&connection.endpoint, status) {
            Some(error) => error,
            None => EtcdError::of_status(what, &connection.endpoint, status),
        };
        if error.is_transient() || matches!(error, EtcdError::Tls(_)) {
            self.give_up(connection).await;
        }
        error
    }

    /// Waits for an answer, for the time of the settings.
    pub(crate) async fn in_time<T>(
        &self,
        what: &str,
        whole: impl Future<Output = Result<T, EtcdError>>,
    ) -> Result<T, EtcdError> {
        let span = self.settings.timeout;
        let done = timeout(Duration::from_nanos(span.as_nanos()), whole).await;
        let Ok(done) = done else {
            // The member may be cut off from the others.
            self.present.lock().await.open = None;
            return Err(EtcdError::TimedOut { what: what.into(), timeout: span });
        };
        done
    }

    /// Returns the part of the timeout that one endpoint may take.
    fn connect_timeout(&self) -> Duration {
        let endpoints = u32::try_from(self.settings.endpoints.len()).unwrap_or(u32::MAX);
        Duration::from_nanos(self.settings.timeout.as_nanos()) / endpoints.max(1)
    }

    async fn connect(&self, endpoint: &str) -> Result<Channel, Box<dyn Error + Send + Sync>> {
        let tcp = TcpStream::connect(endpoint).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.connector {
            Some(connector) => {
                let name = self.settings.server_name(endpoint);
                Box::new(connector.connect(name, tcp).await?)
            }
            None => Box::new(tcp),
        };
        let mut stream = Some(TokioIo::new(stream));
        // The channel asks once; when the connection breaks, `Connections` opens the next one.
        let hand_over = service_fn(move |_| {
            let stream = stream.take().ok_or(Closed);
            async { stream }
        });
        let channel = Endpoint::from_shared(format!("http://{endpoint}"))?
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .connect_with_connector(hand_over)
            .await;
        channel.map_err(|error| match self.explain(endpoint, &error) {
            Some(explained) => explained.into(),
            None => EtcdError::broken("start HTTP/2".into(), endpoint.into(), &error).into(),
        })
    }

    /// Returns the error of TLS behind another error.
    fn explain(&self, endpoint: &str, error: &(dyn Error + 'static)) -> Option<EtcdError> {
        let connector = self.connector.as_ref()?;
        connector.explain(self.settings.server_name(endpoint), error).map(EtcdError::Tls)
    }
}
