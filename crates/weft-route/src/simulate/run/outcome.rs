//! The results of a run, per window and in total.

use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;
use weft_units::ByteCount;

use super::Simulation;
use crate::controller::Stats;
use crate::fabric::{End, LinkId};
use crate::simulate::Setup;
use crate::simulate::jobs::{Job, bus_bandwidth, is_all_to_all, seconds, to_f64, whole};

/// The results of one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowRow {
    /// Number of packets marked, on all links.
    pub marks: u64,
    /// Number of ports above the alarm's threshold.
    pub congested: u64,
    /// Number of moves decided at the end of the window.
    pub moves: u64,
    /// The load of the busiest link between switches, in percent of its capacity.
    pub busiest_percent: u64,
    /// The mean over jobs of the rate of their slowest flow, in bits per second.
    pub pace: f64,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Number of flows at the end.
    pub flows: usize,
    /// Number of routers of the fabric.
    pub routers: usize,
    /// The results of each window.
    pub windows: Vec<WindowRow>,
    /// Port seconds above the alarm's threshold, summed over ports.
    pub congested_seconds: u64,
    /// Number of lasting alarms of medium level or above, counted once per minute.
    pub alarms: u64,
    /// Mean bus bandwidth of a GPU over jobs and time, by size, in bytes per second.
    pub bandwidth: Vec<(u64, f64)>,
    /// The event counts of the controller; zero without a controller.
    pub stats: Stats,
}

impl Simulation {
    /// Records the results of the current window.
    pub(super) fn record_window(&mut self, moves: u64) {
        let length = self.window_length().as_secs_f64();
        let threshold = self.setup.controller.as_ref().map_or(500, |config| config.alarm.marks);
        let above = |marking: &&f64| whole(**marking * length) > threshold;
        let congested = self.marking.iter().filter(above).count() as u64;
        let minute = (60.0 / length).max(1.0);
        // A port above the threshold for three windows has a medium alarm, which is reported once per minute.
        self.alarms += if self.window.is_multiple_of(whole(minute).max(1)) { congested } else { 0 };
        let fabric = &self.switches.fabric;
        let between = |link: &LinkId| {
            matches!((fabric.from(*link), fabric.to(*link)), (End::Router(_), End::Router(_)))
        };
        let full =
            |link: LinkId| whole(100.0 * self.load[link.index()] / self.capacity[link.index()]);
        let busiest_percent = fabric.link_ids().filter(between).map(full).max().unwrap_or(0);
        let jobs = to_f64(self.paces.len() as u64);
        self.rows.push(WindowRow {
            marks: whole(self.marking.iter().sum::<f64>() * length),
            congested,
            moves,
            busiest_percent,
            pace: self.paces.iter().sum::<f64>() / jobs,
        });
        let mut flows_of_job = vec![0usize; self.paces.len()];
        self.flows.iter().for_each(|flow| flows_of_job[flow.job as usize] += 1);
        for (size, sum) in self.setup.sizes.iter().zip(&mut self.bandwidth) {
            let of_job = |(number, job): (usize, &Job)| {
                bandwidth_of(&self.setup, job, flows_of_job[number], self.paces[number], *size)
            };
            *sum += self.jobs.running.iter().enumerate().map(of_job).sum::<f64>() / jobs;
        }
    }

    /// Returns the results so far.
    pub fn outcome(&self) -> Outcome {
        let seconds = whole(self.window_length().as_secs_f64()).max(1);
        let windows = to_f64(self.rows.len().max(1) as u64);
        let sizes = self.setup.sizes.iter().map(|size| size.0);
        Outcome {
            flows: self.flows.len(),
            routers: self.switches.fabric.router_ids().count(),
            congested_seconds: self.rows.iter().map(|row| row.congested * seconds).sum(),
            alarms: self.alarms,
            bandwidth: sizes.zip(self.bandwidth.iter().map(|sum| sum / windows)).collect(),
            stats: self.controller.as_ref().map(|it| *it.stats()).unwrap_or_default(),
            windows: self.rows.clone(),
        }
    }
}

fn bandwidth_of(setup: &Setup, job: &Job, flows: usize, pace: f64, size: ByteCount) -> f64 {
    let servers = job.servers.len();
    let peers = if is_all_to_all(setup.collective) { servers - 1 } else { 1 };
    let connections = servers * peers * 8;
    let time = seconds(setup.collective, servers, flows / connections, pace, size);
    bus_bandwidth(setup.collective, servers, size, time)
}
