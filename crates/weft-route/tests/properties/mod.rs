//! The properties of every input. The mutation tests and the fuzz targets both call these.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::net::IpAddr;
use std::sync::LazyLock;

use weft_route::{
    Controller, ControllerConfig, End, Fabric, Flow, Installed, Outcome, ProbeReport, Record,
    RecordKey, Start, State,
};
use weft_units::{Duration, Instant};

/// Maximum number of hosts between which flows are traced.
const MAX_HOSTS: usize = 16;

/// Parses the installed state of routers and looks up paths of flows. Returns `true` if it is a fabric.
pub fn installed(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Ok(installed) = toml::from_str::<Installed>(&text) else { return false };
    let written = toml::to_string(&installed).expect("what was read can be written");
    assert_eq!(toml::from_str::<Installed>(&written).as_ref(), Ok(&installed));
    let fabric = match Fabric::new(installed) {
        Ok(fabric) => fabric,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let hosts: Vec<IpAddr> = fabric
        .link_ids()
        .filter_map(|link| match fabric.from(link) {
            End::Host(host) => Some(fabric.addresses(host)),
            _ => None,
        })
        .flat_map(|host| host.iter())
        .take(MAX_HOSTS)
        .collect();
    let mut flows = vec![];
    for &src in &hosts {
        for &dst in hosts.iter().chain(&[[0, 0, 0, 1].into(), [1u16; 8].into()]) {
            if let Some(flow) = Flow::new((src, 0xc000).into(), (dst, 4791).into(), 17) {
                follow(&fabric, &flow);
                flows.push(flow);
            }
        }
    }
    in_step(&fabric, &flows);
    true
}

/// Checks that paths looked up together equal those looked up one by one.
fn in_step(fabric: &Fabric, flows: &[Flow]) {
    let from_links = |flow: &Flow| {
        let host = fabric.host(flow.src()).expect("it came from the fabric");
        fabric.links_of_host(host).iter().map(|&link| Start::Link(link)).collect::<Vec<Start>>()
    };
    let from_router = fabric.router_ids().next().map(Start::Router);
    let starts = |flow| from_links(flow).into_iter().chain(from_router).map(move |it| (it, flow));
    let all: Vec<(Start, &Flow)> = flows.iter().flat_map(starts).collect();
    let mut alone = all.iter().map(|&(start, flow)| fabric.path_from(start, flow));
    fabric.paths(all.iter().copied(), |path| assert_eq!(Some(*path), alone.next()));
    assert_eq!(alone.next(), None);
}

fn follow(fabric: &Fabric, flow: &Flow) {
    let host = fabric.host(flow.src()).expect("it came from the fabric");
    for &first in fabric.links_of_host(host) {
        let (path, why) = fabric.explain(Start::Link(first), flow);
        assert_eq!(path, fabric.path_from(Start::Link(first), flow));
        assert_eq!(why.arrives, matches!(path.outcome, Outcome::Delivered(_)));
        for pair in path.links().windows(2) {
            assert_eq!(fabric.to(pair[0]), fabric.from(pair[1]), "links meet in routers");
        }
        if let Outcome::Delivered(at) = path.outcome {
            assert_eq!(fabric.host(flow.dst()), Some(at));
        }
    }
}

/// The fabric of every controller whose state is read.
static FABRIC: LazyLock<Fabric> = LazyLock::new(|| {
    let text = include_str!("../golden/installed/two-by-two.toml");
    Fabric::new(toml::from_str(text).expect("a good file")).expect("a good fabric")
});

/// Parses a controller's state and runs the controller for 20 windows. Returns `true` if it is a state.
pub fn state(bytes: &[u8]) -> bool {
    let Ok(state) = serde_json::from_slice::<State>(bytes) else { return false };
    let fabric = FABRIC.clone();
    let (config, jobs) = (ControllerConfig::default(), Default::default());
    let Ok(mut controller) = Controller::restore(config, fabric, state, jobs) else {
        return false;
    };
    steer(&mut controller);
    let written = serde_json::to_vec(&controller.state()).expect("it can be written");
    assert_eq!(serde_json::from_slice::<State>(&written).ok(), Some(controller.state()));
    true
}

/// Runs a controller for 20 windows.
fn steer(controller: &mut Controller) {
    let mut now = Instant::EPOCH + Duration::from_secs(40);
    controller.set_lease(Some(2), now);
    for _ in 0..20 {
        now += Duration::from_secs(10);
        controller.handle_timeout(now);
        assert!(controller.poll_timeout().is_none_or(|at| at > Instant::EPOCH));
        while controller.poll_action().is_some() {}
        while controller.poll_event().is_some() {}
    }
}

/// Parses a record of another controller, its key in the first line, and runs a controller that has taken it over. Returns
/// `true` if it is a record that a controller can use.
pub fn record(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((key, value)) = text.split_once('\n') else { return false };
    let (Ok(key), Ok(record)) = (key.parse::<RecordKey>(), serde_json::from_str::<Record>(value))
    else {
        return false;
    };
    assert_eq!(key.to_string().parse().as_ref(), Ok(&key));
    let mut controller = Controller::new(ControllerConfig::default(), FABRIC.clone());
    if controller.follow_record(&key, Some(record.clone())).is_err() {
        return false;
    }
    steer(&mut controller);
    let overview = include_str!("../golden/records/overview.txt");
    let overview = overview.split_once('\n').expect("a key and a value").1;
    let overview = serde_json::from_str(overview).expect("a record");
    let mut controller = Controller::new(ControllerConfig::default(), FABRIC.clone());
    let records = [(RecordKey::Overview, overview), (key, record)];
    controller.take_over(records);
    steer(&mut controller);
    true
}

/// The report of a host that loses nothing.
const HONEST: &str = r#"{ "source": "10.2.0.2", "port": 4794, "paths": [
  { "destination": "10.1.0.2", "source_port": 61000, "sent": 20, "lost": 0,
    "round_trip": { "min_ns": 21000, "median_ns": 24000, "p99_ns": 61000 } } ] }"#;

/// Parses a host's report of its probes, and has a controller count it and the honest reports of another host. Returns
/// `true` if the controller accepts it.
///
/// # Panics
/// Panics if a refused report is counted, or if one host's reports raise an alarm.
pub fn probe_report(bytes: &[u8]) -> bool {
    let Ok(report) = serde_json::from_slice::<ProbeReport>(bytes) else { return false };
    let mut controller = Controller::new(ControllerConfig::default(), FABRIC.clone());
    let honest: ProbeReport = serde_json::from_str(HONEST).expect("a report");
    let (mut now, mut is_accepted) = (Instant::EPOCH, false);
    for _ in 0..10 {
        now += Duration::from_millis(250);
        controller.handle_probes(&honest, now).expect("an honest report");
        let before = controller.probes().counters();
        is_accepted =
            report.source != honest.source && controller.handle_probes(&report, now).is_ok();
        let after = controller.probes().counters();
        assert_eq!(after.sent > before.sent, is_accepted);
        controller.handle_timeout(now);
        assert_eq!(controller.probes().alarms().count(), 0, "{report:?}");
    }
    is_accepted
}

/// Parses a flow and checks that its text parses to the same flow. Returns `true` if it is a flow.
pub fn flow(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Ok(flow) = text.parse::<Flow>() else { return false };
    assert_eq!(flow.to_string().parse(), Ok(flow));
    true
}
