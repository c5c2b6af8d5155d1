//! A client of one gNMI server: Subscribe ONCE, Get and Set, over one connection for each operation, as a script over ssh
//! has. Every operation has a timeout, and an answer has limits.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::codegen::tokio_stream::{StreamExt, once, pending};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;
use weft_guard::tls::{Connector, TlsClientFiles};

use super::proto::gnmi::g_nmi_client::GNmiClient;
use super::proto::gnmi::subscribe_response::Response;
use super::proto::gnmi::subscription_list::Mode;
use super::proto::gnmi::{
    Encoding, GetRequest, Path, SetRequest, SubscribeRequest, Subscription, SubscriptionList,
    TypedValue, Update, subscribe_request, typed_value,
};
use super::proto::gnmi_ext::{Extension, MasterArbitration, Uint128, extension};
use super::tree::{Tree, TreeBuilder};
use super::{Edit, GnmiError, GnmiSettings};
use crate::lease::Grant;

/// Maximum bytes of a message.
const MAX_MESSAGE: usize = 16 << 20;
/// Maximum bytes of all messages of an answer.
const MAX_ANSWER: usize = 64 << 20;
/// Maximum bytes of a password's file.
const MAX_PASSWORD: u64 = 4096;

/// A byte stream to the server, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to a server.
pub(super) struct Client<'a> {
    settings: &'a GnmiSettings,
    server: GNmiClient<Channel>,
    /// The user's name and password, as metadata.
    login: Option<Login>,
    connector: Option<Connector>,
}

/// Connects to a server and runs an operation, within its timeout.
///
/// # Errors
/// Returns the error of the connection or of the operation, or `TimedOut`.
pub(super) fn run<'a, T>(
    settings: &'a GnmiSettings,
    operation: impl AsyncFnOnce(&mut Client<'a>) -> Result<T, GnmiError>,
) -> Result<T, GnmiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let whole = async { operation(&mut Client::open(settings).await?).await };
    let timeout = std::time::Duration::from_nanos(settings.timeout.as_nanos());
    runtime
        .map_err(GnmiError::Runtime)?
        .block_on(async { tokio::time::timeout(timeout, whole).await })
        .unwrap_or(Err(GnmiError::TimedOut(settings.timeout)))
}

impl<'a> Client<'a> {
    async fn open(settings: &'a GnmiSettings) -> Result<Self, GnmiError> {
        let login = login(settings)?;
        let connector = connector(settings)?;
        let tcp = TcpStream::connect(&settings.address).await.map_err(GnmiError::Connect)?;
        tcp.set_nodelay(true).map_err(GnmiError::Connect)?;
        let stream: Box<dyn Stream> = match &connector {
            Some(connector) => Box::new(connector.connect(server_name(settings), tcp).await?),
            None => Box::new(tcp),
        };
        let mut stream = Some(TokioIo::new(stream));
        // The channel asks once; if the connection breaks, the operation fails.
        let hand_over = service_fn(move |_| {
            let stream = stream.take().ok_or_else(|| io::Error::other("it was open before"));
            async { stream }
        });
        let endpoint = Endpoint::from_shared(format!("http://{}", settings.address));
        let endpoint = endpoint.map_err(|error| GnmiError::Connect(io::Error::other(error)))?;
        let channel = endpoint.connect_with_connector(hand_over).await;
        let channel = channel.map_err(|error| GnmiError::broken("start HTTP/2", &error))?;
        let server = GNmiClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
        Ok(Self { settings, server, login, connector })
    }

    /// Reads the values at and below some paths: by Subscribe ONCE, which sends large tables in pieces, or by Get where the
    /// server does not implement it.
    ///
    /// # Errors
    /// Returns `Refused` with the paths, or the fault of the answer.
    pub(super) async fn read(&mut self, paths: &[Path]) -> Result<Tree, GnmiError> {
        match self.subscribe_once(paths).await {
            Err(error) if error.is_unimplemented() => self.get(paths).await,
            result => result,
        }
    }

    /// Reads values that a server need not have; returns an empty tree if it has not.
    ///
    /// # Errors
    /// Returns the errors of [`Self::read`] other than that the server lacks them.
    pub(super) async fn read_if_present(&mut self, paths: &[Path]) -> Result<Tree, GnmiError> {
        match self.read(paths).await {
            Err(error) if error.is_absence() => Ok(Tree::default()),
            result => result,
        }
    }

    async fn subscribe_once(&mut self, paths: &[Path]) -> Result<Tree, GnmiError> {
        let what = operation("subscribe once", paths);
        let subscription = |path: &Path| Subscription {
            path: Some(without_target(path)),
            ..Subscription::default()
        };
        let list = SubscriptionList {
            prefix: prefix(paths),
            subscription: paths.iter().map(subscription).collect(),
            mode: Mode::Once.into(),
            encoding: Encoding::JsonIetf.into(),
            ..SubscriptionList::default()
        };
        let request = subscribe_request::Request::Subscribe(list);
        let request = SubscribeRequest { request: Some(request), ..SubscribeRequest::default() };
        // Some servers take the end of the requests for the end of the subscription.
        let request = self.request(once(request).chain(pending()));
        let answer = self.server.subscribe(request).await;
        let mut answer = answer.map_err(|status| self.refused(&what, &status))?.into_inner();
        let (mut tree, mut bytes) = (TreeBuilder::default(), 0);
        loop {
            let message = answer.message().await.map_err(|status| self.refused(&what, &status))?;
            let message = message.ok_or_else(|| GnmiError::Unfinished(what.clone()))?;
            bytes += message.encoded_len();
            if bytes > MAX_ANSWER {
                return Err(GnmiError::TooLarge { what, max: MAX_ANSWER });
            }
            match message.response {
                Some(Response::Update(notification)) => tree
                    .add(&notification)
                    .map_err(|fault| GnmiError::Malformed { what: what.clone(), fault })?,
                Some(Response::SyncResponse(true)) => return Ok(tree.finish()),
                _ => {}
            }
        }
    }

    async fn get(&mut self, paths: &[Path]) -> Result<Tree, GnmiError> {
        let what = operation("get", paths);
        let request = GetRequest {
            prefix: prefix(paths),
            path: paths.iter().map(without_target).collect(),
            encoding: Encoding::JsonIetf.into(),
            ..GetRequest::default()
        };
        let answer = self.server.get(self.request(request)).await;
        let answer = answer.map_err(|status| self.refused(&what, &status))?.into_inner();
        let mut tree = TreeBuilder::default();
        for notification in &answer.notification {
            let malformed = |fault| GnmiError::Malformed { what: what.clone(), fault };
            tree.add(notification).map_err(malformed)?;
        }
        Ok(tree.finish())
    }

    /// Makes changes, all or none of them. The server refuses them if it has seen a greater election id.
    ///
    /// # Errors
    /// Returns `Refused` with the path of the first change.
    pub(super) async fn set(
        &mut self,
        edits: &[Edit],
        election: Option<Grant>,
    ) -> Result<(), GnmiError> {
        let mut request = SetRequest::default();
        for edit in edits {
            match edit {
                Edit::Delete(path) => request.delete.push(path.clone()),
                Edit::Replace(path, value) => {
                    let value = typed_value::Value::JsonIetfVal(value.to_string().into_bytes());
                    let val = Some(TypedValue { value: Some(value) });
                    let path = Some(path.clone());
                    request.replace.push(Update { path, val, ..Update::default() });
                }
            }
        }
        request.extension.extend(election.map(arbitration));
        let answer = self.server.set(self.request(request)).await;
        answer.map(drop).map_err(|status| {
            let what = edits.first().map(ToString::to_string);
            self.refused(what.as_deref().unwrap_or("become master"), &status)
        })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some((user, password)) = &self.login {
            request.metadata_mut().insert("username", user.clone());
            request.metadata_mut().insert("password", password.clone());
        }
        request
    }

    /// Returns the error of a failed request, whose cause may be the certificates. A status that the server sent has no source.
    fn refused(&self, what: &str, status: &Status) -> GnmiError {
        let name = server_name(self.settings);
        let tls = self.connector.as_ref().and_then(|it| it.explain(name, status));
        match (tls, status.source()) {
            (Some(tls), _) => GnmiError::Tls(tls),
            (None, Some(cause)) => GnmiError::broken(what, cause),
            (None, None) => GnmiError::refused(what, status),
        }
    }
}

/// Returns the words of an operation with its first path and the number of others.
fn operation(verb: &str, paths: &[Path]) -> String {
    match paths {
        [] => verb.into(),
        [only] => format!("{verb} {only}"),
        [first, others @ ..] => format!("{verb} {first} and {} others", others.len()),
    }
}

/// Returns the prefix that names the target, which all paths of a request share.
fn prefix(paths: &[Path]) -> Option<Path> {
    let target = paths.first().map(|path| path.target.clone()).filter(|it| !it.is_empty())?;
    Some(Path { target, ..Path::default() })
}

fn without_target(path: &Path) -> Path {
    Path { target: String::new(), ..path.clone() }
}

/// Returns the extension of a request of the master with this grant (gNMI master arbitration). A leader of a later term has a
/// greater election id, whatever the clocks of the hosts that grant leases show.
fn arbitration(Grant { term, nanos }: Grant) -> Extension {
    let election_id = Some(Uint128 { high: term, low: nanos });
    let master = MasterArbitration { election_id, ..MasterArbitration::default() };
    Extension { ext: Some(extension::Ext::MasterArbitration(master)) }
}

/// A user's name and password, as metadata.
type Login = (MetadataValue<Ascii>, MetadataValue<Ascii>);

fn login(settings: &GnmiSettings) -> Result<Option<Login>, GnmiError> {
    let (Some(user), Some(path)) = (&settings.user, &settings.password_file) else {
        return Ok(None);
    };
    let failed = |source| GnmiError::Password { path: path.clone(), source };
    let mut file = File::open(path).map_err(failed)?;
    // Checks the mode of the opened file: the path may name another file by now.
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(GnmiError::OpenPassword { path: path.clone(), mode });
    }
    let mut password = String::new();
    file.by_ref().take(MAX_PASSWORD).read_to_string(&mut password).map_err(failed)?;
    let header = |text: &str| MetadataValue::try_from(text).map_err(|_| GnmiError::Login);
    let mut secret = header(password.trim_end_matches(['\r', '\n']))?;
    secret.set_sensitive(true);
    Ok(Some((header(user)?, secret)))
}

fn connector(settings: &GnmiSettings) -> Result<Option<Connector>, GnmiError> {
    let Some(tls) = &settings.tls else { return Ok(None) };
    let identity = tls.certificate.clone().zip(tls.key.clone());
    let connector = Connector::new(TlsClientFiles { authorities: tls.ca.clone(), identity })?;
    Ok(Some(connector.with_protocol(b"h2")))
}

fn server_name(settings: &GnmiSettings) -> &str {
    let named = settings.tls.as_ref().and_then(|tls| tls.name.as_deref());
    named.unwrap_or_else(|| settings.host())
}
