//! What a run came to, window by window and in all.

use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;
use weft_units::ByteCount;

use super::jobs::{Job, bus_bandwidth, seconds, to_f64};
use super::run::Simulation;
use super::{Collective, Setup};
use crate::controller::Stats;
use crate::fabric::{End, LinkId};

/// What one window showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowRow {
    /// Packets marked, on all links.
    pub marks: u64,
    /// Ports above the alarm's threshold.
    pub congested: u64,
    /// Moves that were decided at its end.
    pub moves: u64,
    /// The load of the busiest link between switches, in percent of what it carries.
    pub busiest_percent: u64,
    /// Mean pace of all jobs, bits a second of their slowest flow.
    pub pace: f64,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Flows at the end.
    pub flows: usize,
    /// Routers of the fabric.
    pub routers: usize,
    /// Each window.
    pub windows: Vec<WindowRow>,
    /// Seconds that ports were above the alarm's threshold, all together.
    pub congested_seconds: u64,
    /// Alarms of medium level or above that lasted, counted once a minute.
    pub alarms: u64,
    /// Mean bus bandwidth of a GPU over jobs and time, by size, bytes a second.
    pub bandwidth: Vec<(u64, f64)>,
    /// What the controller did; nothing without one.
    pub stats: Stats,
}

impl Simulation {
    /// Writes down what the window was like.
    pub(super) fn note(&mut self, moves: u64) {
        let length = self.window_length().as_secs_f64();
        let threshold = self.setup.controller.as_ref().map_or(500, |config| config.alarm.marks);
        let above = |marking: &&f64| whole(**marking * length) > threshold;
        let congested = self.marking.iter().filter(above).count() as u64;
        let minute = (60.0 / length).max(1.0);
        // A port above the threshold for three windows has a medium alarm, told once a minute.
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

    /// What the run came to so far.
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
    let connections = match setup.collective {
        Collective::AllReduce => servers * 8,
        Collective::AllToAll => servers * (servers - 1) * 8,
    };
    let time = seconds(setup.collective, servers, flows / connections, pace, size);
    bus_bandwidth(setup.collective, servers, size, time)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
pub(super) const fn whole(value: f64) -> u64 {
    value as u64
}
