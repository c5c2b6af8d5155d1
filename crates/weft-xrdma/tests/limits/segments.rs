//! Operations that take longer than `slow_threshold` (X-RDMA, section VI.A, method III).

use std::fs::File;

use weft_stat::{EventKind, Snapshot};
use weft_units::Duration;
use weft_xrdma::{Config, Node, Options, Show};

use crate::end::End;
use crate::{alone, wait_until};

#[test]
fn calls_of_the_device_longer_than_the_threshold_are_recorded_by_name() {
    let _alone = alone();
    let end = End::start(&[]);
    let folder = std::env::temp_dir().join(format!("weft-segments-{}", std::process::id()));
    let show = Show { folder: Some(folder.clone()), ..Show::default() };
    let config = Config { slow_threshold: Duration::from_micros(1), ..Config::default() };
    let mut node = Node::new(Options { config, show, ..Options::default() }).expect("a device");
    node.connect_and_wait(end.at).expect("it is taken");
    wait_until(&mut node, |node| {
        let file = File::open(node.shown_at().expect("it has a record")).expect("it is there");
        let Ok(snapshot) = Snapshot::read(&file) else { return false };
        let slow = snapshot.events.iter().filter(|event| event.kind == EventKind::SlowSegment);
        let is_named = slow.clone().any(|event| event.text.as_str() == "ibv_create_qp");
        is_named && snapshot.context.is_some_and(|it| it.slow_segments >= slow.count() as u64)
    });
    drop(node);
    let _ = std::fs::remove_dir_all(folder);
}
