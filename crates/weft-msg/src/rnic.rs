//! The implementation of [`Verbs`] on Weft's RNIC, whose packets the owner transports: in process, in the
//! simulator, in tests.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{Ipv6Addr, SocketAddr};

use weft_rnic::{
    Access, Arrival, Attributes, CompletionQueue, Data, Device, Event, Extra, Held, Memory,
    Operation, Owner, PayloadLost, Place, ProtectionDomain, QueuePairNumber, QueuePairRequest,
    ReceiveRequest, ReceivedPacket, RegionRequest, Remote, SendRequest, Service, Sge,
    SharedReceiveQueue, Source, State, Status, Transmit, VerbsError,
};
use weft_units::Instant;
use weft_wire::{AtomicOperation, ChannelOffer, Packet, RdmaHeader};

use crate::verbs::{
    Completion, DeviceError, Qp, QpSizes, Region, Registrar, Slice, Verbs, Work, rnr_retry,
};

/// The distance between the addresses of regions. A region has at most half this length, so an access beyond its end
/// fails.
const REGION_STRIDE: u64 = 1 << 32;

/// An RNIC device with its own memory.
#[derive(Debug)]
pub struct Rnic {
    device: Device,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    memory: Arena,
    at: SocketAddr,
}

/// Registered memory, and the payload of the current packet.
#[derive(Debug, Default)]
struct Arena {
    /// Regions by address.
    regions: BTreeMap<u64, Vec<u8>>,
    /// Number of regions allocated since the start.
    count: u64,
    /// The payload of the current packet.
    payload: Vec<u8>,
    /// The payloads of packets that are placed later.
    held: BTreeMap<Held, Vec<u8>>,
    /// Number of bytes received and placed, including frame headers.
    received: u64,
}

impl Rnic {
    /// Opens a context on `device`, which peers reach at `at`.
    ///
    /// # Errors
    /// The device has no resources left.
    pub fn new(mut device: Device, at: SocketAddr) -> Result<Self, VerbsError> {
        let context = device.open()?;
        let domain = device.allocate_domain(context)?;
        let cq = device.create_cq(context, device.limits().completions)?;
        Ok(Self { device, domain, cq, srq: None, memory: Arena::default(), at })
    }

    /// Handles a received packet.
    ///
    /// # Panics
    /// If the payload is longer than 65,535 bytes.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        rdma: Option<&RdmaHeader>,
        payload: &[u8],
    ) {
        self.memory.payload.clear();
        self.memory.payload.extend_from_slice(payload);
        let payload_len = u16::try_from(payload.len()).expect("no longer than a packet");
        let received = ReceivedPacket { packet, rdma, payload_len, acknowledged: None };
        self.device.handle_packet(now, arrival, received, &mut self.memory);
        self.drain_events();
    }

    /// Handles an expired deadline.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.device.handle_timeout(now);
        self.drain_events();
    }

    /// Returns the device's next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    /// Passes the next packet with its payload to `send`. Returns `false` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, mut send: impl FnMut(&Transmit, &[u8])) -> bool {
        let memory = &self.memory;
        let sent = self.device.poll_transmit(now, |transmit, source| {
            let mut payload = Vec::with_capacity(transmit.payload_len.into());
            match source {
                Source::Memory(places) => {
                    places.iter().for_each(|place| payload.extend_from_slice(memory.read(place)));
                }
                Source::Inline(bytes) => payload.extend_from_slice(bytes),
                Source::Anything => payload.resize(transmit.payload_len.into(), 0),
            }
            send(transmit, &payload);
        });
        self.drain_events();
        sent
    }

    /// Returns the device.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of bytes received and placed: bodies and frame headers.
    pub const fn received_bytes(&self) -> u64 {
        self.memory.received
    }

    /// Returns the number of packets held for later placement.
    pub fn held_packets(&self) -> usize {
        self.memory.held.len()
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.device.poll_event() {
            if let Event::ReleaseHeld { connection } = event {
                self.memory.held.retain(|packet, _| packet.connection != connection);
            }
        }
    }
}

impl Arena {
    /// Returns the address of a region and the offset in it.
    fn slot(address: u64) -> (u64, usize) {
        let base = address / REGION_STRIDE * REGION_STRIDE;
        (base, usize::try_from(address - base).expect("less than a region"))
    }

    fn read(&self, place: &Place) -> &[u8] {
        let (base, from) = Self::slot(place.address);
        &self.regions[&base][from..from + place.len as usize]
    }

    fn write_at(&mut self, place: Place, bytes: &[u8]) {
        let (base, from) = Self::slot(place.address);
        // The device checks each access against its regions, which are the same as these.
        if let Some(region) = self.regions.get_mut(&base) {
            region[from..from + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn word(&self, place: &Place) -> u64 {
        let bytes = self.read(place).first_chunk();
        u64::from_ne_bytes(*bytes.expect("atomics are eight bytes"))
    }
}

impl Memory for Arena {
    fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost> {
        let payload = core::mem::take(&mut self.payload);
        self.write_at(place, &payload[from.into()..][..place.len as usize]);
        self.payload = payload;
        self.received += u64::from(place.len);
        Ok(())
    }

    fn hold(&mut self, packet: Held) -> Result<(), PayloadLost> {
        self.held.insert(packet, self.payload.clone());
        Ok(())
    }

    fn place_held(&mut self, packet: Held, place: Place, from: u16) {
        if let Some(payload) = self.held.remove(&packet) {
            self.write_at(place, &payload[from.into()..][..place.len as usize]);
            self.received += u64::from(place.len);
            self.held.insert(packet, payload);
        }
    }

    fn release(&mut self, packet: Held) {
        self.held.remove(&packet);
    }

    fn write(&mut self, place: Place, bytes: &[u8]) {
        self.write_at(place, bytes);
    }

    fn atomic(&mut self, place: Place, operation: AtomicOperation) -> u64 {
        let before = self.word(&place);
        self.write_at(place, &operation.apply(before).to_ne_bytes());
        before
    }
}

fn refused(doing: &'static str) -> impl Fn(VerbsError) -> DeviceError {
    move |error| {
        let why = match error {
            VerbsError::TooMany { .. } => "the device holds as many as it may",
            VerbsError::OverLimit { .. } => "more than the device or the queue can do",
            _ => "the device does not take it in this state",
        };
        DeviceError { doing, why, code: 0 }
    }
}

const fn sge(slice: Slice) -> Sge {
    Sge { address: slice.address, length: slice.len, lkey: slice.lkey }
}

impl Registrar for Rnic {
    fn allocate(&mut self, len: u64) -> Result<Region, DeviceError> {
        let doing = "registering memory";
        let bytes = usize::try_from(len).ok().filter(|_| len <= REGION_STRIDE / 2);
        let bytes =
            bytes.ok_or(DeviceError { doing, why: "longer than a region may be", code: 0 })?;
        self.memory.count += 1;
        let address = self.memory.count * REGION_STRIDE;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let request =
            RegionRequest { owner: Owner::Host(0), address, length: len, iova: address, access };
        let key = self.device.register(self.domain, &request).map_err(refused(doing))?;
        self.memory.regions.insert(address, alloc::vec![0; bytes]);
        Ok(Region { address, len, lkey: key, rkey: key })
    }

    fn free(&mut self, region: Region) {
        // The region belongs to this context, and no window is bound to it.
        let _ = self.device.deregister(region.lkey);
        self.memory.regions.remove(&region.address);
    }
}

impl Verbs for Rnic {
    fn gid(&self) -> Ipv6Addr {
        match self.at.ip() {
            core::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
            core::net::IpAddr::V6(address) => address,
        }
    }

    fn create_qp(&mut self, now: Instant, sizes: QpSizes) -> Result<Qp, DeviceError> {
        let request = QueuePairRequest {
            domain: self.domain,
            service: Service::ReliableConnected,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: self.srq.filter(|_| sizes.shared),
            max_send: sizes.send,
            max_receive: sizes.receive,
            max_send_sge: 2,
            max_receive_sge: 1,
            max_inline: 0,
            signal_all: false,
        };
        let qp = self.device.create_qp(&request).map_err(refused("making a queue pair"))?;
        self.initialise(now, qp)?;
        Ok(Qp(qp.0))
    }

    fn connect_qp(
        &mut self,
        now: Instant,
        qp: Qp,
        psn: u32,
        peer: &ChannelOffer,
    ) -> Result<(), DeviceError> {
        let to_receive = Attributes {
            state: Some(State::ReadyToReceive),
            destination: Some(SocketAddr::new(peer.gid.to_canonical(), self.at.port())),
            dest_qp: Some(peer.qp.into()),
            path_mtu: Some(4096),
            rq_psn: Some(peer.psn.into()),
            max_dest_rd_atomic: Some(16),
            min_rnr_timer: Some(12),
            ..Attributes::default()
        };
        let to_send = Attributes {
            state: Some(State::ReadyToSend),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(rnr_retry(peer)),
            sq_psn: Some(psn),
            max_rd_atomic: Some(16),
            ..Attributes::default()
        };
        [to_receive, to_send].iter().try_for_each(|to| {
            let modified = self.device.modify_qp(now, QueuePairNumber(qp.0), to);
            modified.map_err(refused("connecting a queue pair"))
        })
    }

    fn reset_qp(&mut self, now: Instant, qp: Qp) -> Result<(), DeviceError> {
        let to_reset = Attributes { state: Some(State::Reset), ..Attributes::default() };
        let qp = QueuePairNumber(qp.0);
        let reset = self.device.modify_qp(now, qp, &to_reset);
        reset.map_err(refused("resetting a queue pair"))?;
        self.initialise(now, qp)
    }

    fn destroy_qp(&mut self, now: Instant, qp: Qp) {
        // The queue pair belongs to this context, and nothing else uses it.
        let _ = self.device.destroy_qp(now, QueuePairNumber(qp.0));
    }

    fn create_shared_receives(&mut self, requests: u32) -> Result<(), DeviceError> {
        let srq = self.device.create_srq(self.domain, requests, 1);
        self.srq = Some(srq.map_err(refused("making a shared receive queue"))?);
        Ok(())
    }

    fn destroy_shared_receives(&mut self) {
        if let Some(srq) = self.srq.take() {
            // The queue belongs to this context, and its queue pairs are destroyed.
            let _ = self.device.destroy_srq(srq);
        }
    }

    fn post_shared_receive(&mut self, wr_id: u64, to: Slice) -> Result<(), DeviceError> {
        let doing = "posting a receive request";
        let none = DeviceError { doing, why: "there is no shared queue", code: 0 };
        let request = ReceiveRequest { wr_id, sges: &[sge(to)] };
        let posted = self.device.post_srq_receive(self.srq.ok_or(none)?, &request);
        posted.map_err(refused(doing))
    }

    fn post_receive(&mut self, qp: Qp, wr_id: u64, to: Slice) -> Result<(), DeviceError> {
        let request = ReceiveRequest { wr_id, sges: &[sge(to)] };
        let posted = self.device.post_receive(QueuePairNumber(qp.0), &request);
        posted.map_err(refused("posting a receive request"))
    }

    fn post_send(
        &mut self,
        now: Instant,
        qp: Qp,
        wr_id: u64,
        work: Work<'_>,
        signaled: bool,
    ) -> Result<(), DeviceError> {
        let (operation, sges) = match work {
            Work::Send { from, immediate } => {
                let from: Vec<Sge> = from.iter().copied().map(sge).collect();
                (Operation::SendWithImmediate(immediate), from)
            }
            Work::Read { to, address, rkey } => {
                (Operation::Read(Remote { address, rkey }), alloc::vec![sge(to)])
            }
            Work::Probe => (Operation::Write(Remote { address: 0, rkey: 0 }), Vec::new()),
        };
        let request =
            SendRequest { signaled, ..SendRequest::new(wr_id, operation, Data::Gather(&sges)) };
        let posted = self.device.post_send(now, QueuePairNumber(qp.0), &request);
        posted.map_err(refused("posting a send request"))
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.device.poll_cq(self.cq).ok()??;
        let immediate = match completion.extra {
            Some(Extra::Immediate(word)) => Some(word),
            Some(Extra::Invalidated(_)) | None => None,
        };
        let weft_rnic::Completion { wr_id, status, length, qp, .. } = completion;
        let len = if status == Status::Success { length } else { 0 };
        Some(Completion { qp: Qp(qp.0), wr_id, status, len, immediate })
    }

    fn bytes(&self, slice: Slice) -> &[u8] {
        let (base, from) = Arena::slot(slice.address);
        &self.memory.regions[&base][from..from + slice.len as usize]
    }

    fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let (base, from) = Arena::slot(slice.address);
        let region = self.memory.regions.get_mut(&base).expect("memory of this context");
        &mut region[from..from + slice.len as usize]
    }
}

impl Rnic {
    /// Moves a queue pair from Reset to Init.
    fn initialise(&mut self, now: Instant, qp: QueuePairNumber) -> Result<(), DeviceError> {
        let to_init = Attributes {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
            ..Attributes::default()
        };
        self.device.modify_qp(now, qp, &to_init).map_err(refused("preparing a queue pair"))
    }
}
