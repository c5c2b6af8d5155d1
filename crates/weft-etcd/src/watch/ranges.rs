//! The prefixes of a watch, and the requests for them on the stream that is open.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Revision;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{Event, WatchCancelRequest, WatchCreateRequest, WatchRequest};
use crate::range::of_prefix;

/// The prefixes of a watch. The reader adds and removes them while the follower receives.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    state: Mutex<State>,
    added: Notify,
}

#[derive(Debug, Default)]
struct State {
    by_id: BTreeMap<i64, Range>,
    last_id: i64,
    /// The requests of the open stream.
    requests: Option<UnboundedSender<WatchRequest>>,
}

/// A prefix that is watched.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) prefix: String,
    /// The first revision that the reader has not got.
    pub(super) next: Revision,
    /// The parts of an answer that is not complete.
    pub(super) parts: Vec<Event>,
}

impl Ranges {
    pub(super) fn add(&self, prefix: &str, from: Revision) {
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        let range = Range { prefix: prefix.to_owned(), next: from, parts: vec![] };
        state.request(create(id, &range));
        state.by_id.insert(id, range);
        self.added.notify_one();
    }

    pub(super) fn remove(&self, prefix: &str) {
        let mut state = self.lock();
        let named = |(&id, range): (&i64, &Range)| (range.prefix == prefix).then_some(id);
        let ids: Vec<_> = state.by_id.iter().filter_map(named).collect();
        for id in ids {
            state.by_id.remove(&id);
            let cancel = WatchCancelRequest { watch_id: id };
            state.request(RequestUnion::CancelRequest(cancel));
        }
    }

    /// Waits until there is a prefix.
    pub(super) async fn wait(&self) {
        while self.lock().by_id.is_empty() {
            self.added.notified().await;
        }
    }

    /// Returns the requests of a new stream, which begin with those for all prefixes.
    pub(super) fn open(&self) -> UnboundedReceiver<WatchRequest> {
        let (sender, receiver) = unbounded_channel();
        let mut state = self.lock();
        state.requests = Some(sender);
        let creates = state.by_id.iter_mut().map(|(&id, range)| {
            range.parts.clear();
            create(id, range)
        });
        creates.collect::<Vec<_>>().into_iter().for_each(|request| state.request(request));
        receiver
    }

    /// Returns the prefixes, and that of `id`: an answer for another may still be on its way after its removal.
    pub(super) fn with<T>(&self, id: i64, act: impl FnOnce(&mut Range) -> T) -> Option<T> {
        self.lock().by_id.get_mut(&id).map(act)
    }

    /// Removes a prefix that etcd no longer watches.
    pub(super) fn take(&self, id: i64) -> Option<Range> {
        self.lock().by_id.remove(&id)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sends a request on the open stream, if there is one; a stream that opens later begins with all prefixes.
    fn request(&self, request: RequestUnion) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(WatchRequest { request_union: Some(request) });
        }
    }
}

fn create(watch_id: i64, range: &Range) -> RequestUnion {
    let (key, range_end) = of_prefix(&range.prefix);
    RequestUnion::CreateRequest(WatchCreateRequest {
        key,
        range_end,
        start_revision: range.next.0,
        watch_id,
        fragment: true,
    })
}
