//! Many channels, and ends that stop, die or change carrier: between a node of this process and one of another. `rxe`
//! runs the same tests between two guests whose devices are the kernel's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use weft_units::Duration;
use weft_xrdma::{Event, Node};
// The archive is made with the library.
use weft_verbs as _;

mod carriers;
mod cycles;
mod end;
mod resources;
mod rxe;
mod segments;

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits"), false)
});

/// Loads the library and excludes other tests of this file: they share two processors, and count descriptors.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !end::is_elsewhere() {
        weft_testkit::load_verbs(&LIBRARY);
    }
    guard
}

#[test]
#[ignore = "it is the other end of the tests, which start it"]
fn other_end() {
    let parameters = std::env::var(end::ROLE).expect("a test starts it");
    end::serve(&parameters);
}

/// Polls until `condition` returns `true`; fails after 30 seconds.
fn wait_until(node: &mut Node, mut condition: impl FnMut(&mut Node) -> bool) {
    let until = node.now() + Duration::from_secs(30);
    while !condition(node) {
        assert!(node.now() < until, "not within half a minute");
        node.wait(Some(Duration::from_millis(1)));
    }
}

/// Takes all events and returns the reasons of the channels that ended.
fn reasons(node: &mut Node) -> Vec<weft_xrdma::CloseReason> {
    let happened = std::iter::from_fn(|| node.poll_event());
    let reasons = happened.filter_map(|event| match event {
        Event::Channel(weft_msg::Event::Closed { reason, .. }) => Some(reason),
        _ => None,
    });
    reasons.collect()
}

/// Takes all events and returns the channels that ended.
fn ended(node: &mut Node) -> BTreeSet<weft_xrdma::ChannelId> {
    let happened = std::iter::from_fn(|| node.poll_event());
    let closed = happened.filter_map(|event| match event {
        Event::Channel(weft_msg::Event::Closed { channel, .. }) => Some(channel),
        _ => None,
    });
    closed.collect()
}
