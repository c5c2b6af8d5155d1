//! The client: its reads and writes, and the ends of leases and watches.

use std::sync::Arc;
use std::time::Duration;

use crate::connections::{Connections, Shared};
use crate::lease::Lease;
use crate::proto::kv_client::KvClient;
use crate::proto::{CompactionRequest, RangeRequest};
use crate::range::{of_prefix, revision_of};
use crate::runtime::Runtime;
use crate::{EtcdError, EtcdSettings, KeyValue, Listing, Outcome, Revision, Transaction, Watch};

/// Maximum number of keys in an answer to a list.
const PAGE: i64 = 1_000;

/// A client, which connects with its first request. Its copies share a connection and a thread.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

impl Client {
    /// Checks settings, reads their certificates and starts the client's thread.
    ///
    /// # Errors
    /// Returns the fault of the settings, a file that cannot be used, or `Runtime`.
    pub fn new(settings: &EtcdSettings) -> Result<Self, EtcdError> {
        let connections = Connections::new(settings)?;
        let runtime = Runtime::start()?;
        Ok(Self { shared: Arc::new(Shared { runtime, connections }) })
    }

    /// Returns the endpoint of the present connection.
    pub fn endpoint(&self) -> Option<String> {
        self.shared.runtime.block_on(self.shared.connections.endpoint())
    }

    /// Returns a key with its value, as of the last write that any client was told of.
    ///
    /// # Errors
    /// Returns the error of the request.
    pub fn get(&self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let request = RangeRequest { key: key.into(), ..RangeRequest::default() };
        let what = format!("get {key}");
        let answer = self.shared.runtime.block_on(self.shared.connections.range(&what, request));
        Ok(answer?.kvs.into_iter().next().map(KeyValue::from))
    }

    /// Returns all keys that begin with `prefix`, at one revision, however many they are.
    ///
    /// # Errors
    /// Returns the error of the request that failed.
    pub fn list(&self, prefix: &str) -> Result<Listing, EtcdError> {
        self.shared.runtime.block_on(list(&self.shared.connections, prefix))
    }

    /// Makes the writes of a transaction if all its comparisons hold: all of them or none.
    ///
    /// # Errors
    /// Returns `TooManyOperations`, or the error of the request: see [`EtcdError::may_have_been_done`].
    pub fn transact(&self, transaction: &Transaction) -> Result<Outcome, EtcdError> {
        let request = transaction.request()?;
        let what = transaction.to_string();
        let send = |channel| {
            let request = request.clone();
            async { { KvClient::new(channel) }.txn(request).await }
        };
        let answer = self.shared.runtime.block_on(self.shared.connections.write(&what, send));
        Ok(Outcome::from(answer?))
    }

    /// Sets a key. Returns the revision.
    ///
    /// # Errors
    /// Returns the errors of [`Self::transact`].
    pub fn put(&self, key: &str, value: &[u8]) -> Result<Revision, EtcdError> {
        Ok(self.transact(&Transaction::new().put(key, value))?.revision)
    }

    /// Deletes a key, if there is one. Returns the revision.
    ///
    /// # Errors
    /// Returns the errors of [`Self::transact`].
    pub fn delete(&self, key: &str) -> Result<Revision, EtcdError> {
        Ok(self.transact(&Transaction::new().delete(key))?.revision)
    }

    /// Grants a lease of at least `ttl`, and renews it until it is dropped.
    ///
    /// # Errors
    /// Returns the error of the request.
    pub fn grant(&self, ttl: Duration) -> Result<Lease, EtcdError> {
        Lease::grant(&self.shared, ttl)
    }

    /// Returns the changes of keys that begin with `prefix`, from the revision `from` on.
    pub fn watch(&self, prefix: &str, from: Revision) -> Watch {
        Watch::start(&self.shared, prefix, from)
    }

    /// Drops the history before a revision, as etcd itself does with `--auto-compaction-retention`.
    ///
    /// # Errors
    /// Returns the error of the request.
    pub fn compact(&self, at: Revision) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision: at.0 };
        let send = |channel| async move { KvClient::new(channel).compact(request).await };
        let what = format!("compact at {at}");
        self.shared.runtime.block_on(self.shared.connections.write(&what, send)).map(drop)
    }
}

async fn list(connections: &Connections, prefix: &str) -> Result<Listing, EtcdError> {
    // History may be dropped while the pages are read; then their revision is gone.
    for _ in 0..2 {
        match list_once(connections, prefix).await {
            Err(error) if error.is_compaction() => {}
            done => return done,
        }
    }
    list_once(connections, prefix).await
}

async fn list_once(connections: &Connections, prefix: &str) -> Result<Listing, EtcdError> {
    let what = format!("list {prefix}");
    let (mut key, range_end) = of_prefix(prefix);
    let mut listing = Listing::default();
    loop {
        let (range_end, revision) = (range_end.clone(), listing.revision.0);
        let request =
            RangeRequest { key, range_end, limit: PAGE, revision, ..RangeRequest::default() };
        let page = connections.range(&what, request).await?;
        if listing.revision == Revision::default() {
            listing.revision = revision_of(&page);
        }
        listing.entries.extend(page.kvs.into_iter().map(KeyValue::from));
        let Some(last) = listing.entries.last().filter(|_| page.more) else { return Ok(listing) };
        // The least key after the last one.
        key = [last.key.as_slice(), &[0]].concat();
    }
}
