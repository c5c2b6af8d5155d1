//! Operations that take longer than `slow_threshold` (X-RDMA, section VI.A, method III).

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;

use weft_stat::{EventKind, Snapshot};
use weft_units::{Duration, Instant};
use weft_xrdma::{Config, Node, Options, Show};

use crate::end::End;
use crate::{alone, wait_until};

/// Returns the node's record; `None` while it is written.
fn record(node: &Node) -> Option<Snapshot> {
    let file = File::open(node.shown_at().expect("it has a record")).expect("it is there");
    Snapshot::read(&file).ok()
}

#[test]
fn calls_of_the_device_longer_than_the_threshold_are_recorded_by_name() {
    let _alone = alone();
    let end = End::start(&[]);
    // In memory: the time between two writes is a multiple of their duration.
    let folder = PathBuf::from(format!("/dev/shm/weft-segments-{}", std::process::id()));
    let show = Show { folder: Some(folder.clone()), ..Show::default() };
    // No probe of a silent peer causes a write of the record.
    let config = Config {
        slow_threshold: Duration::from_micros(1),
        keepalive: Duration::from_secs(3600),
        ..Config::default()
    };
    let mut node = Node::new(Options { config, show, ..Options::default() }).expect("a device");
    node.connect_and_wait(end.at).expect("it is taken");
    wait_until(&mut node, |node| {
        let Some(snapshot) = record(node) else { return false };
        let slow = snapshot.events.iter().filter(|event| event.kind == EventKind::SlowSegment);
        let is_named = slow.clone().any(|event| event.text.as_str() == "ibv_create_qp");
        is_named && snapshot.context.is_some_and(|it| it.slow_segments >= slow.count() as u64)
    });
    // The service of the sockets is always that slow, which causes no write by itself.
    let mut written: Option<(u64, Instant)> = None;
    wait_until(&mut node, |node| {
        let Some(at) = record(node).map(|snapshot| snapshot.program.published_at) else {
            return false;
        };
        match written {
            Some((before, since)) if before == at => {
                node.now().since(since) > Duration::from_secs(1)
            }
            _ => {
                written = Some((at, node.now()));
                false
            }
        }
    });
    // Each is one event, the latest, with all other events besides.
    let before = written.expect("it was written").0;
    node.connect_and_wait(end.at).expect("it is taken");
    wait_until(&mut node, |node| {
        let Some(snapshot) = record(node) else { return false };
        let opened = snapshot.events.iter().filter(|it| it.kind == EventKind::Opened).count();
        if snapshot.program.published_at == before || opened < 2 {
            return false;
        }
        let slow = snapshot.events.iter().filter(|event| event.kind == EventKind::SlowSegment);
        let names: BTreeSet<&str> = slow.clone().map(|event| event.text.as_str()).collect();
        assert_eq!(names.len(), slow.clone().count(), "each name once: {names:?}");
        assert!(names.contains("serving sockets") && names.contains("ibv_create_qp"), "{names:?}");
        let count = snapshot.context.as_ref().expect("a context").slow_segments;
        assert!(count > names.len() as u64, "{count} slow segments");
        assert!(snapshot.program.events >= count, "a repetition has a new number");
        assert!(snapshot.events.is_sorted_by_key(|event| event.number), "latest last");
        let last = snapshot.events.last().expect("just counted").number;
        assert_eq!(last, snapshot.program.events);
        true
    });
    drop(node);
    let _ = std::fs::remove_dir_all(folder);
}
