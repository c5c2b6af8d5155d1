//! The results of a run, per window and in total.

use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;
use weft_units::ByteCount;

use super::Simulation;
use crate::controller::Stats;
use crate::fabric::{End, LinkId};
use crate::simulate::Setup;
use crate::simulate::iterations::Training;
use crate::simulate::jobs::{Job, bus_bandwidth, is_all_to_all, seconds};
use crate::simulate::numbers::{to_f64, whole};

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
    /// The mean over jobs of the rate of their slowest flow while they send, in bits per second.
    pub pace: f64,
    /// The duration of the iterations that ended, as a multiple of their duration alone on the network; 0 if none ended.
    pub slowdown: f64,
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
    /// The duration of all iterations, as a multiple of their duration alone on the network; 0 without iterations.
    pub slowdown: f64,
    /// The event counts of the controller; zero without a controller.
    pub stats: Stats,
}

impl Simulation {
    /// Records the results of the current window.
    pub(super) fn record_window(&mut self, moves: u64) {
        let length = self.window_length().as_secs_f64();
        let threshold = self.setup.controller.as_ref().map_or(500, |config| config.alarm.marks);
        let marks = self.window_marks(length);
        let congested = marks.iter().filter(|marks| whole(**marks) > threshold).count() as u64;
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
        // Jobs that sent nothing have no pace.
        let paces: Vec<Option<f64>> = match &self.training {
            None => self.paces.iter().copied().map(Some).collect(),
            Some(it) => self.jobs.running.iter().map(|job| it.mean_pace(job.id)).collect(),
        };
        let ended = self.training.as_mut().map_or((0.0, 0.0), Training::end_window);
        self.iterated = (self.iterated.0 + ended.0, self.iterated.1 + ended.1);
        let jobs = to_f64(paces.iter().flatten().count().max(1) as u64);
        self.rows.push(WindowRow {
            marks: whole(marks.iter().sum()),
            congested,
            moves,
            busiest_percent,
            pace: paces.iter().flatten().sum::<f64>() / jobs,
            slowdown: ratio(ended),
        });
        let mut flows_of_job = vec![0usize; paces.len()];
        self.flows.iter().for_each(|flow| flows_of_job[flow.job as usize] += 1);
        for (size, sum) in self.setup.sizes.iter().zip(&mut self.bandwidth) {
            let of_job = |(number, job): (usize, &Job)| {
                let pace = paces[number]?;
                Some(bandwidth_of(&self.setup, job, flows_of_job[number], pace, *size))
            };
            *sum += self.jobs.running.iter().enumerate().filter_map(of_job).sum::<f64>() / jobs;
        }
    }

    /// Returns the packets that each link has marked in the current window of this length, in seconds.
    fn window_marks(&self, length: f64) -> Vec<f64> {
        match self.training {
            None => self.marking.iter().map(|marking| marking * length).collect(),
            Some(_) => {
                self.marks.iter().zip(&self.marks_before).map(|(now, it)| now - it).collect()
            }
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
            slowdown: ratio(self.iterated),
            windows: self.rows.clone(),
        }
    }
}

/// Returns the quotient of a duration and that alone on the network; 0 for nothing.
fn ratio((duration, alone): (f64, f64)) -> f64 {
    if alone > 0.0 { duration / alone } else { 0.0 }
}

fn bandwidth_of(setup: &Setup, job: &Job, flows: usize, pace: f64, size: ByteCount) -> f64 {
    let servers = job.servers.len();
    let peers = if is_all_to_all(setup.collective) { servers - 1 } else { 1 };
    let connections = servers * peers * 8;
    let time = seconds(setup.collective, servers, flows / connections, pace, size);
    bus_bandwidth(setup.collective, servers, size, time)
}
