//! Queues, and their load: tenants' ports, programs' channels, devices, routers' links, network cards.

use std::collections::BTreeMap;

use weft_report::{Cell, Column, Table};
use weft_steer::{LinkView, MarksSource, View};
use weft_units::BitRate;
use weft_verbs::DeviceState;
use weft_vswitch::{PortStatus, Status};

use super::super::rates::{Earlier, increase, sum};
use super::super::sample::{Programs, Sample, Source};
use super::cells::{rate, share, short};
use crate::stat::NodeView;

/// Returns a row for each queue.
pub(crate) fn queues(before: Option<&Sample>, now: &Sample) -> Table {
    let mut table = Table::new(vec![
        Column::text("queue", "queue"),
        Column::number("load", "load_percent"),
        Column::number("waiting", "waiting"),
        Column::number("sent/s", "sent_per_second"),
        Column::number("recv/s", "received_per_second"),
        Column::number("dropped/s", "dropped_per_second"),
        Column::text("state", "state"),
    ]);
    if let Some(overlay) = &now.overlay {
        of_overlay(before.and_then(|it| it.overlay.as_ref()), overlay, &mut table);
    }
    for programs in &now.programs {
        let before = before.and_then(|it| it.programs_of(&programs.name));
        of_programs(before, programs, &mut table);
        of_cards(before, programs, &mut table);
    }
    if let Some(device) = &now.device {
        of_devices(before.and_then(|it| it.device.as_ref()), device, &mut table);
    }
    if let Some(view) = now.controller.as_ref().and_then(Source::value) {
        of_links(view, &mut table);
    }
    table
}

/// The counters of a port: frames of its tenant, frames to it, frames dropped.
fn port_counters(port: &PortStatus) -> [u64; 3] {
    [port.sent.0, port.received.0, port.dropped.values().sum()]
}

fn of_overlay(before: Option<&Source<Status>>, now: &Source<Status>, table: &mut Table) {
    let Some(status) = now.value() else { return };
    let earlier = Earlier::of(before, now, |status| {
        status.ports.iter().map(|port| (port.name.clone(), port_counters(port))).collect()
    });
    let earlier_status = before.and_then(Source::value);
    for port in &status.ports {
        let rates = earlier.rates(&port.name, port_counters(port));
        let was = earlier_status.and_then(|it| it.ports.iter().find(|it| it.name == port.name));
        table.push(vec![
            format!("port {}", port.name).into(),
            Cell::missing(),
            (port.held.0 + port.held.1).into(),
            rate(rates.map(|[sent, ..]| sent)),
            rate(rates.map(|[_, received, _]| received)),
            rate(rates.map(|[.., dropped]| dropped)),
            port_state(port, was).into(),
        ]);
    }
}

/// Returns the state of a port, and the most frequent cause of drops since the sample before.
fn port_state(port: &PortStatus, before: Option<&PortStatus>) -> String {
    let state = if port.up { "up" } else { "no tenant" };
    let Some(before) = before else { return state.to_owned() };
    let dropped = port.dropped.iter().map(|(cause, &count)| {
        // Causes are listed without zeros.
        (increase(before.dropped.get(cause).copied().unwrap_or(0), count), cause)
    });
    match dropped.max() {
        Some((1.., cause)) => format!("{state}, drops: {cause}"),
        _ => state.to_owned(),
    }
}

/// The counters of a node's channels by their numbers: messages sent and received.
fn channel_counters(node: &NodeView) -> impl Iterator<Item = ((String, u64), [u64; 2])> {
    node.channels.iter().map(|channel| {
        let record = &channel.record;
        ((node.name.clone(), record.id), [record.sent, record.received])
    })
}

fn of_programs(before: Option<&Source<Programs>>, now: &Source<Programs>, table: &mut Table) {
    let Some(programs) = now.value() else { return };
    let earlier = Earlier::of(before, now, |programs| {
        programs.view.nodes.iter().flat_map(channel_counters).collect()
    });
    for node in &programs.view.nodes {
        let rates = sum(channel_counters(node).map(|(key, now)| earlier.rates(&key, now)));
        let sum_of = |of: fn(&weft_stat::ChannelRecord) -> u64| -> u64 {
            node.channels.iter().map(|channel| of(&channel.record)).sum()
        };
        let [in_flight, depth] = [sum_of(|it| it.in_flight), sum_of(|it| it.depth)];
        let name = format!("{}/{}", node.program.name, node.program.pid);
        table.push(vec![
            format!("channels {}", programs.named(&name)).into(),
            share(in_flight, depth),
            sum_of(|it| it.backlog).into(),
            rate(rates.map(|[sent, _]| sent)),
            rate(rates.map(|[_, received]| received)),
            Cell::missing(),
            match node.channels.len() {
                1 => "1 channel".into(),
                count => format!("{count} channels").into(),
            },
        ]);
    }
}

/// Returns the rows of network cards: the counters that show congestion and are not zero.
fn of_cards(before: Option<&Source<Programs>>, now: &Source<Programs>, table: &mut Table) {
    let Some(programs) = now.value() else { return };
    let counters = |programs: &Programs| -> Vec<((String, String), [u64; 1])> {
        let ports = programs.ports.iter();
        ports
            .flat_map(|port| {
                port.counters
                    .iter()
                    .map(|counter| ((port.name.clone(), counter.name.clone()), [counter.count]))
            })
            .collect()
    };
    let earlier = Earlier::of(before, now, counters);
    for port in &programs.ports {
        for counter in port.counters.iter().filter(|counter| counter.count > 0) {
            let key = (port.name.clone(), counter.name.clone());
            let rates = earlier.rates(&key, [counter.count]).map(|[count]| count);
            let kind = counter.kind.name();
            let is_drop = kind == "drop";
            let per_second = rates.map_or_else(String::new, |it| format!(", {}/s", short(it)));
            table.push(vec![
                format!("card {} {}", programs.named(&port.name), counter.name).into(),
                Cell::missing(),
                Cell::missing(),
                Cell::missing(),
                Cell::missing(),
                rate(rates.filter(|_| is_drop)),
                format!("{kind} {}{per_second}", counter.count).into(),
            ]);
        }
    }
}

/// The counters of a device: requests posted, messages received, requests that failed, waits for its message rate.
fn device_counters(device: &DeviceState) -> [u64; 4] {
    let it = &device.counters;
    [it.requests_posted, it.messages_received, it.requests_failed, it.waits]
}

fn of_devices(
    before: Option<&Source<Vec<DeviceState>>>,
    now: &Source<Vec<DeviceState>>,
    table: &mut Table,
) {
    let Some(devices) = now.value() else { return };
    let earlier = Earlier::of(before, now, |devices| {
        devices.iter().map(|it| (it.name.clone(), device_counters(it))).collect()
    });
    for device in devices {
        let rates = earlier.rates(&device.name, device_counters(device));
        let waits = rates.map_or(0.0, |[.., waits]| waits);
        let mut state = format!("{} processes", device.used.processes);
        if waits > 0.0 {
            state += &format!(", {} waits/s for its message rate", short(waits));
        }
        table.push(vec![
            format!("device {}", device.name).into(),
            share(device.used.queue_pairs.into(), device.limits.objects.queue_pairs.into()),
            Cell::missing(),
            rate(rates.map(|[posted, ..]| posted)),
            rate(rates.map(|[_, received, ..]| received)),
            rate(rates.map(|[_, _, failed, _]| failed)),
            state.into(),
        ]);
    }
}

/// Returns the rows of routers' links. A host's cable is the last link of the paths to it, in both directions.
fn of_links(view: &View, table: &mut Table) {
    let mut links: BTreeMap<(&str, &str, &str), &LinkView> = BTreeMap::new();
    // The sender of a host's direction has no port, and reports nothing.
    for link in view.links.iter().filter(|link| !link.port.is_empty()) {
        links.insert((&link.from, &link.port, &link.to), link);
    }
    for ((from, port, to), link) in links {
        table.push(vec![
            format!("link {from} {port} → {to}").into(),
            link.load.map_or_else(Cell::missing, |load| share(load, link.capacity)),
            Cell::missing(),
            Cell::missing(),
            Cell::missing(),
            Cell::missing(),
            link_state(link).into(),
        ]);
    }
}

/// Returns the state of a link: down or its capacity, its marks and alarms.
fn link_state(link: &LinkView) -> String {
    if !link.up {
        return "down".to_owned();
    }
    let mut state = BitRate::bps(link.capacity).map(|rate| rate.to_string()).unwrap_or_default();
    if link.marks > 0 {
        let about = if link.marks_from == Some(MarksSource::Queue) { "" } else { "about " };
        state += &format!(", {about}{} marks", link.marks);
    }
    if let Some(level) = &link.alarm {
        state += &format!(", alarm {level}");
    }
    for alarm in &link.probes {
        state += &format!(", probes suspect {}", alarm.fault.name());
    }
    state
}
