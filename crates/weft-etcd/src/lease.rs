//! Leases that renew themselves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio::time::sleep;
use tonic::codegen::tokio_stream::{StreamExt, once, pending};

use crate::connections::{Connections, Shared};
use crate::proto::lease_client::LeaseClient;
use crate::proto::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};
use crate::{EtcdError, LeaseId};

/// Time before a failed renewal is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// A lease: keys that were put with it are deleted when it runs out. It is renewed while this value exists, whatever
/// happens to connections; when this value is dropped it runs out by itself.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    ttl: Duration,
    state: Arc<Mutex<State>>,
    renewals: AbortHandle,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct State {
    valid_until: Instant,
    has_ended: bool,
}

impl Lease {
    pub(crate) fn grant(shared: &Arc<Shared>, ttl: Duration) -> Result<Self, EtcdError> {
        // etcd counts whole seconds.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseGrantRequest { ttl: i64::try_from(seconds.max(1)).unwrap_or(i64::MAX) };
        let send = |channel| async move { LeaseClient::new(channel).lease_grant(request).await };
        let sent = now();
        let what = "grant a lease";
        let answer = shared.runtime.block_on(shared.connections.write(what, send))?;
        let (id, ttl) = (LeaseId(answer.id), seconds_of(answer.ttl));
        let state = State { valid_until: sent + ttl, has_ended: false };
        let state = Arc::new(Mutex::new(state));
        let renew = renew(Arc::clone(&shared.connections), id, ttl, Arc::clone(&state));
        let renewals = shared.runtime.spawn(renew);
        Ok(Self { id, ttl, state, renewals, shared: Arc::clone(shared) })
    }

    /// Returns its number.
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// Returns the time for which each renewal lasts: at least what was asked for.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the time until which etcd keeps it for certain: the last answered renewal was sent one `ttl` before.
    pub fn valid_until(&self) -> Instant {
        lock(&self.state).valid_until
    }

    /// Returns `true` if etcd keeps it for certain. A lease whose renewals fail may become valid again when one succeeds.
    pub fn is_valid(&self) -> bool {
        let state = lock(&self.state);
        !state.has_ended && now() < state.valid_until
    }

    /// Returns `true` if etcd has answered that it has run out, or was revoked: its keys are deleted.
    pub fn has_ended(&self) -> bool {
        lock(&self.state).has_ended
    }

    /// Ends the lease, which deletes its keys at once.
    ///
    /// # Errors
    /// Returns the error of the request; the lease runs out by itself then.
    pub fn revoke(self) -> Result<(), EtcdError> {
        self.renewals.abort();
        let Shared { runtime, connections } = &*self.shared;
        let request = LeaseRevokeRequest { id: self.id.0 };
        let send = |channel| async move { LeaseClient::new(channel).lease_revoke(request).await };
        let what = format!("revoke lease {}", self.id);
        match runtime.block_on(connections.write(&what, send)) {
            Err(error) if !error.is_absence() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewals.abort();
    }
}

/// Renews a lease until it has ended.
async fn renew(
    connections: Arc<Connections>,
    id: LeaseId,
    ttl: Duration,
    state: Arc<Mutex<State>>,
) {
    let mut delay = ttl / 3;
    loop {
        sleep(delay).await;
        let sent = now();
        match renew_once(&connections, id).await {
            Ok(Some(ttl)) => {
                lock(&state).valid_until = sent + ttl;
                delay = ttl / 3;
            }
            Ok(None) => {
                lock(&state).has_ended = true;
                return;
            }
            // The lease may outlive its time: etcd extends leases when it has a new leader.
            Err(_) => delay = RETRY_DELAY,
        }
    }
}

/// Renews a lease. Returns the time that it has from now on, or `None` if it has ended.
async fn renew_once(connections: &Connections, id: LeaseId) -> Result<Option<Duration>, EtcdError> {
    let what = format!("renew lease {id}");
    let whole = async {
        let connection = connections.get().await?;
        let request = once(LeaseKeepAliveRequest { id: id.0 });
        let mut client = LeaseClient::new(connection.channel.clone());
        // etcd takes the end of the requests for the end of the answers.
        let answer = async {
            client.lease_keep_alive(request.chain(pending())).await?.into_inner().message().await
        };
        match answer.await {
            Ok(Some(answer)) => Ok((answer.ttl > 0).then(|| seconds_of(answer.ttl))),
            Ok(None) => {
                connections.give_up(&connection).await;
                let (what, endpoint) = (what.clone(), connection.endpoint.clone());
                let cause = "it ended without an answer".into();
                Err(EtcdError::Broken { what, endpoint, cause, unsent: false })
            }
            Err(status) => Err(connections.failed(&what, &connection, &status).await),
        }
    };
    connections.in_time(&what, whole).await
}

fn seconds_of(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

/// Returns the time of the clock that `tokio` sleeps by.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
