//! A random case: devices, queue pairs, keys and faults drawn from a seed.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_transport::TransportConfig;
use weft_units::{Duration, Rng, Seed};

use super::Tally;
use super::datagrams::DatagramEnd;
use super::image::Image;
use super::network::{BASE, End, Fate, LENGTH, Network, Rule, config, every_right, request};
use super::pool::{Pool, Queue, SLOTS, memory_of};
use super::side::{Condition, Keys, Side, len32};
use super::windows::Window;
use crate::{
    Access, CompletionQueue, Context, Owner, ProtectionDomain, QueuePairNumber, QueuePairRequest,
    Reach, RegionRequest, Service, SharedReceiveQueue, WindowKind,
};

/// Number of hosts of every case.
const HOSTS: usize = 3;

/// The objects that a host's programs share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    context: Context,
    pub(super) domain: ProtectionDomain,
    foreign: ProtectionDomain,
    pub(super) cq: CompletionQueue,
    /// A shared receive queue, and its pool.
    shared: (SharedReceiveQueue, usize),
}

impl Program {
    /// Creates an end for a queue pair on the host with memory of its own.
    pub(super) const fn end(
        &self,
        host: usize,
        qp: QueuePairNumber,
        owner: Owner,
        key: u32,
    ) -> End {
        let Self { context, domain, cq, .. } = *self;
        End { host, context, domain, cq, qp, owner, key }
    }

    pub(super) const fn srq(&self) -> SharedReceiveQueue {
        self.shared.0
    }
}

/// A case: the network, and the model of its state.
pub(super) struct Case {
    pub(super) network: Network,
    pub(super) hosts: Vec<Program>,
    /// The ends of connections. The peer of end `at` is end `at ^ 1`.
    pub(super) sides: Vec<Side>,
    pub(super) pools: Vec<Pool>,
    pub(super) datagram_ends: Vec<DatagramEnd>,
    /// Indices of ends by host and queue pair.
    pub(super) by_qp: BTreeMap<(usize, QueuePairNumber), usize>,
    pub(super) rng: Rng,
    pub(super) tally: Tally,
    /// `true` if hosts may be cut off for longer than all timeouts.
    pub(super) partitions: bool,
    /// The idle time after which a connection sends a keepalive.
    pub(super) keepalive: Duration,
}

fn transport(rng: &mut Rng, partitions: bool) -> TransportConfig {
    TransportConfig {
        paths: [1, 2, 8, 128][rng.index(4)],
        mtu: [64, 256, 1024, 4096][rng.index(4)],
        send_window: [16, 256, 4096][rng.index(3)],
        peer_timeout: if partitions {
            Duration::from_millis(200)
        } else {
            Duration::from_secs(3600)
        },
        idle_timeout: Duration::from_secs(3600),
        // A requester that waits for a response and has no packet in flight detects a dead peer only by keepalives.
        keepalive_interval: Duration::from_millis([50, 500][rng.index(2)]),
        ..config()
    }
}

impl Case {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Seed(seed).child("rdma case", 0).rng();
        let partitions = rng.chance(1, 4);
        let transport = transport(&mut rng, partitions);
        let mut network = Network::with(HOSTS, &transport);
        // Links are lossless, so no host is cut off on them.
        if !partitions && Seed(seed).child("rdma links", 0).rng().chance(1, 4) {
            network.link();
            if Seed(seed).child("mapped leases", 0).rng().chance(1, 2) {
                network.reach = Reach::Mapped;
            }
        }
        let mut case = Self {
            network,
            hosts: Vec::new(),
            sides: Vec::new(),
            pools: Vec::new(),
            datagram_ends: Vec::new(),
            by_qp: BTreeMap::new(),
            rng,
            tally: Tally::default(),
            partitions,
            keepalive: transport.keepalive_interval,
        };
        (0..HOSTS).for_each(|host| case.add_host(host));
        let (rc, uc) = (Service::ReliableConnected, Service::UnreliableConnected);
        for (a, b, service) in
            [(0, 1, rc), (1, 2, rc), (2, 0, rc), (0, 1, rc), (1, 2, rc), (0, 1, uc), (2, 1, uc)]
        {
            let first = case.sides.len();
            for host in [a, b] {
                let side = case.side(host, service);
                case.sides.push(side);
            }
            // For an end with a limit of RNR retries the model reserves receive requests; in a shared queue, messages
            // of other ends could consume them.
            for at in [first, first + 1] {
                if case.pools[case.sides[at ^ 1].pool].is_shared() {
                    case.sides[at].rnr_retry = 7;
                }
            }
            case.join(first);
        }
        (0..HOSTS).for_each(|host| case.add_datagram_end(host));
        case
    }

    /// Allocates memory on a host, filled with random bytes.
    pub(super) fn memory(&mut self, host: usize, length: u64) -> Owner {
        let memory = &mut self.network.hosts[host].memory.bytes;
        let owner = Owner::Host(u32::try_from(memory.len()).expect("a few"));
        let mut bytes = alloc::vec![0; usize::try_from(length).expect("a small memory")];
        bytes.fill_with(|| self.rng.next_u64().to_le_bytes()[7]);
        memory.insert(owner, bytes);
        owner
    }

    fn register(&mut self, host: usize, domain: ProtectionDomain, region: &RegionRequest) -> u32 {
        self.network.hosts[host].device.register(domain, region).expect("there is room")
    }

    fn add_host(&mut self, host: usize) {
        let device = &mut self.network.hosts[host].device;
        let made = "a device has room for a few";
        let context = device.open().expect(made);
        let domain = device.allocate_domain(context).expect(made);
        let foreign = device.allocate_domain(context).expect(made);
        let cq = device.create_cq(context, 4096).expect(made);
        let srq = device.create_srq(domain, len32(SLOTS), 4).expect(made);
        let pool = self.add_pool(host, domain, Queue::Shared(srq));
        self.hosts.push(Program { context, domain, foreign, cq, shared: (srq, pool) });
    }

    /// Adds a pool of receive requests; returns its index.
    pub(super) fn add_pool(
        &mut self,
        host: usize,
        domain: ProtectionDomain,
        queue: Queue,
    ) -> usize {
        let length = (SLOTS * super::pool::SLOT) as u64;
        let owner = self.memory(host, length);
        let access = Access::LOCAL_WRITE;
        let region = RegionRequest { owner, address: 0, length, iova: BASE, access };
        let key = self.register(host, domain, &region);
        let memory = memory_of(&self.network, host, owner);
        self.pools.push(Pool::new(host, queue, owner, key, memory));
        self.pools.len() - 1
    }

    pub(super) fn create_qp(
        &mut self,
        host: usize,
        service: Service,
        srq: Option<SharedReceiveQueue>,
    ) -> QueuePairNumber {
        let Program { domain, cq, .. } = self.hosts[host];
        let request = QueuePairRequest { srq, ..request(domain, cq, service) };
        self.network.hosts[host].device.create_qp(&request).expect("there is room")
    }

    fn side(&mut self, host: usize, service: Service) -> Side {
        let program = self.hosts[host];
        let Program { domain, foreign, shared, .. } = program;
        let reliable = service == Service::ReliableConnected;
        let shares = reliable && self.rng.chance(1, 3);
        let qp = self.create_qp(host, service, shares.then_some(shared.0));
        let pool = if shares { shared.1 } else { self.add_pool(host, domain, Queue::Of(qp)) };
        let owner = self.memory(host, LENGTH);
        let all = every_right();
        let region = RegionRequest { owner, address: 0, length: LENGTH, iova: BASE, access: all };
        let mut register = |domain, access| {
            self.network.hosts[host]
                .device
                .register(domain, &RegionRequest { access, ..region })
                .expect("there is room")
        };
        let key = register(domain, all);
        let keys = Keys {
            zero_based: register(domain, all | Access::ZERO_BASED),
            relaxed: register(domain, all | Access::RELAXED_ORDERING),
            foreign: register(foreign, all),
            gone: register(domain, all),
            readable: register(domain, Access::REMOTE_READ),
            writable: register(domain, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
        };
        self.network.hosts[host].device.deregister(keys.gone).expect("it was registered");
        let end = program.end(host, qp, owner, key);
        Side {
            end,
            reliable,
            keys,
            image: Image::of(memory_of(&self.network, host, owner)),
            posted: Default::default(),
            next: 0,
            pool,
            in_flight: Default::default(),
            reads: Vec::new(),
            windows: self.windows(host, domain),
            rnr_retry: if self.rng.chance(1, 2) { 7 } else { [0, 1, 2, 3][self.rng.index(4)] },
            condition: Condition::Healthy,
            expected_status: None,
            receive_fails: None,
            failed: false,
            peer_may_fail: false,
            flushed: Vec::new(),
        }
    }

    pub(super) fn windows(&mut self, host: usize, domain: ProtectionDomain) -> Vec<Window> {
        let device = &mut self.network.hosts[host].device;
        let kinds = [WindowKind::Type1, WindowKind::Type2];
        let window =
            |kind| Window::new(kind, device.allocate_window(domain, kind).expect("there is room"));
        kinds.map(window).into()
    }

    /// Connects an end and its peer, which are new or reset.
    pub(super) fn join(&mut self, at: usize) {
        let Self { sides, network, rng, by_qp, .. } = self;
        let (a, b) = (&sides[at], &sides[at ^ 1]);
        let psn = u32::try_from(rng.below(1 << 24)).expect("24 bits");
        let psn = if rng.chance(1, 2) { 0xff_fff0 } else { psn };
        let rnr_timer = [1, 8, 12][rng.index(3)];
        for (number, me, peer) in [(at, a, b), (at ^ 1, b, a)] {
            by_qp.insert((me.end.host, me.end.qp), number);
            network.ready_to_receive(&me.end, &peer.end, |attributes| {
                attributes.rq_psn = Some(psn);
                if let Some(timer) = &mut attributes.min_rnr_timer {
                    *timer = rnr_timer;
                }
            });
            network.ready_to_send(&me.end, |attributes| {
                attributes.sq_psn = Some(psn);
                if let Some(retries) = &mut attributes.rnr_retry {
                    *retries = me.rnr_retry;
                }
                if let Some(retries) = &mut attributes.retry_count {
                    *retries = 7;
                }
            });
        }
    }

    /// Draws the faults of the network; returns the rule that causes them.
    pub(super) fn faults(&mut self) -> Rule {
        let mut rng = Seed(self.rng.next_u64()).rng();
        let (drop, duplicate, delay) = (rng.below(200), rng.below(100), rng.below(600));
        let dead = rng.chance(1, 2).then(|| (rng.below(8), rng.below(8)));
        let drops_acks = rng.chance(1, 2);
        if dead.is_some() {
            super::count(&mut self.tally.faults, "dead paths");
        }
        let max_delay = rng.below(50_000) + 1;
        Box::new(move |on_link| {
            let path = u64::from(on_link.path);
            let is_dead = dead.is_some_and(|(one, other)| path == one || path == other);
            if is_dead && (drops_acks || on_link.rdma.is_some()) {
                return Fate::Drop;
            }
            match rng.below(1000) {
                draw if draw < drop => Fate::Drop,
                draw if draw < drop + duplicate => Fate::Duplicate,
                draw if draw < drop + duplicate + delay => {
                    Fate::Delay(Duration::from_nanos(rng.below(max_delay)))
                }
                _ => Fate::Pass,
            }
        })
    }
}
