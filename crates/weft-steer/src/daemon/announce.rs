//! Requests to a running controller from outside: ports for a job, the end of a job, and hosts' reports of probes.
//!
//! Any thread sends requests by a [`Handle`]; the daemon answers them in its loop.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};

use serde::{Deserialize, Serialize};
use weft_plan::output::PortRow;
use weft_plan::ports::Entropy;
use weft_route::{
    Controller, End, Fabric, Flow, JobError, LinkId, Pair, PortSearch, ProbeError, ProbeReport,
    RingOrder, Start,
};
use weft_units::{BitRate, Duration, Instant, Seed};

/// A job and its table of ports.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// The job's name.
    pub job: String,
    /// Its queue pairs; those with a port keep it if its path is not too full.
    pub rows: Vec<PortRow>,
    /// The rate of each of them; by default an equal share of the cable on which they are sent.
    pub rate: Option<BitRate>,
    /// The header fields that its packets have in common.
    pub entropy: Entropy,
    /// The seed that selects among equally good plans.
    pub seed: Seed,
    /// The time without a renewal ([`Handle::ports`]) after which the job counts as ended; none for a job that ends
    /// with its withdrawal.
    pub lease: Option<Duration>,
}

/// A request for the ports of one sender of a job, which also renews the job's lease.
#[derive(Clone, Debug)]
pub struct PortsRequest {
    /// The job's name.
    pub job: String,
    /// The sender.
    pub source: IpAddr,
    /// The number of the plan that the sender has; 0 for none.
    pub plan: u64,
}

/// The present ports of one sender of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderPorts {
    /// The number of the job's present plan.
    pub plan: u64,
    /// The ports by destination, in order; none if the sender has this plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<SenderPort>>,
}

/// One source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderPort {
    /// The receiver.
    pub destination: IpAddr,
    /// The source port of packets to it.
    pub port: u16,
}

/// The ports planned for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedJob {
    /// The job's name.
    pub job: String,
    /// Number of its flows.
    pub flows: usize,
    /// Number of flows that keep their port.
    pub kept: usize,
    /// The name of the fullest link of its paths.
    pub fullest: String,
    /// The expected utilisation of that link, in thousandths.
    pub fullest_per_mille: u32,
    /// The table, with the planned ports and paths.
    pub queue_pairs: Vec<PortRow>,
}

/// The reason why a controller refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// This controller does not hold the lease.
    #[error("this controller does not steer: {}", match (other, url) {
        (Some(other), Some(url)) => format!("{other} does, ask that one at {url}"),
        (Some(other), None) => format!("{other} does, ask that one"),
        (None, _) => "it has no lease yet, ask again".into(),
    })]
    Watches {
        /// The holder of the lease, if there is one.
        other: Option<String>,
        /// The URL of that controller's page, if it is known.
        url: Option<String>,
    },
    /// The job cannot be planned or does not exist.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The table names a cable that the sender does not have.
    #[error("queue pair {row}: {source_address} has {cables} cables, and no nic_port {nic_port}")]
    NicPort {
        /// Its index in the table, from zero.
        row: usize,
        /// The sender.
        source_address: std::net::Ipv4Addr,
        /// Number of the sender's cables.
        cables: usize,
        /// The index in the table.
        nic_port: usize,
    },
    /// The report of probes cannot be used.
    #[error(transparent)]
    Probes(#[from] ProbeError),
    /// A host of the fabric reports the probes of another one.
    #[error("{peer} is a host of the fabric and does not speak for {source_address}")]
    Speaker {
        /// The address of the client.
        peer: IpAddr,
        /// The source of the report.
        source_address: IpAddr,
    },
    /// The daemon has ended, or is busy.
    #[error("the controller {0}")]
    Silent(&'static str),
}

/// A request with the channel for its answer.
#[derive(Debug)]
enum Request {
    Announce(Announcement, SyncSender<Result<PlannedJob, RequestError>>),
    Withdraw(String, SyncSender<Result<usize, RequestError>>),
    Ports(PortsRequest, SyncSender<Result<SenderPorts, RequestError>>),
    Order(Vec<IpAddr>, SyncSender<Result<RingOrder, RequestError>>),
    Probes(ProbeReport, IpAddr, SyncSender<Result<usize, RequestError>>),
}

/// Maximum time that a request waits for its answer.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// Minimum rate of a flow.
const MIN_RATE: BitRate = BitRate::bps(1).expect("it is not zero");

/// A handle for requests to a running daemon.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: Sender<Request>,
}

impl Handle {
    /// Requests ports for a job, given the installed tables and the present load.
    ///
    /// # Errors
    /// Returns the reason if no ports can be planned.
    pub fn announce(&self, announcement: Announcement) -> Result<PlannedJob, RequestError> {
        self.request(|answer| Request::Announce(announcement, answer))
    }

    /// Reports that a job has ended; returns the number of its flows.
    ///
    /// # Errors
    /// Returns `Watches` if this controller does not steer, `Job` if there is no job of that name, or `Silent` if the
    /// daemon does not answer.
    pub fn withdraw(&self, job: String) -> Result<usize, RequestError> {
        self.request(|answer| Request::Withdraw(job, answer))
    }

    /// Returns the present ports of a sender, and renews its job's lease.
    ///
    /// # Errors
    /// Returns the errors of [`withdraw`](Self::withdraw).
    pub fn ports(&self, request: PortsRequest) -> Result<SenderPorts, RequestError> {
        self.request(|answer| Request::Ports(request, answer))
    }

    /// Returns the order of hosts in a ring that crosses few links of the fabric's upper tiers, and their blocks.
    ///
    /// # Errors
    /// Returns `Watches` if this controller does not steer, or `Silent` if the daemon does not answer.
    pub fn order(&self, hosts: Vec<IpAddr>) -> Result<RingOrder, RequestError> {
        self.request(|answer| Request::Order(hosts, answer))
    }

    /// Passes on a report of probes that a client at `peer` has sent; returns the number of its paths. A controller that
    /// does not steer counts it too, and shows the alarms.
    ///
    /// # Errors
    /// Returns `Speaker` if the client is another host of the fabric than the source of the report, `Probes` if the
    /// report is impossible, or `Silent` if the daemon does not answer.
    pub fn probes(&self, report: ProbeReport, peer: IpAddr) -> Result<usize, RequestError> {
        self.request(|answer| Request::Probes(report, peer, answer))
    }

    fn request<T>(
        &self,
        request: impl FnOnce(SyncSender<Result<T, RequestError>>) -> Request,
    ) -> Result<T, RequestError> {
        let (sender, answer) = sync_channel(1);
        self.requests.send(request(sender)).map_err(|_| RequestError::Silent("has ended"))?;
        answer.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Disconnected => RequestError::Silent("ended before it answered"),
            RecvTimeoutError::Timeout => RequestError::Silent("is busy and has not answered"),
        })?
    }
}

/// The daemon's end of the request channel.
#[derive(Debug)]
pub(super) struct RequestQueue {
    /// The sender that new handles clone.
    requests: Sender<Request>,
    pending: Receiver<Request>,
}

impl RequestQueue {
    pub(super) fn open() -> Self {
        let (requests, pending) = channel();
        Self { requests, pending }
    }

    pub(super) fn handle(&self) -> Handle {
        Handle { requests: self.requests.clone() }
    }

    /// Answers pending requests, of which at most one plans a job. `steers` is the refusal if this controller does not
    /// steer. Returns the answers that requesters get when the jobs are kept.
    pub(super) fn answer(
        &self,
        controller: &mut Controller,
        steers: &Result<(), RequestError>,
        now: Instant,
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        for request in self.pending.try_iter() {
            let steers = steers.clone();
            // A requester that has gone gets no answer; its job counts until its lease expires, or until it is not
            // sampled for long.
            match request {
                Request::Announce(announcement, to) => {
                    let planned = steers.and_then(|()| plan(controller, announcement, now));
                    answers.push(Answer::new(planned, to));
                    break;
                }
                Request::Withdraw(job, to) => {
                    let withdrawn = steers.and_then(|()| Ok(controller.withdraw(&job, now)?));
                    answers.push(Answer::new(withdrawn, to));
                }
                Request::Ports(request, to) => {
                    match steers.and_then(|()| ports_of(controller, &request, now)) {
                        // The sender has them, so they are kept.
                        Ok(known @ SenderPorts { ports: None, .. }) => drop(to.send(Ok(known))),
                        ports => answers.push(Answer::of_earlier(ports, to)),
                    }
                }
                Request::Order(hosts, to) => {
                    drop(to.send(steers.map(|()| controller.fabric().ring_order(&hosts))));
                }
                Request::Probes(report, peer, to) => {
                    // The leader acts on them, and a controller that does not know it shows the alarms.
                    let is_led = matches!(&steers, Err(RequestError::Watches { url: Some(_), .. }));
                    let may_count = if is_led { steers } else { Ok(()) };
                    let counted =
                        may_count.and_then(|()| count_probes(controller, &report, peer, now));
                    drop(to.send(counted));
                }
            }
        }
        answers
    }
}

/// The answer to a request, which waits until the decision is kept.
pub(super) struct Answer {
    send: Box<dyn FnOnce(Result<(), RequestError>) + Send>,
    is_refusal: bool,
    is_decision: bool,
}

impl Answer {
    fn new<T: Send + 'static>(
        answer: Result<T, RequestError>,
        to: SyncSender<Result<T, RequestError>>,
    ) -> Self {
        let (is_refusal, is_decision) = (answer.is_err(), answer.is_ok());
        // A requester that has gone hears nothing.
        let send = move |kept: Result<(), RequestError>| drop(to.send(kept.and(answer)));
        Self { send: Box::new(send), is_refusal, is_decision }
    }

    /// Returns the answer to a request for what was decided before, which may not be kept yet.
    fn of_earlier<T: Send + 'static>(
        answer: Result<T, RequestError>,
        to: SyncSender<Result<T, RequestError>>,
    ) -> Self {
        Self { is_decision: false, ..Self::new(answer, to) }
    }

    /// Returns `true` if nothing has to be kept before it is sent.
    pub(super) const fn is_refusal(&self) -> bool {
        self.is_refusal
    }

    /// Returns `true` if it is the answer to a request by which something was decided.
    pub(super) const fn is_decision(&self) -> bool {
        self.is_decision
    }

    pub(super) fn send(self) {
        (self.send)(Ok(()));
    }

    /// Sends a refusal in its place, because the decision is not kept.
    pub(super) fn refuse(self, error: RequestError) {
        (self.send)(Err(error));
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Answer").field("is_refusal", &self.is_refusal).finish_non_exhaustive()
    }
}

/// Returns the ports of a sender, and renews its job.
fn ports_of(
    controller: &mut Controller,
    PortsRequest { job, source, plan }: &PortsRequest,
    now: Instant,
) -> Result<SenderPorts, RequestError> {
    let job = controller.renew_job(job, now)?;
    let ports = (job.plan() != *plan).then(|| {
        // Flows are in order of their sources.
        let first = job.flows.partition_point(|it| it.flow.src() < *source);
        let of_source = job.flows[first..].iter().take_while(|it| it.flow.src() == *source);
        let ports = of_source.map(|it| {
            let (destination, (port, _)) = (it.flow.dst(), it.flow.ports());
            SenderPort { destination, port }
        });
        ports.collect()
    });
    Ok(SenderPorts { plan: job.plan(), ports })
}

/// Counts a report of probes. A client with an address of the fabric is the host of that address; any other client, in
/// the management network, may speak for every host.
fn count_probes(
    controller: &mut Controller,
    report: &ProbeReport,
    peer: IpAddr,
    now: Instant,
) -> Result<usize, RequestError> {
    let (fabric, peer, source_address) = (controller.fabric(), peer.to_canonical(), report.source);
    let speaker = fabric.host(peer);
    if speaker.is_some() && speaker != fabric.host(source_address) {
        return Err(RequestError::Speaker { peer, source_address });
    }
    controller.handle_probes(report, now)?;
    Ok(report.paths.len())
}

fn plan(
    controller: &mut Controller,
    announcement: Announcement,
    now: Instant,
) -> Result<PlannedJob, RequestError> {
    let Announcement { job, rows, rate, entropy, seed, lease } = announcement;
    let pairs = pairs(controller.fabric(), &rows, rate)?;
    let search = PortSearch::of(entropy, pairs.len());
    let announced = controller.announce(&job, &pairs, search, seed, now)?;
    controller.set_job_lease(&job, lease, now)?;
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

/// Converts the table's queue pairs to flows of the fabric.
fn pairs(
    fabric: &Fabric,
    rows: &[PortRow],
    rate: Option<BitRate>,
) -> Result<Vec<Pair>, RequestError> {
    let links = rows.iter().enumerate().map(|(row, it)| first_link(fabric, row, it));
    let links: Vec<Option<LinkId>> = links.collect::<Result<_, _>>()?;
    let mut senders: BTreeMap<LinkId, u64> = BTreeMap::new();
    links.iter().flatten().for_each(|&link| *senders.entry(link).or_default() += 1);
    let share = |link: LinkId| BitRate::bps(fabric.rate(link).as_bps() / senders[&link]);
    let pair = |(it, first): (&PortRow, Option<LinkId>)| Pair {
        src: it.source.into(),
        first,
        dst: it.destination.into(),
        // An unknown sender is reported later, so its rate does not matter.
        rate: rate.or_else(|| share(first?)).unwrap_or(MIN_RATE),
        port: (it.source_port != 0).then_some(it.source_port),
    };
    Ok(rows.iter().zip(links).map(pair).collect())
}

/// Returns the cable on which a queue pair is sent; `None` if the fabric does not have the sender.
fn first_link(fabric: &Fabric, row: usize, it: &PortRow) -> Result<Option<LinkId>, RequestError> {
    let Some(host) = fabric.host(it.source) else { return Ok(None) };
    let links = fabric.links_of_host(host);
    let wrong = || RequestError::NicPort {
        row,
        source_address: it.source,
        cables: links.len(),
        nic_port: it.nic_port,
    };
    links.get(it.nic_port).copied().map(Some).ok_or_else(wrong)
}

/// Returns the routers that a flow crosses.
fn switches(fabric: &Fabric, pair: &Pair, port: u16, entropy: Entropy) -> Vec<String> {
    let to = SocketAddr::new(pair.dst, entropy.destination_port);
    let flow = Flow::new(SocketAddr::new(pair.src, port), to, entropy.protocol);
    let path = pair.first.zip(flow).map(|(first, it)| fabric.path_from(Start::Link(first), &it));
    let ends = path.iter().flat_map(|path| path.links()).map(|&link| fabric.to(link));
    let names = ends.filter_map(|end| match end {
        End::Router(router) => Some(fabric.router(router).name.clone()),
        End::Host(_) | End::Nothing => None,
    });
    names.collect()
}
