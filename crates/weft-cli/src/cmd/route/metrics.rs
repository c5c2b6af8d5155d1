//! A route controller's state as OpenMetrics.

use prometheus_client::registry::Registry;
use weft_steer::{MarksSource, View};

use crate::openmetrics::{self, counters, gauges};

/// Maximum number of records that are named, each as a series of its own.
const MAX_UNREADABLE: usize = 100;

/// Returns the picture as one text.
pub(crate) fn text(picture: &View) -> String {
    openmetrics::text(&registry(picture))
}

/// Returns the picture as families of metrics.
pub(crate) fn registry(picture: &View) -> Registry {
    let mut registry = Registry::with_prefix("weft_route");
    let steers = gauges(&mut registry, "steers", "1 if this controller has the lease");
    steers.get_or_create(&vec![]).set(f64::from(u8::from(picture.steers)));
    let usable = gauges(
        &mut registry,
        "store_usable",
        "0 if etcd, which other controllers share, cannot keep decisions, else 1",
    );
    usable.get_or_create(&vec![]).set(f64::from(u8::from(picture.store_fault.is_none())));
    let unreadable = gauges(
        &mut registry,
        "unreadable_record",
        "1 for each of at most 100 records in etcd that this controller cannot read or use",
    );
    for key in picture.unreadable_records.keys().take(MAX_UNREADABLE) {
        unreadable.get_or_create(&vec![("key", key.clone())]).set(1.0);
    }
    links(picture, &mut registry);
    probes(picture, &mut registry);
    let moves = gauges(&mut registry, "moves", "Moves that are installed or in progress, by stage");
    for it in &picture.moves {
        let stage = it.stage.split(':').next().unwrap_or_default().to_owned();
        moves.get_or_create(&vec![("stage", stage)]).inc();
    }
    let jobs = gauges(&mut registry, "jobs", "Announced jobs, by whether they have begun");
    let flows = gauges(
        &mut registry,
        "job_flows",
        "Flows of announced jobs, by whether the jobs have begun",
    );
    let periodic =
        gauges(&mut registry, "jobs_periodic", "Announced jobs whose bursts are reserved");
    let count = picture.jobs.iter().filter(|job| job.bursts.is_some()).count();
    periodic.get_or_create(&vec![]).set(count as f64);
    for job in &picture.jobs {
        let labels = vec![("begun", job.begun.to_string())];
        jobs.get_or_create(&labels).inc();
        flows.get_or_create(&labels).inc_by(job.flows as f64);
    }
    let events = counters(&mut registry, "events", "Events since the start, by kind");
    for (what, &count) in &picture.event_counts {
        events.get_or_create(&vec![("what", what.clone())]).inc_by(count);
    }
    let unread = gauges(&mut registry, "unread_routers", "Routers whose tables cannot be read");
    unread.get_or_create(&vec![]).set(picture.unread.len() as f64);
    let heard = counters(&mut registry, "sflow", "sFlow datagrams and samples received, by kind");
    let it = &picture.collector;
    for (kind, count) in [
        ("datagrams", it.datagrams),
        ("lost", it.lost),
        ("late", it.late),
        ("malformed", it.malformed),
        ("unknown_agent", it.unknown_agent),
        ("refused", it.refused),
        ("jumped", it.jumped),
        ("doubted", it.doubted),
        ("samples", it.samples),
        ("unplaced", it.unplaced),
        ("reports", it.reports),
    ] {
        heard.get_or_create(&vec![("kind", kind.to_owned())]).inc_by(count);
    }
    registry
}

fn probes(picture: &View, registry: &mut Registry) {
    let it = &picture.probes;
    let paths = gauges(registry, "probed_paths", "Paths that hosts have probed in the last minute");
    paths.get_or_create(&vec![]).set(it.paths as f64);
    let probes = counters(registry, "probes", "Probes that hosts have reported, by kind");
    let reports = counters(
        registry,
        "probe_reports",
        "Hosts' reports of probes, by whether they were accepted",
    );
    for (kind, count) in [("sent", it.counters.sent), ("lost", it.counters.lost)] {
        probes.get_or_create(&vec![("kind", kind.to_owned())]).inc_by(count);
    }
    for (kind, count) in [("accepted", it.counters.reports), ("refused", it.counters.refused)] {
        reports.get_or_create(&vec![("kind", kind.to_owned())]).inc_by(count);
    }
    let alarm = gauges(
        registry,
        "link_probe_alarm",
        "1 if probes suspect a link of this fault, 2 if flows of jobs also avoid it",
    );
    for link in &picture.links {
        for it in &link.probes {
            let labels = vec![
                ("router", link.from.clone()),
                ("port", link.port.clone()),
                ("to", link.to.clone()),
                ("fault", it.fault.name().to_owned()),
            ];
            alarm.get_or_create(&labels).set(if it.avoided { 2.0 } else { 1.0 });
        }
    }
}

fn links(picture: &View, registry: &mut Registry) {
    let load = gauges(
        registry,
        "link_load",
        "Load of a link in the last window, as a share of its capacity",
    );
    let reserved = gauges(
        registry,
        "link_reserved",
        "Greatest load of coinciding bursts that is reserved on a link, as a share of its capacity",
    );
    let marks = gauges(registry, "link_marks", "Packets marked by a link in the last window");
    let exact = gauges(
        registry,
        "link_marks_exact",
        "1 if a link's marks are its queue's own count, 0 if they are estimated from samples",
    );
    let up = gauges(registry, "link_up", "1 if packets pass a link");
    let alarm =
        gauges(registry, "link_alarm", "The alarm's level: 0 none, 1 low, 2 medium, 3 high");
    for link in picture.links.iter().filter(|link| !link.port.is_empty()) {
        let labels = vec![
            ("router", link.from.clone()),
            ("port", link.port.clone()),
            ("to", link.to.clone()),
        ];
        if let Some(bits) = link.load {
            load.get_or_create(&labels).set(bits as f64 / link.capacity.max(1) as f64);
            marks.get_or_create(&labels).set(link.marks as f64);
        }
        reserved.get_or_create(&labels).set(link.reserved as f64 / link.capacity.max(1) as f64);
        if let Some(source) = link.marks_from {
            let is_exact = source == MarksSource::Queue;
            exact.get_or_create(&labels).set(f64::from(u8::from(is_exact)));
        }
        up.get_or_create(&labels).set(f64::from(u8::from(link.up)));
        let level = match link.alarm.as_deref() {
            None => 0.0,
            Some("low") => 1.0,
            Some("medium") => 2.0,
            Some(_) => 3.0,
        };
        alarm.get_or_create(&labels).set(level);
    }
}
