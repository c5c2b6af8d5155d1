//! The bare engine: two devices of this process, and a link between them that is a function call. Its time is that of
//! the engine alone; the difference to a program's time is that of the library and the kernel.

use std::hint::black_box;
use std::net::SocketAddr;

use rustix::time::{ClockId, clock_gettime};
use weft_rnic::*;
use weft_transport::{EndpointConfig, LinkId, Secret, TransportConfig};
use weft_units::{Duration, Instant, Seed};
use weft_wire::{Packet, RdmaHeader};

const LINK: LinkId = LinkId(0);
const DEPTH: u32 = 128;

/// A host's memory, and the payload of the current packet, as ranges of the other host's memory.
struct HostMemory {
    bytes: Vec<u8>,
    payload: Vec<(*const u8, usize)>,
}

impl HostMemory {
    fn at(&mut self, place: Place) -> &mut [u8] {
        let from = usize::try_from(place.address).expect("an index");
        &mut self.bytes[from..from + place.len as usize]
    }
}

impl Memory for HostMemory {
    fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost> {
        let (mut skip, payload) = (usize::from(from), std::mem::take(&mut self.payload));
        let mut to = self.at(place);
        for &(address, len) in &payload {
            let skipped = skip.min(len);
            let taken = (len - skipped).min(to.len());
            let (part, rest) = to.split_at_mut(taken);
            // SAFETY: pieces of the other host's memory, which nothing changes meanwhile.
            part.copy_from_slice(unsafe {
                std::slice::from_raw_parts(address.add(skipped), taken)
            });
            (skip, to) = (skip - skipped, rest);
        }
        self.payload = payload;
        Ok(())
    }

    fn write(&mut self, place: Place, bytes: &[u8]) {
        self.at(place).copy_from_slice(bytes);
    }

    fn hold(&mut self, _: Held) -> Result<(), PayloadLost> {
        unreachable!("a link delivers in order")
    }

    fn place_held(&mut self, _: Held, _: Place, _: u16) {
        unreachable!("nothing is held")
    }

    fn release(&mut self, _: Held) {
        unreachable!("nothing is held")
    }

    fn atomic(&mut self, _: Place, _: AtomicOperation) -> u64 {
        unreachable!("the benchmark sends no atomics")
    }
}

struct Host {
    device: Device,
    memory: HostMemory,
    qp: QueuePairNumber,
    cq: CompletionQueue,
    key: u32,
}

/// Returns the processor time of this thread, seconds: it never sleeps, and other processes share the machine.
fn spent() -> f64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Both hosts.
pub(crate) struct Engine {
    hosts: [Host; 2],
    now: Instant,
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], if host == 0 { 4791 } else { 4792 }))
}

fn host(number: usize, largest: u32) -> Host {
    let config = EndpointConfig {
        transport: TransportConfig::stellar(),
        receive_port: address(number).port(),
        thread_id: 0,
        accept: true,
        max_connections: 16,
    };
    let seed = Seed(number as u64);
    let secret = Secret::from_seed(seed);
    let mut device = Device::new(Limits::default(), config, seed, secret).expect("it is valid");
    let context = device.open().expect("the first");
    let domain = device.allocate_domain(context).expect("the first");
    let cq = device.create_cq(context, 4 * DEPTH).expect("the first");
    let region = RegionRequest {
        owner: Owner::Host(0),
        address: 0,
        length: largest.into(),
        iova: 0,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    };
    let key = device.register(domain, &region).expect("the first");
    let request = QueuePairRequest {
        domain,
        service: Service::ReliableConnected,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        max_send: DEPTH,
        max_receive: DEPTH,
        max_send_sge: 1,
        max_receive_sge: 1,
        max_inline: 64,
        signal_all: true,
    };
    let qp = device.create_qp(&request).expect("the first");
    let memory = HostMemory { bytes: vec![0; largest as usize], payload: Vec::new() };
    Host { device, memory, qp, cq, key }
}

impl Engine {
    /// Makes two connected hosts for messages up to this length.
    pub(crate) fn new(largest: u32) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut hosts = [host(0, largest), host(1, largest)];
        let numbers = [hosts[0].qp, hosts[1].qp];
        for (this, host) in hosts.iter_mut().enumerate() {
            let peer = 1 - this;
            host.device.link_up(now, LINK);
            host.device.route_over(address(peer), LINK);
            let to_init = Attributes {
                state: Some(State::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(Access::REMOTE_WRITE),
                ..Attributes::default()
            };
            let to_receive = Attributes {
                state: Some(State::ReadyToReceive),
                destination: Some(address(peer)),
                dest_qp: Some(numbers[peer].0),
                path_mtu: Some(4096),
                rq_psn: Some(0),
                max_dest_rd_atomic: Some(1),
                min_rnr_timer: Some(12),
                ..Attributes::default()
            };
            let to_send = Attributes {
                state: Some(State::ReadyToSend),
                timeout: Some(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                sq_psn: Some(0),
                max_rd_atomic: Some(1),
                ..Attributes::default()
            };
            for attributes in [to_init, to_receive, to_send] {
                host.device.modify_qp(now, host.qp, &attributes).expect("in this order");
            }
        }
        let mut engine = Self { hosts, now };
        engine.ping(2);
        engine
    }

    /// Returns the time of one SEND of this length in one direction with its acknowledgement back, nanoseconds: half of
    /// a round trip, the usual definition of latency.
    pub(crate) fn latency(&mut self, length: u32, messages: u32) -> f64 {
        let begun = spent();
        (0..messages).for_each(|_| self.ping(length));
        (spent() - begun) * 1e9 / f64::from(messages) / 2.0
    }

    /// Sends one message in each direction.
    fn ping(&mut self, length: u32) {
        for from in [0, 1] {
            let to = &mut self.hosts[1 - from];
            let sges = [Sge { address: 0, length, lkey: to.key }];
            let receive = ReceiveRequest { wr_id: 1, sges: &sges };
            to.device.post_receive(to.qp, &receive).expect("there is room");
            self.post(from, Operation::Send, length);
            let mut done = 0;
            while done < 2 {
                self.carry(from);
                self.carry(1 - from);
                done += self.reap(0) + self.reap(1);
            }
        }
    }

    /// Returns the rate of WRITEs of this length, bytes a second; each is posted as soon as there is room.
    pub(crate) fn bandwidth(&mut self, length: u32, messages: u32) -> f64 {
        let remote = Remote { address: 0, rkey: self.hosts[1].key };
        let begun = spent();
        let (mut posted, mut done) = (0, 0);
        while done < messages {
            while posted < messages && posted - done < DEPTH {
                self.post(0, Operation::Write(remote), length);
                posted += 1;
            }
            self.carry(0);
            self.carry(1);
            done += self.reap(0);
        }
        f64::from(messages) * f64::from(length) / (spent() - begun)
    }

    fn post(&mut self, host: usize, operation: Operation, length: u32) {
        self.now += Duration::from_nanos(100);
        let Host { device, qp, key, .. } = &mut self.hosts[host];
        let sges = [Sge { address: 0, length, lkey: *key }];
        let request = SendRequest::new(1, operation, Data::Gather(&sges));
        device.post_send(self.now, *qp, &request).expect("there is room");
    }

    /// Delivers the packets that a host may send to the other, as bytes, like a real link.
    fn carry(&mut self, from: usize) {
        let [first, second] = &mut self.hosts;
        let (this, peer) = if from == 0 { (first, second) } else { (second, first) };
        let mut bytes = [0; Packet::MAX_LEN + RdmaHeader::MAX_LEN];
        loop {
            let (mut len, mut payload_len, mut acknowledged) = (0, 0, None);
            let more = this.device.poll_transmit(self.now, |transmit, source| {
                len = transmit.packet.emit(&mut bytes);
                if let Some(header) = &transmit.rdma {
                    len += header.emit(&mut bytes[len..]);
                }
                (payload_len, acknowledged) = (transmit.payload_len, transmit.acknowledged);
                peer.memory.payload.clear();
                if let Source::Memory(places) = source {
                    let at = |place: &Place| {
                        let from = usize::try_from(place.address).expect("an index");
                        (this.memory.bytes[from..].as_ptr(), place.len as usize)
                    };
                    peer.memory.payload.extend(places.iter().map(at));
                }
            });
            if !more {
                break;
            }
            let (packet, rest) = &Packet::parse(&bytes[..len]).expect("it was emitted");
            let rdma = packet.announces_rdma().then(|| RdmaHeader::parse(rest).expect("too").0);
            let received =
                ReceivedPacket { packet, rdma: rdma.as_ref(), payload_len, acknowledged };
            let (from, memory) = (address(from), &mut peer.memory);
            peer.device.handle_link_packet(self.now, LINK, from, received, memory);
        }
    }

    fn reap(&mut self, host: usize) -> u32 {
        let Host { device, cq, .. } = &mut self.hosts[host];
        while device.poll_event().is_some() {}
        let mut reaped = 0;
        while let Some(completion) = device.poll_cq(*cq).expect("it is there") {
            assert_eq!(black_box(completion).status, Status::Success);
            reaped += 1;
        }
        reaped
    }
}
