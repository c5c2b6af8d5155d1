//! The client against real etcd: reads, transactions, leases and watches, through broken connections, compaction, dead
//! members and wrong certificates.
#![allow(clippy::disallowed_methods, reason = "these tests wait for etcd in real time")]

use std::time::{Duration, Instant};

use weft_etcd::{
    Change, Client, Compare, EtcdSettings, MAX_OPERATIONS, Revision, Transaction, Watch, WatchEvent,
};
use weft_testkit::etcd::{Etcd, etcd_is_missing};
use weft_testkit::{Validity, pause};

/// Maximum time until something has happened.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(etcd: &Etcd) -> EtcdSettings {
    toml::from_str(&etcd.toml()).unwrap()
}

fn client(etcd: &Etcd) -> Client {
    Client::new(&settings(etcd)).unwrap()
}

#[track_caller]
fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        pause();
    }
}

/// Returns the keys of changes, the deleted ones with a minus, until one has the key `last`.
#[track_caller]
fn changes(watch: &mut Watch, last: &str) -> Vec<String> {
    let mut seen = vec![];
    let until = Instant::now() + PATIENCE;
    while seen.last().is_none_or(|key: &String| key != last) {
        assert!(Instant::now() < until, "{last} does not come after {seen:?}");
        let Some(event) = watch.next(Duration::from_secs(1)) else { continue };
        let WatchEvent::Changes { changes, .. } = event else { continue };
        seen.extend(changes.iter().map(|change| {
            let key = String::from_utf8_lossy(change.key());
            if matches!(change, Change::Delete { .. }) { format!("-{key}") } else { key.into() }
        }));
    }
    seen
}

#[test]
fn reads_transactions_and_pages() {
    if etcd_is_missing("reads_transactions_and_pages") {
        return;
    }
    let etcd = Etcd::start("reads", 1);
    let client = client(&etcd);
    assert_eq!(client.get("/a").unwrap(), None);
    let created = client.put("/a", b"1").unwrap();
    let pair = client.get("/a").unwrap().unwrap();
    assert_eq!((pair.value.as_slice(), pair.created, pair.modified), (&b"1"[..], created, created));

    // A transaction whose comparison does not hold writes nothing, and reads instead.
    let refused = Transaction::new().when(Compare::absent("/a")).put("/a", b"2").put("/b", b"2");
    let outcome = client.transact(&refused.otherwise_get("/a")).unwrap();
    assert!(!outcome.succeeded);
    assert_eq!(outcome.found, [pair]);
    assert_eq!(client.get("/b").unwrap(), None);
    for (condition, holds) in [
        (Compare::exists("/a"), true),
        (Compare::exists("/b"), false),
        (Compare::created("/a", created), true),
        (Compare::modified("/a", created.next()), false),
        (Compare::value("/a", b"1"), true),
        (Compare::value("/a", b"2"), false),
        (Compare::none_below("/a"), false),
        (Compare::none_below("/a/"), true),
    ] {
        let transaction = Transaction::new().when(condition.clone()).get("/a");
        let outcome = client.transact(&transaction).unwrap();
        assert_eq!(
            (outcome.succeeded, outcome.found.len()),
            (holds, usize::from(holds)),
            "{condition:?}"
        );
    }

    // 2,500 keys are three pages at one revision.
    let mut revision = Revision(0);
    for part in (0..2_500).collect::<Vec<_>>().chunks(MAX_OPERATIONS) {
        let puts =
            part.iter().fold(Transaction::new(), |it, n| it.put(&format!("/n/{n:04}"), b"x"));
        revision = client.transact(&puts).unwrap().revision;
    }
    client.put("/o", b"beside").unwrap();
    let listing = client.list("/n/").unwrap();
    assert_eq!(listing.revision, revision.next());
    let keys: Vec<_> = listing.entries.iter().map(|pair| pair.key.clone()).collect();
    assert!(keys.is_sorted() && keys.len() == 2_500 && keys[2_499] == b"/n/2499");
    client.transact(&Transaction::new().delete_prefix("/n/")).unwrap();
    assert!(client.list("/n/").unwrap().entries.is_empty());
    assert_eq!(client.list("").unwrap().entries.len(), 2);
}

#[test]
fn a_watch_resumes_without_a_gap_and_reports_compaction() {
    if etcd_is_missing("a_watch_resumes_without_a_gap_and_reports_compaction") {
        return;
    }
    let mut etcd = Etcd::start("watch", 1);
    let client = client(&etcd);
    let from = client.put("/w/0", b"").unwrap().next();
    client.put("/v", b"outside the prefix").unwrap();
    let mut watch = client.watch("/w/", from);
    client.transact(&Transaction::new().put("/w/1", b"").put("/w/2", b"").delete("/w/0")).unwrap();
    assert_eq!(changes(&mut watch, "-/w/0"), ["/w/1", "/w/2", "-/w/0"]);

    // A member that is killed and comes back: the watch reports the break, and goes on where it was.
    etcd.kill(0);
    let broken = |event: &Option<WatchEvent>| matches!(event, Some(WatchEvent::Disconnected(_)));
    wait_for("the break", || broken(&watch.next(Duration::from_secs(1))));
    let error = client.get("/w/1").unwrap_err().to_string();
    assert!(error.contains(&etcd.endpoints()[0]) && error.contains("start it"), "{error}");
    etcd.start_again(0);
    wait_for("a write", || client.put("/w/3", b"").is_ok());
    client.delete("/w/3").unwrap();
    assert_eq!(changes(&mut watch, "-/w/3").last().unwrap(), "-/w/3");

    // A watch from before the compaction cannot go on.
    let now = client.put("/w/4", b"").unwrap();
    client.compact(now).unwrap();
    let mut late = client.watch("/w/", from);
    let mut last = None;
    wait_for("compaction", || {
        last = late.next(Duration::from_secs(1));
        matches!(last, Some(WatchEvent::Compacted { .. }))
    });
    assert!(matches!(last, Some(WatchEvent::Compacted { revision, .. }) if revision == now));
    // The one that has seen everything goes on.
    client.put("/w/5", b"").unwrap();
    assert!(changes(&mut watch, "/w/5").contains(&"/w/4".to_owned()));
}

#[test]
fn a_cluster_that_lost_its_history_is_listed_again() {
    if etcd_is_missing("a_cluster_that_lost_its_history_is_listed_again") {
        return;
    }
    let mut etcd = Etcd::start("restored", 1);
    let client = client(&etcd);
    let mut revision = Revision(0);
    for n in 0..20 {
        revision = client.put(&format!("/w/{n}"), b"").unwrap();
    }
    let mut watch = client.watch("/w/", revision.next());
    assert!(matches!(watch.next(PATIENCE), Some(WatchEvent::Connected { .. })));
    etcd.start_empty(0);
    wait_for("compaction", || {
        matches!(watch.next(Duration::from_secs(1)), Some(WatchEvent::Compacted { .. }))
    });
}

#[test]
fn a_large_change_and_many_changes_arrive_whole() {
    if etcd_is_missing("a_large_change_and_many_changes_arrive_whole") {
        return;
    }
    let etcd = Etcd::start("large", 1);
    let client = client(&etcd);
    let from = client.put("/l/first", b"").unwrap().next();
    // Together they are longer than etcd's longest answer, so that they come in parts.
    let value = vec![7; 1 << 20];
    for n in 0..6 {
        client.put(&format!("/l/{n}"), &value).unwrap();
    }
    let mut watch = client.watch("/l/", from);
    let seen = changes(&mut watch, "/l/5");
    assert_eq!(seen, ["/l/0", "/l/1", "/l/2", "/l/3", "/l/4", "/l/5"]);
    let error = client.put("/l/longest", &vec![7; 1_700_000]).unwrap_err();
    assert!(error.to_string().contains("too large") && !error.may_have_been_done(), "{error}");
}

#[test]
fn leases_renew_themselves_and_end() {
    if etcd_is_missing("leases_renew_themselves_and_end") {
        return;
    }
    let etcd = Etcd::start("leases", 1);
    let client = client(&etcd);
    let lease = client.grant(Duration::from_secs(2)).unwrap();
    let put = |key: &str, lease: &weft_etcd::Lease| {
        client.transact(&Transaction::new().put_leased(key, b"", lease.id())).unwrap();
    };
    put("/host", &lease);
    assert_eq!(client.get("/host").unwrap().unwrap().lease, Some(lease.id()));
    // It outlives its first term.
    let first = lease.valid_until();
    wait_for("the second term", || Instant::now() > first);
    assert!(lease.is_valid() && client.get("/host").unwrap().is_some());

    // A lease that is dropped runs out, and a watch sees its keys go.
    let mut watch = client.watch("/", client.list("/").unwrap().revision.next());
    drop(lease);
    assert_eq!(changes(&mut watch, "-/host"), ["-/host"]);

    // One that is revoked goes at once.
    let lease = client.grant(Duration::from_secs(60)).unwrap();
    put("/host", &lease);
    lease.revoke().unwrap();
    assert_eq!(client.get("/host").unwrap(), None);
}

#[test]
fn a_lease_that_ran_out_behind_its_owners_back_says_so() {
    if etcd_is_missing("a_lease_that_ran_out_behind_its_owners_back_says_so") {
        return;
    }
    let mut etcd = Etcd::start("expired", 1);
    let client = client(&etcd);
    let lease = client.grant(Duration::from_secs(2)).unwrap();
    etcd.pause(0);
    let until = lease.valid_until();
    wait_for("the end of its term", || Instant::now() > until);
    assert!(!lease.is_valid() && !lease.has_ended(), "etcd has not said so");
    etcd.resume(0);
    // Renewed or ended: etcd decides. It counts the time of the pause.
    wait_for("etcd's word", || lease.is_valid() || lease.has_ended());
    etcd.start_empty(0);
    wait_for("the end", || lease.has_ended());
    assert!(!lease.is_valid());
}

#[test]
fn a_late_renewal_counts_from_the_time_at_which_it_was_sent() {
    if etcd_is_missing("a_late_renewal_counts_from_the_time_at_which_it_was_sent") {
        return;
    }
    let etcd = Etcd::start("late", 1);
    let client = client(&etcd);
    let ttl = Duration::from_secs(6);
    let lease = client.grant(ttl).unwrap();
    let first = lease.valid_until();
    etcd.pause(0);
    // A renewal is sent after a third of the term, and is not answered.
    wait_for("a renewal that is under way", || Instant::now() + ttl / 2 > first);
    let answered_from = Instant::now();
    etcd.resume(0);
    wait_for("its answer", || lease.valid_until() > first);
    assert!(lease.valid_until() < answered_from + lease.ttl());
}

#[test]
fn a_cluster_of_three_survives_one() {
    if etcd_is_missing("a_cluster_of_three_survives_one") {
        return;
    }
    let mut etcd = Etcd::start("three", 3);
    let client = client(&etcd);
    let from = client.put("/k/0", b"").unwrap().next();
    let mut watch = client.watch("/k/", from);
    let lease = client.grant(Duration::from_secs(5)).unwrap();
    client.put("/k/1", b"").unwrap();
    assert_eq!(changes(&mut watch, "/k/1"), ["/k/1"]);
    // The one that the client uses dies.
    let used = client.endpoint().unwrap();
    let dead = etcd.endpoints().iter().position(|it| *it == used).unwrap();
    etcd.kill(dead);
    wait_for("a read", || client.get("/k/1").is_ok_and(|pair| pair.is_some()));
    assert_ne!(client.endpoint().unwrap(), used);
    wait_for("a write", || client.put("/k/2", b"").is_ok());
    assert_eq!(changes(&mut watch, "/k/2").last().unwrap(), "/k/2");
    let term = lease.valid_until();
    wait_for("a renewal", || lease.valid_until() > term);
    // Two dead members are no majority: an error within the timeout, not a hang.
    etcd.kill((dead + 1) % 3);
    let error = client.put("/k/3", b"").unwrap_err();
    assert!(error.to_string().contains("etcd"), "{error}");
    etcd.start_again(dead);
    wait_for("a write", || client.put("/k/4", b"").is_ok());
    assert_eq!(changes(&mut watch, "/k/4").last().unwrap(), "/k/4");
}

#[test]
fn wrong_certificates_are_refused_in_words() {
    if etcd_is_missing("wrong_certificates_are_refused_in_words") {
        return;
    }
    let etcd = Etcd::start("certificates", 1);
    let right = settings(&etcd);
    let other = weft_testkit::Authority::new(&etcd.folder().join("other"), "other");
    let strange = other.issue("strange", &[], Validity::Current);
    let expired = etcd.authority.issue("expired", &[], Validity::Expired);
    let with = |change: &dyn Fn(&mut weft_etcd::EtcdTls)| {
        let mut settings = right.clone();
        settings.tls.iter_mut().for_each(change);
        let error = Client::new(&settings).unwrap().get("/a").unwrap_err();
        assert!(error.to_string().contains(&etcd.endpoints()[0]), "no endpoint: {error}");
        error.to_string()
    };
    let error = with(&|tls| tls.ca = other.certificate.clone());
    assert!(error.contains("was not issued by an authority in"), "{error}");
    let error = with(&|tls| tls.name = Some("etcd.example".into()));
    assert!(error.contains("is for other names"), "{error}");
    for issued in [&strange, &expired] {
        let error = with(&|tls| {
            tls.certificate = Some(issued.certificate.clone());
            tls.key = Some(issued.key.clone());
        });
        assert!(error.contains("certificate"), "{error}");
    }
    let error = with(&|tls| (tls.certificate, tls.key) = (None, None));
    assert!(error.contains("certificate"), "{error}");
    let error = Client::new(&EtcdSettings { tls: None, ..right }).unwrap().get("/a").unwrap_err();
    assert!(error.to_string().contains(&etcd.endpoints()[0]), "{error}");
}

#[test]
fn a_member_that_hangs_is_left_for_another() {
    if etcd_is_missing("a_member_that_hangs_is_left_for_another") {
        return;
    }
    let etcd = Etcd::start("hangs", 3);
    let client = client(&etcd);
    client.put("/a", b"").unwrap();
    let mut watch = client.watch("/a", client.list("/a").unwrap().revision.next());
    let Some(WatchEvent::Connected { endpoint: used }) = watch.next(PATIENCE) else { panic!() };
    assert_eq!(client.endpoint().as_ref(), Some(&used));
    let hung = etcd.endpoints().iter().position(|it| *it == used).unwrap();
    etcd.pause(hung);
    wait_for("a write", || client.put("/a", b"2").is_ok());
    assert_ne!(client.endpoint(), Some(used.clone()));
    // Pings find that the watch's connection is dead. The one that goes on is named, whichever the client uses by then.
    wait_for("another member", || {
        let event = watch.next(Duration::from_secs(1));
        matches!(event, Some(WatchEvent::Connected { endpoint }) if endpoint != used)
    });
    assert_eq!(changes(&mut watch, "/a")[0], "/a");
    etcd.resume(hung);
}
