//! What is asked of a running controller from outside: ports for a job, and its end.
//!
//! Whoever asks does so by a [`Door`], from any thread; the daemon answers in its turn.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};

use serde::{Deserialize, Serialize};
use weft_plan::output::PortRow;
use weft_plan::ports::Entropy;
use weft_route::{Controller, End, Fabric, Flow, JobError, LinkId, Pair, Start};
use weft_units::{BitRate, Instant, Seed};

use crate::SteerError;

/// A job and its table of ports.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// The job's name.
    pub job: String,
    /// Its queue pairs; those with a port keep it where that will do.
    pub rows: Vec<PortRow>,
    /// What each of them sends in a second; if not given, their part of the cable that they leave by.
    pub rate: Option<BitRate>,
    /// What else packets have in common.
    pub entropy: Entropy,
    /// Another of the plans that are as good.
    pub seed: Seed,
}

/// What was planned for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedJob {
    /// The job's name.
    pub job: String,
    /// How many flows it has.
    pub flows: usize,
    /// How many of them have the ports that they came with.
    pub kept: usize,
    /// The fullest link of its paths, with the controller's name for it.
    pub fullest: String,
    /// How full that will be, in thousandths.
    pub fullest_per_mille: u32,
    /// The table, with ports and paths as they are now.
    pub queue_pairs: Vec<PortRow>,
}

/// Why a controller does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It has no lease.
    #[error("this controller does not steer: {}", match other {
        Some(other) => format!("{other} does, ask that one"),
        None => "it has no lease yet, ask again".into(),
    })]
    Watches {
        /// Who has the lease, where somebody has.
        other: Option<String>,
    },
    /// The job cannot be.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A sender has fewer cables than the table says.
    #[error("queue pair {row}: {source_address} has {cables} cables, and no nic_port {nic_port}")]
    NicPort {
        /// Its place in the table, from zero.
        row: usize,
        /// The sender.
        source_address: std::net::Ipv4Addr,
        /// How many it has.
        cables: usize,
        /// What the table says.
        nic_port: usize,
    },
    /// The daemon has ended, or is busy.
    #[error("the controller {0}")]
    Silent(&'static str),
}

/// What may be asked.
#[derive(Debug)]
enum Ask {
    Announce(Announcement, SyncSender<Result<PlannedJob, AskError>>),
    Withdraw(String, SyncSender<Result<usize, AskError>>),
}

/// How long a request may wait for the daemon's turn and its answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// Ports that are tried for one flow: of a small job many, of a large one few, for nothing else has its turn meanwhile.
const TRIES: std::ops::RangeInclusive<usize> = 8..=64;
/// Ports that are tried for all flows of a job, unless each would have too few.
const TRIES_OF_A_JOB: usize = 1 << 20;

/// What a flow sends at least.
const SLOWEST: BitRate = BitRate::bps(1).expect("it is not zero");

/// The way to ask a running daemon.
#[derive(Clone, Debug)]
pub struct Door {
    asks: Sender<Ask>,
}

impl Door {
    /// Has ports planned for a job, on what is installed and carried now.
    ///
    /// # Errors
    /// Why there are none.
    pub fn announce(&self, announcement: Announcement) -> Result<PlannedJob, AskError> {
        self.ask(|answer| Ask::Announce(announcement, answer))
    }

    /// Tells that a job has ended; gives how many flows it had.
    ///
    /// # Errors
    /// `Watches`; `Job`, where there is none of that name.
    pub fn withdraw(&self, job: String) -> Result<usize, AskError> {
        self.ask(|answer| Ask::Withdraw(job, answer))
    }

    fn ask<T>(
        &self,
        ask: impl FnOnce(SyncSender<Result<T, AskError>>) -> Ask,
    ) -> Result<T, AskError> {
        let (sender, answer) = sync_channel(1);
        self.asks.send(ask(sender)).map_err(|_| AskError::Silent("has ended"))?;
        answer.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Disconnected => AskError::Silent("ended before it answered"),
            RecvTimeoutError::Timeout => AskError::Silent("is busy and has not answered"),
        })?
    }
}

/// The daemon's side of its doors.
#[derive(Debug)]
pub(super) struct Desk {
    /// For doors to come.
    asks: Sender<Ask>,
    asked: Receiver<Ask>,
}

impl Desk {
    pub(super) fn open() -> Self {
        let (asks, asked) = channel();
        Self { asks, asked }
    }

    pub(super) fn door(&self) -> Door {
        Door { asks: self.asks.clone() }
    }

    /// Answers one who waits, if somebody does. `steers` says who does, where this controller does not; `keep` writes jobs
    /// down, before anybody is told that they are kept.
    ///
    /// # Errors
    /// What `keep` fails with.
    pub(super) fn answer(
        &self,
        controller: &mut Controller,
        steers: Result<(), Option<String>>,
        now: Instant,
        keep: impl FnOnce(&Controller) -> Result<(), SteerError>,
    ) -> Result<(), SteerError> {
        let steers = steers.map_err(|other| AskError::Watches { other });
        match self.asked.try_recv() {
            Err(_) => Ok(()),
            Ok(Ask::Announce(announcement, to)) => {
                let planned = steers.and_then(|()| plan(controller, announcement, now));
                reply(planned, &to, controller, keep)
            }
            Ok(Ask::Withdraw(job, to)) => {
                let withdrawn = steers.and_then(|()| Ok(controller.withdraw(&job, now)?));
                reply(withdrawn, &to, controller, keep)
            }
        }
    }
}

fn reply<T>(
    answer: Result<T, AskError>,
    to: &SyncSender<Result<T, AskError>>,
    controller: &Controller,
    keep: impl FnOnce(&Controller) -> Result<(), SteerError>,
) -> Result<(), SteerError> {
    if answer.is_ok() {
        keep(controller)?;
    }
    // Whoever has hung up does without; a job of theirs counts until it is not seen for long.
    let _ = to.send(answer);
    Ok(())
}

fn plan(
    controller: &mut Controller,
    announcement: Announcement,
    now: Instant,
) -> Result<PlannedJob, AskError> {
    let Announcement { job, rows, rate, entropy, seed } = announcement;
    let pairs = pairs(controller.fabric(), &rows, rate)?;
    let tries = (TRIES_OF_A_JOB / pairs.len().max(1)).clamp(*TRIES.start(), *TRIES.end());
    let announced = controller.announce(&job, &pairs, (entropy, tries), seed, now)?;
    let fabric = controller.fabric();
    let (link, fullest_per_mille) = announced.fullest;
    let queue_pairs = rows.into_iter().zip(&pairs).zip(&announced.ports);
    let queue_pairs = queue_pairs.map(|((mut row, pair), &port)| {
        row.set_port(port);
        row.path = switches(fabric, pair, port, entropy);
        row
    });
    Ok(PlannedJob {
        flows: pairs.len(),
        kept: announced.kept,
        fullest: fabric.name(link).to_string(),
        fullest_per_mille,
        queue_pairs: queue_pairs.collect(),
        job,
    })
}

/// The table's queue pairs as flows of the fabric.
fn pairs(fabric: &Fabric, rows: &[PortRow], rate: Option<BitRate>) -> Result<Vec<Pair>, AskError> {
    let links = rows.iter().enumerate().map(|(row, it)| first_link(fabric, row, it));
    let links: Vec<Option<LinkId>> = links.collect::<Result<_, _>>()?;
    let mut senders: BTreeMap<LinkId, u64> = BTreeMap::new();
    links.iter().flatten().for_each(|&link| *senders.entry(link).or_default() += 1);
    let part = |link: LinkId| BitRate::bps(fabric.rate(link).as_bps() / senders[&link]);
    let pair = |(it, first): (&PortRow, Option<LinkId>)| Pair {
        src: it.source.into(),
        first,
        dst: it.destination.into(),
        // Where the sender is unknown, that is what will be said.
        rate: rate.or_else(|| part(first?)).unwrap_or(SLOWEST),
        port: (it.source_port != 0).then_some(it.source_port),
    };
    Ok(rows.iter().zip(links).map(pair).collect())
}

/// The cable that a queue pair leaves by; none of a sender that the fabric does not have.
fn first_link(fabric: &Fabric, row: usize, it: &PortRow) -> Result<Option<LinkId>, AskError> {
    let Some(host) = fabric.host(it.source) else { return Ok(None) };
    let links = fabric.links_of_host(host);
    let wrong = || AskError::NicPort {
        row,
        source_address: it.source,
        cables: links.len(),
        nic_port: it.nic_port,
    };
    links.get(it.nic_port).copied().map(Some).ok_or_else(wrong)
}

/// The routers that a flow passes.
fn switches(fabric: &Fabric, pair: &Pair, port: u16, entropy: Entropy) -> Vec<String> {
    let to = (pair.dst, entropy.destination_port);
    let flow = Flow::new((pair.src, port), to, entropy.protocol);
    let path = pair.first.zip(flow).map(|(first, it)| fabric.path_from(Start::Link(first), &it));
    let ends = path.iter().flat_map(|path| path.links()).map(|&link| fabric.to(link));
    let names = ends.filter_map(|end| match end {
        End::Router(router) => Some(fabric.router(router).name.clone()),
        End::Host(_) | End::Nothing => None,
    });
    names.collect()
}
