//! Helper functions of tests on the [swarm's network](crate::swarm): creation of ends, and completions.

use weft_units::{Duration, Seed};
use weft_wire::{MessageHeader, Packet};

use crate::*;

pub(super) use crate::swarm::network::*;

impl OnLink<'_> {
    /// Returns the message header of a packet.
    pub(super) fn message(&self) -> Option<&MessageHeader> {
        match self.packet {
            Packet::Data(_, message) => message.as_ref(),
            _ => None,
        }
    }
}

impl Network {
    pub(super) fn new(hosts: usize) -> Self {
        Self::with(hosts, &config())
    }

    /// Replaces the device of a host with one that has these limits.
    pub(super) fn limit(&mut self, host: usize, limits: Limits) {
        self.hosts[host].device = device(host as u64, config(), limits);
    }

    /// Creates a queue pair in state RESET, with memory of its own.
    pub(super) fn end_of(
        &mut self,
        host: usize,
        context: Context,
        domain: ProtectionDomain,
        owner: Owner,
        service: Service,
    ) -> End {
        let length = usize::try_from(LENGTH).unwrap();
        self.hosts[host].memory.bytes.insert(owner, alloc::vec![0; length]);
        let device = &mut self.hosts[host].device;
        let cq = device.create_cq(context, 1024).unwrap();
        let qp = device.create_qp(&request(domain, cq, service)).unwrap();
        let region =
            RegionRequest { owner, address: 0, length: LENGTH, iova: BASE, access: every_right() };
        let key = device.register(domain, &region).unwrap();
        End { host, context, domain, cq, qp, owner, key }
    }

    /// Connects two ends of the same service; both become ready to send.
    pub(super) fn join(&mut self, a: &End, b: &End, tweak: impl Fn(&mut Attributes)) {
        self.ready_to_receive(a, b, &tweak);
        self.ready_to_receive(b, a, &tweak);
        self.ready_to_send(a, &tweak);
        self.ready_to_send(b, &tweak);
    }

    /// Returns the end's memory.
    pub(super) fn memory(&mut self, end: &End) -> &mut [u8] {
        self.hosts[end.host].memory.bytes.get_mut(&end.owner).unwrap()
    }

    /// Fills the end's memory with random bytes.
    pub(super) fn fill(&mut self, end: &End, seed: u64) {
        let mut rng = Seed(seed).rng();
        self.memory(end).fill_with(|| rng.next_u64().to_le_bytes()[7]);
    }

    /// Creates a queue pair on a host in state RESET, in a context of its own with memory of its own.
    pub(super) fn end(&mut self, host: usize, service: Service) -> End {
        let owner = Owner::Host(u32::try_from(self.hosts[host].memory.bytes.len()).unwrap());
        let device = &mut self.hosts[host].device;
        let context = device.open().unwrap();
        let domain = device.allocate_domain(context).unwrap();
        self.end_of(host, context, domain, owner, service)
    }

    /// Creates a queue pair of a virtual device in state RESET, with memory of its guest.
    pub(super) fn tenant(&mut self, host: usize, guest: u32, service: Service) -> (Doorbell, End) {
        let VirtualDevice { context, domain, doorbell } =
            self.hosts[host].device.create_virtual(guest, &[]).unwrap();
        (doorbell, self.end_of(host, context, domain, Owner::Guest(guest), service))
    }

    /// Creates two connected ends on two hosts.
    pub(super) fn pair(service: Service) -> (Self, End, End) {
        let mut network = Self::new(2);
        let (a, b) = (network.end(0, service), network.end(1, service));
        network.join(&a, &b, |_| ());
        (network, a, b)
    }

    pub(super) fn post_receive(&mut self, end: &End, wr_id: u64, sges: &[Sge]) {
        let request = ReceiveRequest { wr_id, sges };
        self.hosts[end.host].device.post_receive(end.qp, &request).unwrap();
    }

    pub(super) fn poll(&mut self, end: &End) -> Option<Completion> {
        self.hosts[end.host].device.poll_cq(end.cq).unwrap()
    }

    /// Runs until the end has `count` completions, and returns them.
    pub(super) fn completions(&mut self, end: &End, count: usize) -> Vec<Completion> {
        let mut got = Vec::new();
        self.run_until(|network| {
            while got.len() < count
                && let Some(completion) = network.poll(end)
            {
                got.push(completion);
            }
            got.len() == count
        });
        got
    }

    /// Runs until the end has `count` completions, and returns their request numbers and status.
    pub(super) fn outcomes(&mut self, end: &End, count: usize) -> Vec<(u64, Status)> {
        let completions = self.completions(end, count);
        completions.iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    /// Runs until `done` returns `true`; fails after a second.
    pub(super) fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let until = self.now + Duration::from_secs(1);
        loop {
            self.drain();
            if done(self) {
                break;
            }
            assert!(self.step(until), "not done after a second");
        }
    }
}
