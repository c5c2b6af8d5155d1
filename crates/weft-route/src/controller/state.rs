//! A controller's state, saved for a restart.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weft_units::Fnv1a;

use super::moved::{Barred, Episode};
use super::{Action, Controller, ControllerConfig, Job, JobError, Move, Stage, Stats};
use crate::alarm::Alarm;
use crate::bursts::{Bursts, Traffic};
use crate::fabric::{Fabric, LinkId, RouterId};
use crate::flow::Flow;
use crate::suspects::Tally;
use crate::telemetry::History;

/// A controller's state. Moves are stored by names. Measurements are stored by the link numbers of one fabric and are
/// used only if the new fabric's names are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    /// A fingerprint of the names of routers and ports, in order.
    fabric: u64,
    moves: Vec<Move>,
    next_id: u64,
    barred: Vec<Barred>,
    refusals: BTreeMap<String, (u32, u64)>,
    next_window: Option<u64>,
    stats: Stats,
    measured: Measured,
}

/// The measurements, by the numbers of one fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    episodes: Vec<Episode>,
    alarms: Vec<(LinkId, Alarm)>,
    #[serde(rename = "lately")]
    recent_windows: Vec<(u32, VecDeque<u64>)>,
    ports: Vec<(LinkId, History)>,
    samples: Vec<(LinkId, Flow, Tally)>,
    /// The names of the jobs whose traffic is recorded.
    #[serde(default)]
    recorded: Vec<String>,
    #[serde(default)]
    jobs: BTreeMap<String, JobHistory>,
}

/// The measurements of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobHistory {
    renewed: Option<u64>,
    seen: Option<u64>,
    traffic: Traffic,
    bursts: Option<Bursts>,
}

/// The reason why a state is not restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another version wrote the state.
    #[error(
        "the state is of version {got}, this controller reads version {VERSION}; start without it: installed moves are adopted"
    )]
    Version {
        /// Its version.
        got: u32,
    },
    /// The state contradicts itself.
    #[error("the state is damaged ({0}); start without it: installed moves are adopted")]
    Damaged(&'static str),
    /// The jobs contradict themselves.
    #[error(transparent)]
    Jobs(#[from] JobError),
    /// A later version wrote the records.
    #[error(
        "the records are of version {got}, this controller reads version {read}: use the program that wrote them"
    )]
    Records {
        /// Their version.
        got: u32,
        /// The version that is read.
        read: u32,
    },
}

const VERSION: u32 = 3;
/// The oldest version that is read. It has no measurements of jobs.
const OLDEST_VERSION: u32 = 2;
/// Upper bound of window indices; a clock of 64 bits in nanoseconds ends after 584 years.
pub(super) const LAST_WINDOW: u64 = 1 << 62;

impl State {
    /// Returns every window index in the state.
    fn windows(&self) -> impl Iterator<Item = u64> + '_ {
        let Measured { alarms, recent_windows, ports, samples, .. } = &self.measured;
        let moves = self.moves.iter().flat_map(Move::windows);
        let alarms = alarms.iter().flat_map(|(_, it)| [it.since, it.window]);
        let recent_windows = recent_windows.iter().flat_map(|(_, times)| times.iter().copied());
        let jobs = self.measured.jobs.values().filter_map(|it| it.seen);
        let ports = ports.iter().flat_map(|(_, it)| it.indices());
        let samples = samples.iter().flat_map(|(_, _, it)| it.indices());
        self.next_window
            .into_iter()
            .chain(moves)
            .chain(alarms)
            .chain(recent_windows)
            .chain(ports)
            .chain(samples)
            .chain(jobs)
    }
}

impl Controller {
    /// Returns the present state.
    pub fn state(&self) -> State {
        State {
            version: VERSION,
            fabric: fingerprint(&self.fabric),
            moves: self.moves.values().cloned().collect(),
            next_id: self.next_id,
            barred: self.barred.clone(),
            refusals: self.refusals.clone(),
            next_window: self.next_window,
            stats: self.stats,
            measured: self.measured(),
        }
    }

    fn measured(&self) -> Measured {
        let (ports, tallies) = (self.telemetry.histories().iter(), self.suspects.tallies().iter());
        let recent_windows = self.alarms.recent_windows().iter();
        Measured {
            episodes: self.episodes.values().cloned().collect(),
            alarms: self.alarms.raised().iter().map(|(&link, &alarm)| (link, alarm)).collect(),
            recent_windows: recent_windows
                .map(|(router, times)| (router.0, times.clone()))
                .collect(),
            ports: ports.map(|(&link, history)| (link, history.clone())).collect(),
            samples: tallies
                .flat_map(|(&link, flows)| {
                    flows.iter().map(move |(&(_, flow), tally)| (link, flow, tally.clone()))
                })
                .collect(),
            recorded: self.recorded.clone(),
            jobs: self.jobs.iter().map(|(name, job)| (name.clone(), history(job))).collect(),
        }
    }

    /// Creates a controller that continues from a state and its jobs. It has no lease; when it is given one, it repeats
    /// the requests that were not answered.
    ///
    /// # Errors
    /// Returns the reason if the state or the jobs cannot be used.
    pub fn restore(
        config: ControllerConfig,
        fabric: Fabric,
        state: State,
        mut jobs: BTreeMap<String, Job>,
    ) -> Result<Self, StateError> {
        if !(OLDEST_VERSION..=VERSION).contains(&state.version) {
            return Err(StateError::Version { got: state.version });
        }
        Job::check_all(&jobs)?;
        if state.windows().any(|window| window >= LAST_WINDOW) {
            return Err(StateError::Damaged("a window's number is too large"));
        }
        let is_same = fingerprint(&fabric) == state.fabric;
        let mut controller = Self::new(config, fabric);
        for it in state.moves {
            if it.id >= state.next_id {
                return Err(StateError::Damaged("a move's number is beyond the last"));
            }
            controller.moves.insert((it.router.clone(), it.prefix), it);
        }
        controller.next_id = state.next_id;
        controller.barred = state.barred;
        controller.refusals = state.refusals;
        controller.next_window = state.next_window;
        controller.stats = state.stats;
        if !is_same {
            jobs.values_mut().for_each(|job| job.routes.clear());
        }
        controller.set_jobs(jobs);
        if is_same {
            controller.restore_measured(state.measured)?;
        }
        Ok(controller)
    }

    fn restore_measured(&mut self, measured: Measured) -> Result<(), StateError> {
        let Measured { episodes, alarms, recent_windows, ports, samples, recorded, jobs } =
            measured;
        let links = self.fabric.links();
        let routers = self.fabric.router_ids().count();
        let known = |link: &LinkId| link.index() < links;
        let is_whole = episodes.iter().all(|it| known(&it.link))
            && alarms.iter().all(|(link, _)| known(link))
            && recent_windows.iter().all(|(router, _)| (*router as usize) < routers)
            && ports.iter().all(|(link, _)| known(link))
            && samples
                .iter()
                .all(|(link, _, it)| known(link) && it.input.as_ref().is_none_or(known));
        if !is_whole {
            return Err(StateError::Damaged("it names a link that the fabric does not have"));
        }
        self.episodes = episodes.into_iter().map(|it| (it.link, it)).collect();
        let recent_windows =
            recent_windows.into_iter().map(|(router, times)| (RouterId(router), times)).collect();
        self.alarms.restore(alarms.into_iter().collect(), recent_windows);
        ports.into_iter().for_each(|(link, history)| self.telemetry.restore(link, history));
        for (link, flow, tally) in samples {
            self.suspects.restore(link, flow, tally);
        }
        for (name, JobHistory { renewed, seen, traffic, bursts }) in jobs {
            let Some(job) = self.jobs.get_mut(&name) else { continue };
            let is_possible = bursts.is_none_or(|it| it.is_possible());
            if !is_possible || !traffic.is_within(&self.config.reservations) {
                return Err(StateError::Damaged("a job's traffic or its bursts are impossible"));
            }
            (job.renewed, job.seen, job.traffic, job.bursts) = (renewed, seen, traffic, bursts);
        }
        self.reserve_known();
        self.recorded = recorded.into_iter().filter(|it| self.jobs.contains_key(it)).collect();
        Ok(())
    }

    /// Repeats the requests that routers have not answered, after a restart or with a new lease.
    pub(super) fn resume(&mut self) {
        let open: Vec<_> =
            self.moves.iter().filter(|(_, it)| it.is_open()).map(|(key, _)| key.clone()).collect();
        for key in open {
            match &self.moves[&key].stage {
                Stage::Applying { .. } | Stage::Undoing { .. } => self.send_change(&key),
                Stage::Reading { .. } => self.actions.push_back(Action::Read { router: key.0 }),
                Stage::Verifying { .. } | Stage::Kept => {}
            }
        }
    }
}

fn history(job: &Job) -> JobHistory {
    let Job { renewed, seen, bursts, .. } = *job;
    JobHistory { renewed, seen, traffic: job.traffic.clone(), bursts }
}

/// Returns the FNV-1a hash of the names of all routers and ports, in order.
pub(super) fn fingerprint(fabric: &Fabric) -> u64 {
    let mut hash = Fnv1a::new();
    let mut add = |text: &str| hash = hash.with(text.bytes().chain([0]));
    for router in &fabric.installed().routers {
        add(&router.name);
        router.ports.iter().for_each(|port| add(&port.name));
    }
    hash.finish()
}
