//! The task of a watch: it opens a stream, passes its changes on, and opens the next one when it breaks.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Streaming};

use super::ranges::{Range, Ranges};
use super::{Change, WatchEvent};
use crate::connections::{Connection, Connections, MAX_MESSAGE};
use crate::proto::watch_client::WatchClient;
use crate::proto::{RangeRequest, WatchResponse};
use crate::{EtcdError, Revision, range};

/// Time before the first attempt to go on after a break, which doubles with each one that fails.
const FIRST_DELAY: Duration = Duration::from_millis(50);

/// Maximum time between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// The name of a watch in errors.
const WHAT: &str = "watch";

/// The task of a watch. It ends when the reader is gone.
pub(super) struct Follower {
    pub(super) connections: Arc<Connections>,
    pub(super) ranges: Arc<Ranges>,
    pub(super) sender: mpsc::Sender<WatchEvent>,
}

/// The reason that a stream is followed no further.
enum End {
    Failed(EtcdError),
    /// The reader is gone.
    Dropped,
}

impl From<EtcdError> for End {
    fn from(error: EtcdError) -> Self {
        Self::Failed(error)
    }
}

impl Follower {
    pub(super) async fn run(self) {
        let (mut delay, mut is_broken) = (FIRST_DELAY, false);
        loop {
            self.ranges.wait().await;
            let mut is_connected = false;
            let Err(End::Failed(error)) = self.follow(&mut is_connected).await else { return };
            if is_connected {
                (delay, is_broken) = (FIRST_DELAY, false);
            }
            // A break is reported once, however many attempts it takes.
            if !is_broken && self.send(WatchEvent::Disconnected(error)).await.is_err() {
                return;
            }
            is_broken = true;
            sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
    }

    /// Passes events of one stream to the reader until it breaks.
    async fn follow(&self, is_connected: &mut bool) -> Result<(), End> {
        let connection = self.connections.get().await?;
        let mut answers = self.open(&connection).await?;
        loop {
            let answer = match answers.message().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(self.ended(connection).await.into()),
                Err(status) => {
                    return Err(self.connections.failed(WHAT, &connection, &status).await.into());
                }
            };
            if answer.canceled {
                self.canceled(&connection, answer).await?;
                continue;
            }
            if answer.created {
                if !*is_connected {
                    *is_connected = true;
                    let endpoint = connection.endpoint.clone();
                    self.send(WatchEvent::Connected { endpoint }).await?;
                }
                self.created(&answer).await?;
                continue;
            }
            let pass = self.ranges.with(answer.watch_id, |range| range.ingest(answer)).flatten();
            if let Some(event) = pass {
                self.send(event).await?;
            }
        }
    }

    /// Asks a member for the changes of all prefixes.
    async fn open(&self, connection: &Connection) -> Result<Streaming<WatchResponse>, EtcdError> {
        let mut request = Request::new(UnboundedReceiverStream::new(self.ranges.open()));
        // A member that is cut off from the others ends the watch instead of keeping silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let client = WatchClient::new(connection.channel.clone());
        let mut client = client.max_decoding_message_size(MAX_MESSAGE);
        let whole = async {
            match client.watch(request).await {
                Ok(answer) => Ok(answer.into_inner()),
                Err(status) => Err(self.connections.failed(WHAT, connection, &status).await),
            }
        };
        self.connections.in_time(WHAT, whole).await
    }

    /// Handles etcd's word that it watches a prefix. A cluster behind what the reader knows was restored from an older
    /// snapshot; a member alone may be late.
    async fn created(&self, answer: &WatchResponse) -> Result<(), End> {
        let is_behind = |range: &mut Range| revision_of(answer).next() < range.next;
        if !self.ranges.with(answer.watch_id, is_behind).unwrap_or(false) {
            return Ok(());
        }
        let request =
            RangeRequest { key: vec![0], count_only: true, limit: 1, ..RangeRequest::default() };
        let now = range::revision_of(&self.connections.range(WHAT, request).await?);
        let is_behind = |range: &mut Range| now.next() < range.next;
        match self.ranges.with(answer.watch_id, is_behind).unwrap_or(false) {
            true => self.compacted(answer.watch_id, now).await,
            false => Ok(()),
        }
    }

    async fn compacted(&self, id: i64, revision: Revision) -> Result<(), End> {
        let Some(Range { prefix, .. }) = self.ranges.take(id) else { return Ok(()) };
        self.send(WatchEvent::Compacted { prefix, revision }).await
    }

    async fn send(&self, event: WatchEvent) -> Result<(), End> {
        self.sender.send(event).await.map_err(|_| End::Dropped)
    }

    async fn ended(&self, connection: Connection) -> EtcdError {
        self.connections.give_up(&connection).await;
        let cause = "the member ended the watch".into();
        let (what, endpoint) = (WHAT.into(), connection.endpoint);
        EtcdError::Broken { what, endpoint, cause, unsent: false }
    }

    /// Handles etcd's word that it no longer watches a prefix.
    async fn canceled(&self, connection: &Connection, answer: WatchResponse) -> Result<(), End> {
        if answer.compact_revision > 0 {
            return self.compacted(answer.watch_id, Revision(answer.compact_revision)).await;
        }
        let prefix = self.ranges.with(answer.watch_id, |range| range.prefix.clone());
        // The reader has removed it.
        let Some(prefix) = prefix else { return Ok(()) };
        let (what, message) = (format!("{WHAT} {prefix}"), answer.cancel_reason);
        let is_denied = message.contains("permission denied");
        let code = if is_denied { Code::PermissionDenied } else { Code::Unavailable };
        let endpoint = connection.endpoint.clone();
        self.connections.give_up(connection).await;
        Err(EtcdError::Refused { what, endpoint, code, message }.into())
    }
}

impl Range {
    /// Takes a part of etcd's answers. Returns the changes when they are complete.
    fn ingest(&mut self, answer: WatchResponse) -> Option<WatchEvent> {
        self.parts.extend(answer.events);
        if answer.fragment {
            return None;
        }
        let changes: Vec<_> = take(&mut self.parts).into_iter().filter_map(Change::of).collect();
        let revision = changes.last()?.revision();
        self.next = revision.next();
        Some(WatchEvent::Changes { revision, changes })
    }
}

fn revision_of(answer: &WatchResponse) -> Revision {
    Revision(answer.header.as_ref().map_or(0, |header| header.revision))
}
