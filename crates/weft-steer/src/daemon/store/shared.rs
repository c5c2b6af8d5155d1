//! The store of several controllers, from the daemon's side: saves are ordered from a thread, which reports what has happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use weft_etcd::Client;
use weft_route::{Controller, Known};

use super::candidate::{Candidate, Save};
use super::{EventCounts, Leader, News, Store};
use crate::{ClusterConfig, SteerError};

/// A store in etcd.
#[derive(Debug)]
pub(in crate::daemon) struct Shared {
    saves: Sender<Save>,
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The term and the records that are kept in it, or will be; none while this controller does not lead.
    kept: Option<(u64, Known, EventCounts)>,
    /// The number of the last save.
    number: u64,
}

impl Shared {
    /// Starts the thread. etcd need not answer yet.
    ///
    /// # Errors
    /// Returns `Etcd` if a file of its certificates cannot be used, or `Io` if no thread can be started.
    pub(in crate::daemon) fn open(config: &ClusterConfig, me: Leader) -> Result<Self, SteerError> {
        let mut settings = config.etcd.clone();
        // A member that does not answer must leave time for another one.
        settings.timeout = settings.timeout.min(config.ttl / 2);
        let client = Client::new(&settings).map_err(Box::new)?;
        let ((saves, save_queue), (news, news_queue)) = (channel(), channel());
        let stop = Arc::new(AtomicBool::new(false));
        let ttl = std::time::Duration::from_nanos(config.ttl.as_nanos());
        let (prefix, stopped) = (config.prefix(), Arc::clone(&stop));
        let candidate = Candidate::new(client, prefix, ttl, me, (save_queue, news), stopped);
        let thread = thread::Builder::new().name("etcd".into());
        let thread = thread.spawn(|| candidate.run()).map_err(SteerError::io("start a thread"))?;
        let (news, kept) = (news_queue, None);
        Ok(Self { saves, news, stop, thread: Some(thread), kept, number: 0 })
    }
}

impl Store for Shared {
    fn poll(&mut self) -> Option<News> {
        let news = self.news.try_recv().ok()?;
        if matches!(news, News::Deposed | News::All(_) | News::Elected(..)) {
            self.kept = None;
        }
        Some(news)
    }

    fn save(&mut self, controller: &Controller, counts: &EventCounts) -> Result<u64, SteerError> {
        let Some((term, known, known_counts)) = &mut self.kept else { return Ok(self.number) };
        let changes = controller.changed_records(known);
        let is_counted = known_counts != counts;
        if changes.is_empty() && !is_counted {
            return Ok(self.number);
        }
        known_counts.clone_from(counts);
        self.number += 1;
        let event_counts = is_counted.then(|| counts.clone());
        // A thread that has ended reports nothing as kept.
        let _ = self.saves.send(Save { term: *term, number: self.number, changes, event_counts });
        Ok(self.number)
    }

    fn lead(&mut self, term: u64, known: Known, counts: EventCounts) -> u64 {
        self.kept = Some((term, known, counts));
        self.number
    }

    fn close(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use weft_etcd::EtcdSettings;
    use weft_route::{Record, RecordKey};
    use weft_testkit::etcd::{Etcd, etcd_is_missing};

    use super::*;

    /// Returns the next news of a kind.
    fn next<T>(store: &mut Shared, mut is_wanted: impl FnMut(News) -> Option<T>) -> T {
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            assert!(std::time::Instant::now() < give_up, "it never comes");
            match store.poll() {
                Some(news) => {
                    if let Some(it) = is_wanted(news) {
                        return it;
                    }
                }
                None => weft_testkit::pause(),
            }
        }
    }

    fn save(term: u64, number: u64, job: &str) -> Save {
        let record =
            r#"{"job":{"fabric":7,"job":{"announced":1,"begun":false,"fullest":2,"flows":[]}}}"#;
        let record: Record = serde_json::from_str(record).unwrap();
        let changes = vec![(RecordKey::Job(job.into()), Some(record))];
        Save { term, number, changes, event_counts: None }
    }

    #[test]
    fn what_was_decided_in_an_earlier_term_is_not_kept_in_a_later_one() {
        if etcd_is_missing("decisions of an earlier term") {
            return;
        }
        let etcd = Etcd::start_plain("steer-terms", 1);
        let settings: EtcdSettings = toml::from_str(&etcd.toml()).unwrap();
        let client = Client::new(&settings).unwrap();
        let me = Leader { holder: "a/1/2".into(), url: "http://a:1".into() };
        let mut store = Shared::open(&ClusterConfig::of(settings), me).unwrap();
        let elected = |news| match news {
            News::Elected(term, _) => Some(term.number),
            _ => None,
        };
        let kept = |news| match news {
            News::Kept(number) => Some(number),
            _ => None,
        };
        let first = next(&mut store, elected);
        store.saves.send(save(first, 1, "first")).unwrap();
        assert_eq!(next(&mut store, kept), 1);
        // The term ends and the next begins before the daemon learns of either.
        client.delete("/weft/route/fabric/leader").unwrap();
        store.saves.send(save(first, 2, "while-it-ends")).unwrap();
        let second = next(&mut store, elected);
        assert!(second > first);
        store.saves.send(save(first, 3, "too-late")).unwrap();
        store.saves.send(save(second, 4, "second")).unwrap();
        assert_eq!(next(&mut store, kept), 4);
        let listing = client.list("/weft/route/fabric/jobs/").unwrap();
        let keys: Vec<_> = listing.entries.iter().map(|it| it.key.as_slice()).collect();
        let key = |job: &str| format!("/weft/route/fabric/jobs/{job}").into_bytes();
        assert_eq!(keys, [key("first"), key("second")]);
    }
}
