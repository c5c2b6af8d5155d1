//! A view of a running controller for its page, for Prometheus and for scripts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_guard::Refused;
use weft_route::{
    Barred, Bursts, End, Event, EventKind, Fabric, Job, LinkFault, LinkId, Move, ProbeAlarm,
    ProbeCounters, RecordKey, Stage,
};
use weft_units::Instant;

use super::{Daemon, Leader, RequestError, Role};
use crate::{CollectorCounters, MarksSource};

/// The state of a controller and its fabric at one time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// The time, in nanoseconds since 1970.
    pub at: u64,
    /// The name of this controller as a lease holder.
    pub holder: String,
    /// `true` if it holds the lease.
    pub steers: bool,
    /// The other holder of the lease, if there is one.
    pub other: Option<String>,
    /// Its role among the controllers that share a store.
    #[serde(default)]
    pub role: Role,
    /// The leader of these, if another one leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// The reason for which the store cannot be used, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_fault: Option<String>,
    /// The records of the store that cannot be read or used, by key, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreadable_records: BTreeMap<String, String>,
    /// `true` if it only reports moves.
    pub dry_run: bool,
    /// Routers and hosts.
    pub nodes: Vec<NodeView>,
    /// Both directions of every cable.
    pub links: Vec<LinkView>,
    /// Moves that are installed or being applied or undone.
    pub moves: Vec<MoveView>,
    /// Moves that were undone or refused and are not tried again for a while.
    #[serde(default)]
    pub barred: Vec<BarredView>,
    /// Jobs that were announced, in order of their names.
    pub jobs: Vec<JobView>,
    /// The recent events, the newest first.
    pub events: Vec<Event>,
    /// Event counts since the start, by kind.
    #[serde(rename = "happened")]
    pub event_counts: BTreeMap<String, u64>,
    /// The address on which sFlow is received.
    pub listening: String,
    /// The event counts of the collector.
    #[serde(rename = "heard")]
    pub collector: CollectorCounters,
    /// The recently refused sources of sFlow, the newest first.
    pub refused: Vec<RefusedView>,
    /// The probes that hosts report.
    pub probes: ProbesView,
    /// By router, the error of the last read of its tables.
    pub unread: BTreeMap<String, String>,
}

/// The probes that hosts report.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ProbesView {
    /// Number of hosts that have reported in the last minute.
    pub hosts: usize,
    /// Number of their paths.
    pub paths: usize,
    /// The counts since the start.
    #[serde(flatten)]
    pub counters: ProbeCounters,
}

/// An alarm of a link by probes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeAlarmView {
    /// The fault.
    pub fault: LinkFault,
    /// The time since which it lasts, in nanoseconds since 1970.
    pub since: u64,
    /// The share of probes over the link that were lost, in thousandths.
    pub lost_per_mille: u32,
    /// The median delay of the paths over the link beyond their lowest round-trip time, in nanoseconds.
    pub delay_ns: u64,
    /// Number of paths over the link.
    pub paths: usize,
    /// Number of these paths that suffer.
    pub suffering: usize,
    /// Number of hosts whose probes cross the link.
    pub hosts: usize,
    /// Number of these hosts that suspect it.
    pub votes: usize,
    /// The names of links that the same paths cross: one of all these has the fault.
    pub others: Vec<String>,
    /// `true` if flows of jobs are planned around the link.
    pub avoided: bool,
}

/// A source whose datagrams were refused.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RefusedView {
    /// Its address.
    pub source: IpAddr,
    /// Number of its datagrams.
    pub datagrams: u64,
}

/// A router or host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// A router's name or a host's address.
    pub name: String,
    /// 0 for hosts, 1 for routers that have hosts, more further up.
    pub tier: u32,
}

/// A direction of a cable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkView {
    /// The sender.
    pub from: String,
    /// The sending port; empty if the sender is a host.
    pub port: String,
    /// The receiver.
    pub to: String,
    /// The capacity in bits per second.
    pub capacity: u64,
    /// The load in the last whole window in bits per second, if reported.
    pub load: Option<u64>,
    /// The greatest load of coinciding bursts that is reserved on it, in bits per second.
    #[serde(default)]
    pub reserved: u64,
    /// Number of marks in that window.
    pub marks: u64,
    /// The source of the marks, if the port has reported.
    pub marks_from: Option<MarksSource>,
    /// `true` if packets pass.
    pub up: bool,
    /// The alarm's level, if there is an alarm by marks.
    pub alarm: Option<String>,
    /// The alarms by probes.
    #[serde(default)]
    pub probes: Vec<ProbeAlarmView>,
}

/// A move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveView {
    /// The number of the move.
    pub id: u64,
    /// The router.
    pub router: String,
    /// The destination.
    pub destination: String,
    /// The port that flows leave, with its router if that is another one.
    pub from: String,
    /// The ports of the new next hops.
    pub to: Vec<String>,
    /// Number of flows.
    pub flows: usize,
    /// The present stage.
    pub stage: String,
    /// The time of the decision, in nanoseconds since 1970.
    pub decided: u64,
    /// The reason in words and numbers.
    pub reason: String,
    /// The commands that applied it.
    pub commands: Vec<String>,
}

/// A move that is not to be tried again for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BarredView {
    /// The router.
    pub router: String,
    /// The destination.
    pub destination: String,
    /// The ports of the next hops.
    pub to: Vec<String>,
    /// The end of that time, in nanoseconds since 1970.
    pub until: u64,
}

/// An announced job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Number of its flows.
    pub flows: usize,
    /// The time of the last announcement, in nanoseconds since 1970.
    pub announced: u64,
    /// `true` if packets of the job were sampled since.
    pub begun: bool,
    /// Number of times that its ports were planned: more than once after paths have changed.
    pub version: u64,
    /// The total rate of its flows in bits per second.
    pub rate: u64,
    /// The expected utilisation of its fullest link, in thousandths.
    pub fullest_per_mille: u32,
    /// Its bursts, for which its links are reserved; none if it is not periodic, or not known for long enough.
    #[serde(default)]
    pub bursts: Option<BurstsView>,
}

/// The periodic bursts of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BurstsView {
    /// The time from the start of a burst to the start of the next, in nanoseconds.
    pub period_ns: u64,
    /// The length of a burst in nanoseconds.
    pub length_ns: u64,
    /// Maximum deviation of the observed starts from the period, in nanoseconds.
    pub jitter_ns: u64,
    /// The expected start of the next burst, in nanoseconds since 1970.
    pub next: u64,
}

impl View {
    pub(super) fn of(daemon: &Daemon, now: Instant) -> Self {
        let controller = &daemon.controller;
        let fabric = controller.fabric();
        let (hosts, paths) = controller.probes().probed();
        let mut alarms: BTreeMap<LinkId, Vec<ProbeAlarmView>> = BTreeMap::new();
        for (link, alarm) in controller.probes().alarms() {
            alarms.entry(link).or_default().push(suspected(alarm, fabric));
        }
        let mut link_view =
            |link| view(daemon, link, alarms.remove(&link).unwrap_or_default(), now);
        let name = |kind: EventKind| format!("{kind:?}").to_lowercase();
        Self {
            at: now.as_nanos(),
            holder: daemon.leases.holder().to_owned(),
            steers: daemon.epoch(now).is_some(),
            other: match daemon.watches() {
                RequestError::Watches { other, .. } => other,
                _ => None,
            },
            role: daemon.office.role(),
            leader: daemon.leader.clone(),
            store_fault: daemon.store_fault.clone(),
            unreadable_records: unreadable_records(daemon),
            dry_run: daemon.config.dry_run,
            nodes: nodes(fabric),
            links: fabric.link_ids().filter_map(&mut link_view).collect(),
            moves: controller.moves().map(|it| moved(daemon, it)).collect(),
            barred: controller.barred().iter().map(BarredView::from).collect(),
            jobs: controller.jobs().iter().map(|it| job(it, now)).collect(),
            events: daemon.events.iter().rev().cloned().collect(),
            event_counts: daemon
                .event_counts
                .iter()
                .map(|(&kind, &count)| (name(kind), count))
                .collect(),
            listening: daemon.listening().map(|at| at.to_string()).unwrap_or_default(),
            collector: daemon.collector.counters(),
            refused: daemon.collector.refused().map(RefusedView::from).collect(),
            probes: ProbesView { hosts, paths, counters: controller.probes().counters() },
            unread: daemon.read_errors.clone(),
        }
    }
}

impl From<&Barred> for BarredView {
    fn from(it: &Barred) -> Self {
        Self {
            router: it.router.clone(),
            destination: it.prefix.first().to_string(),
            to: it.members.iter().map(|member| member.port.clone()).collect(),
            until: it.until,
        }
    }
}

impl From<Refused> for RefusedView {
    fn from(Refused { source, count }: Refused) -> Self {
        Self { source, datagrams: count }
    }
}

fn job((name, job): (&String, &Job), now: Instant) -> JobView {
    JobView {
        name: name.clone(),
        flows: job.flows.len(),
        announced: job.announced,
        begun: job.begun,
        version: job.version,
        rate: job.flows.iter().fold(0, |sum, it| it.rate.as_bps().saturating_add(sum)),
        fullest_per_mille: job.fullest,
        bursts: job.bursts.map(|it| bursts(it, now)),
    }
}

fn bursts(it: Bursts, now: Instant) -> BurstsView {
    let next = it.starts(now, now + it.period).next().unwrap_or(now);
    BurstsView {
        period_ns: it.period.as_nanos(),
        length_ns: it.length.as_nanos(),
        jitter_ns: it.jitter.as_nanos(),
        next: next.as_nanos(),
    }
}

fn moved(daemon: &Daemon, it: &Move) -> MoveView {
    MoveView {
        id: it.id,
        router: it.router.clone(),
        destination: it.prefix.first().to_string(),
        // The alarmed port may be at a router behind this one.
        from: match it.port_of == it.router {
            true => it.port.clone(),
            false => format!("{} {}", it.port_of, it.port).trim().to_owned(),
        },
        to: it.members.iter().map(|member| member.port.clone()).collect(),
        flows: it.flows.len(),
        stage: match &it.stage {
            Stage::Applying { .. } => "applying".into(),
            Stage::Reading { .. } => "reading".into(),
            Stage::Verifying { .. } => "verifying".into(),
            Stage::Kept => "kept".into(),
            Stage::Undoing { why, .. } => format!("undoing: {why}"),
        },
        decided: it.decided,
        reason: it.reason.clone(),
        commands: daemon.commands.get(&it.id).cloned().unwrap_or_default(),
    }
}

fn name(fabric: &Fabric, end: End) -> Option<String> {
    match end {
        End::Router(router) => Some(fabric.router(router).name.clone()),
        End::Host(host) => fabric.addresses(host).iter().next().map(|it| it.to_string()),
        End::Nothing => None,
    }
}

fn suspected(alarm: &ProbeAlarm, fabric: &Fabric) -> ProbeAlarmView {
    ProbeAlarmView {
        fault: alarm.fault,
        since: alarm.since,
        lost_per_mille: alarm.lost_per_mille,
        delay_ns: alarm.delay_ns,
        paths: alarm.paths,
        suffering: alarm.suffering,
        hosts: alarm.sources,
        votes: alarm.votes,
        others: alarm.others.iter().map(|&link| fabric.name(link).to_string()).collect(),
        avoided: alarm.avoided.is_some(),
    }
}

fn view(
    daemon: &Daemon,
    link: LinkId,
    probes: Vec<ProbeAlarmView>,
    now: Instant,
) -> Option<LinkView> {
    let controller = &daemon.controller;
    let fabric = controller.fabric();
    let telemetry = controller.telemetry();
    let index = telemetry.index(now);
    // Reports of the last window may not have arrived yet.
    let window = (1..=2).find_map(|back| telemetry.window(link, index.checked_sub(back)?));
    Some(LinkView {
        from: name(fabric, fabric.from(link))?,
        port: fabric.port_of(link).map(|(_, port)| port.name.clone()).unwrap_or_default(),
        to: name(fabric, fabric.to(link))?,
        capacity: fabric.rate(link).as_bps(),
        load: window.map(weft_route::Window::rate),
        reserved: controller.reserved(link),
        marks: window.map_or(0, |window| window.marks),
        marks_from: daemon.collector.marks_source(link),
        up: fabric.passes(link),
        alarm: controller.alarms().get(&link).map(|alarm| alarm.level.name().to_owned()),
        probes,
    })
}

/// Returns the nodes with tiers: 0 for hosts, and for routers their distance from a host.
/// Returns the records that cannot be read, and those that cannot be used and were not replaced since.
fn unreadable_records(daemon: &Daemon) -> BTreeMap<String, String> {
    let jobs = daemon.controller.jobs();
    let is_replaced =
        |key: &RecordKey| matches!(key, RecordKey::Job(name) if jobs.contains_key(name));
    let unused = daemon.unused.iter().filter(|(key, _)| !is_replaced(key));
    let unused = unused.map(|(key, reason)| (key.to_string(), reason.clone()));
    daemon.unreadable.clone().into_iter().chain(unused).collect()
}

fn nodes(fabric: &Fabric) -> Vec<NodeView> {
    let mut tiers: BTreeMap<u32, u32> = BTreeMap::new();
    let links: Vec<(End, End)> =
        fabric.link_ids().map(|link| (fabric.from(link), fabric.to(link))).collect();
    for (from, to) in &links {
        if let (End::Host(_), End::Router(router)) = (from, to) {
            tiers.insert(router.0, 1);
        }
    }
    loop {
        let mut found = vec![];
        for (from, to) in &links {
            if let (End::Router(from), End::Router(to)) = (from, to)
                && let Some(&tier) = tiers.get(&from.0)
                && !tiers.contains_key(&to.0)
            {
                found.push((to.0, tier + 1));
            }
        }
        if found.is_empty() {
            break;
        }
        tiers.extend(found);
    }
    let mut nodes: Vec<NodeView> = fabric
        .router_ids()
        .map(|router| NodeView {
            name: fabric.router(router).name.clone(),
            tier: tiers.get(&router.0).copied().unwrap_or(1),
        })
        .collect();
    let hosts = links.iter().filter_map(|(from, _)| match from {
        End::Host(_) => name(fabric, *from),
        _ => None,
    });
    let mut hosts: Vec<String> = hosts.collect();
    hosts.dedup();
    nodes.extend(hosts.into_iter().map(|name| NodeView { name, tier: 0 }));
    nodes
}
