//! The device daemon's state as OpenMetrics. A daemon may have 64,000 devices, and each device's samples would be series of
//! Prometheus: so the sums are of all devices, and only some of those that a process has used have samples of their own.

use prometheus_client::registry::Registry;
use weft_verbs::{DeviceState, Totals};

use crate::openmetrics::{self, counters, gauges};

/// Returns the sums, and the samples of these devices, as one text.
pub(crate) fn text(totals: &Totals, devices: &[DeviceState]) -> String {
    openmetrics::text(&registry(totals, devices))
}

/// Returns the sums, and the samples of these devices, as families of metrics.
pub(crate) fn registry(totals: &Totals, devices: &[DeviceState]) -> Registry {
    let mut registry = Registry::with_prefix("weft_device");
    let all = gauges(&mut registry, "devices", "Devices of the daemon");
    let used = gauges(&mut registry, "used_devices", "Devices that a process is attached to");
    let processes = gauges(&mut registry, "attached_processes", "Attached processes");
    let queue_pairs = gauges(&mut registry, "attached_queue_pairs", "Queue pairs of all devices");
    let memory = gauges(&mut registry, "registered_bytes", "Registered memory of all devices");
    let listed = gauges(&mut registry, "listed_devices", "Devices with samples of their own below");
    for (gauge, value) in [
        (all, u64::from(totals.devices)),
        (used, totals.attached.into()),
        (processes, totals.processes.into()),
        (queue_pairs, totals.queue_pairs.into()),
        (memory, totals.memory),
        (listed, devices.len() as u64),
    ] {
        gauge.get_or_create(&Vec::new()).set(value as f64);
    }
    let events = counters(&mut registry, "events", "Events of all devices, by name");
    for (event, count) in totals.counters.named() {
        events.get_or_create(&vec![("event", event.to_owned())]).inc_by(count);
    }
    of_devices(devices, &mut registry);
    registry
}

fn of_devices(devices: &[DeviceState], registry: &mut Registry) {
    let processes = gauges(registry, "processes", "Processes attached to a device");
    let queue_pairs = gauges(registry, "queue_pairs", "Queue pairs of a device");
    let memory = gauges(registry, "memory_bytes", "Registered memory of a device");
    let events = counters(registry, "device_events", "Events of a device, by name");
    for device in devices {
        let with = |more: Option<&str>| {
            let mut labels =
                vec![("device", device.name.clone()), ("owner", device.owner.to_string())];
            labels.extend(more.map(|event| ("event", event.to_owned())));
            labels
        };
        processes.get_or_create(&with(None)).set(device.used.processes.into());
        queue_pairs.get_or_create(&with(None)).set(device.used.queue_pairs.into());
        memory.get_or_create(&with(None)).set(device.memory as f64);
        for (event, count) in device.counters.named() {
            events.get_or_create(&with(Some(event))).inc_by(count);
        }
    }
}
