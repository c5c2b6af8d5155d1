//! Paths: those of the overlay's pairs, and those of the connections of programs' and the daemon's devices.

use weft_report::{Column, Table};
use weft_vswitch::{PairStatus, PathStatus, Status};

use super::super::rates::Earlier;
use super::super::sample::{Programs, Sample, Source};
use super::cells::{rate, state, time};
use crate::stat::DeviceView;

/// Returns a row for each path.
pub(crate) fn paths(before: Option<&Sample>, now: &Sample) -> Table {
    let mut table = Table::new(vec![
        Column::text("of", "of"),
        Column::text("peer", "peer"),
        Column::number("path", "path"),
        Column::text("state", "state"),
        Column::number("rtt", "rtt_ns"),
        Column::number("lost/s", "lost_per_second"),
        Column::number("lost", "lost"),
        Column::number("in flight", "in_flight_bytes"),
    ]);
    if let Some(overlay) = &now.overlay {
        of_overlay(before.and_then(|it| it.overlay.as_ref()), overlay, &mut table);
    }
    for programs in &now.programs {
        of_programs(before.and_then(|it| it.programs_of(&programs.name)), programs, &mut table);
    }
    table
}

/// The key of an overlay's path: network, port, remote interface, number.
type OverlayPath = (u32, String, String, u16);

fn overlay_path(pair: &PairStatus, path: &PathStatus) -> OverlayPath {
    (pair.vni, pair.port.clone(), pair.remote.to_string(), path.path)
}

fn of_overlay(before: Option<&Source<Status>>, now: &Source<Status>, table: &mut Table) {
    let Some(status) = now.value() else { return };
    let earlier = Earlier::of(before, now, |status| {
        let pairs = status.pairs.iter();
        pairs
            .flat_map(|pair| pair.paths.iter().map(|it| (overlay_path(pair, it), [it.lost])))
            .collect()
    });
    for pair in &status.pairs {
        for path in &pair.paths {
            let lost = earlier.rates(&overlay_path(pair, path), [path.lost]).map(|[lost]| lost);
            table.push(vec![
                format!("port {}", pair.port).into(),
                pair.peer.to_string().into(),
                path.path.into(),
                state(path.up),
                time(path.rtt_us.map(nanos)),
                rate(lost),
                path.lost.into(),
                path.in_flight.into(),
            ]);
        }
    }
}

/// Returns a time in microseconds as nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a round trip is positive and has no nineteen digits"
)]
pub(super) fn nanos(micros: f64) -> u64 {
    (micros * 1e3) as u64
}

/// The key of a device's path: device, connection, number.
type DevicePath = (String, u64, u64);

fn of_programs(before: Option<&Source<Programs>>, now: &Source<Programs>, table: &mut Table) {
    let Some(programs) = now.value() else { return };
    let earlier: Earlier<DevicePath, 1> = Earlier::of(before, now, |programs| {
        let paths = |device: &DeviceView| {
            let name = device.name.clone();
            let paths = device.paths.clone().into_iter();
            paths.map(move |it| ((name.clone(), it.connection, it.path), [it.lost]))
        };
        programs.view.devices.iter().flat_map(paths).collect()
    });
    for device in &programs.view.devices {
        let program = format!("{}/{}", device.program.name, device.program.pid);
        for path in &device.paths {
            let of = device.connections.iter().find(|it| it.id == path.connection);
            let key = (device.name.clone(), path.connection, path.path);
            table.push(vec![
                programs.named(&program).into(),
                of.map_or_else(|| "–".to_owned(), |it| it.peer.to_string()).into(),
                path.path.into(),
                state(path.up != 0),
                time(path.rtt),
                rate(earlier.rates(&key, [path.lost]).map(|[lost]| lost)),
                path.lost.into(),
                path.in_flight.into(),
            ]);
        }
    }
}
