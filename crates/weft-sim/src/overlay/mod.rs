//! The overlay on a host: tenants' vNICs on a virtual switch, exactly as shipped, which sends to the switches of other
//! hosts.
//!
//! A channel of a workload is a flow between two vNICs, and its messages are bytes of the flow. A [`Vtep`] (RFC 7348)
//! does the work of `weft-vswitch`'s worker: it passes the tenants' frames to the switch, no more than can leave soon,
//! and the switch's packets to the network. Tenants are models (`sender.rs`) that detect and retransmit lost frames;
//! they check that frames of a flow arrive in order, once, and as they were sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_topo::NodeId;
use weft_transport::{Arrival, Departure};
use weft_units::Instant;
use weft_vpc::{Frame, Inbound, PortId, Reading, Switch, TenantFrame, Tenants, Vni};
use weft_wire::{Packet, U24, VirtioNetHeader, VxlanHeader, VxlanNext};

use crate::payload::PacketPayload;
use crate::scenario::OverlaySection;
use crate::traffic::{ChannelId, MessageId, Side};

mod counters;
mod flow;
mod frame;
mod join;
mod nics;
mod plain;
mod ranges;
mod receiver;
mod sender;

pub use counters::{OverlayCounters, TenantCounters};
use flow::{Flow, Outcome};
use frame::Segment;
pub(crate) use frame::{MAX_PAYLOAD, PACKET_HEADERS};
use nics::Nics;
use plain::PlainQueue;
use receiver::FrameOrder;
pub(crate) use sender::Limits;

/// Number of connections with something to send from which on a host takes only [`MIN_FRAMES`] frames of its tenants in
/// a turn, as `weft-vswitch`'s worker does.
const PACKETS_A_TURN: usize = 176;
/// Minimum number of frames that a host may take in a turn.
const MIN_FRAMES: usize = 16;

/// An event of a host's tenants, with the workloads' ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VtepEvent {
    /// Data of a flow arrived at this end.
    Received {
        /// The channel.
        channel: ChannelId,
        /// The end.
        side: Side,
    },
    /// The other end has acknowledged all bytes of a message.
    Acked {
        /// The channel.
        channel: ChannelId,
        /// The message.
        message: MessageId,
    },
    /// A frame violated the switch's guarantees: it arrived twice, late, or not as it was sent.
    Broken {
        /// The channel.
        channel: ChannelId,
        /// The end at which it arrived.
        side: Side,
        /// The frame's number.
        serial: u32,
    },
}

/// One host's tenants and their switch, with the mapping between its ids and the workloads'.
#[derive(Debug)]
pub struct Vtep {
    host: NodeId,
    config: OverlaySection,
    limits: Limits,
    paths: u16,
    switch: Switch,
    nics: Nics,
    plain: PlainQueue,
    flows: BTreeMap<ChannelId, Box<Flow>>,
    /// Flows that may have a frame to send, the one that waits longest first.
    ready: VecDeque<ChannelId>,
    timers: BTreeSet<(Instant, ChannelId)>,
    events: VecDeque<VtepEvent>,
    /// Number of channels that this host opened, and of those that others opened to it.
    ends: [u32; 2],
    counters: TenantCounters,
}

impl Vtep {
    /// Appends a message to a flow; nothing happens where it is closed.
    pub fn send(&mut self, channel: ChannelId, message: MessageId, length: u32) {
        if let Some(flow) = self.flows.get_mut(&channel) {
            flow.sender.write(message, length.into());
            make_ready(&mut self.ready, flow);
        }
    }

    /// Takes a message of `length` bytes from the received bytes of a flow; returns `true` if all of them have arrived.
    pub fn take_message(&mut self, channel: ChannelId, length: u32) -> bool {
        self.flows.get_mut(&channel).is_some_and(|flow| flow.receiver.take(length.into()))
    }

    /// Removes a flow, whose frames are not retransmitted. The pair's connection stays.
    pub fn close(&mut self, channel: ChannelId) {
        self.flows.remove(&channel);
    }

    /// Handles a packet that arrived.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: &PacketPayload,
    ) {
        let Some(vxlan) = payload.vxlan else { return };
        let vni = Vni::new(vxlan.vni.get()).expect("24 bits");
        let (switch, nics) = (&mut self.switch, &mut self.nics);
        match vxlan.next {
            VxlanNext::Frame => {
                switch.handle_plain(now, arrival.from, vni, &payload.bytes, nics);
            }
            _ => {
                let inbound = Inbound { arrival, vni, packet, payload: &payload.bytes };
                switch.handle_packet(now, &inbound, nics);
            }
        }
    }

    /// Services the host, after any input and at [`poll_timeout`](Self::poll_timeout): handles timeouts of flows and of
    /// the switch, passes received frames to their tenants, and the tenants' new frames to the switch.
    pub fn take_turn(&mut self, now: Instant) {
        while let Some(&(at, channel)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            self.handle_timer(now, channel);
        }
        loop {
            self.switch.handle_timeout(now, &mut self.nics);
            let mut is_idle = true;
            while let Some(frame) = self.nics.poll_frame() {
                is_idle = false;
                self.receive(now, &frame);
                self.nics.recycle(frame);
            }
            if self.take_frames(now) == 0 && is_idle {
                return;
            }
        }
    }

    /// Handles the timeout of a flow, which has been extended if the flow received a frame since.
    fn handle_timer(&mut self, now: Instant, channel: ChannelId) {
        let Some(flow) = self.flows.get_mut(&channel) else { return };
        flow.timer = None;
        if flow.sender.poll_timeout(&self.limits).is_some_and(|due| due <= now) {
            self.counters.timeouts += 1;
            flow.sender.handle_timeout(now, &self.limits);
            make_ready(&mut self.ready, flow);
        }
        set_timer(&mut self.timers, flow, &self.limits);
    }

    /// Handles a frame that its tenant received.
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.counters.frames_received += 1;
        let Some((segment, body)) = Segment::parse(bytes) else {
            self.counters.damaged += 1;
            return;
        };
        let found = Flow::channels(&segment)
            .into_iter()
            .find(|(channel, side)| self.flows.get(channel).is_some_and(|flow| flow.side == *side));
        let Some((channel, side)) = found else {
            // The flow is closed.
            self.counters.frames_after_close += 1;
            return;
        };
        let flow = self.flows.get_mut(&channel).expect("found above");
        let serial = segment.serial;
        let is_plain = !self.config.reliable || self.switch.counters().plain_received > 0;
        if !is_plain {
            let is_kept = match flow.frame_order(&segment) {
                FrameOrder::InOrder => true,
                FrameOrder::Late => {
                    self.counters.late += 1;
                    !self.config.in_order
                }
                FrameOrder::Duplicate => {
                    self.counters.frames_duplicate += 1;
                    false
                }
            };
            if !is_kept {
                self.events.push_back(VtepEvent::Broken { channel, side, serial });
            }
        }
        match flow.on_frame(now, &segment, body, &self.limits) {
            Outcome::Data(fresh) => {
                self.counters.bytes_received += fresh;
                self.counters.bytes_duplicate += body.len() as u64 - fresh;
                self.events.push_back(VtepEvent::Received { channel, side });
            }
            Outcome::Ack => {
                while let Some(message) = flow.sender.poll_acked() {
                    self.events.push_back(VtepEvent::Acked { channel, message });
                }
            }
            Outcome::Damaged => {
                self.counters.damaged += 1;
                self.events.push_back(VtepEvent::Broken { channel, side, serial });
            }
        }
        make_ready(&mut self.ready, flow);
    }

    /// Passes the tenants' frames to the switch, no more than can leave soon; returns their number.
    fn take_frames(&mut self, now: Instant) -> usize {
        let room = PACKETS_A_TURN.saturating_sub(self.switch.ready_connections());
        let (max_frames, mut taken) = (room.max(MIN_FRAMES), 0);
        while taken < max_frames
            && let Some(channel) = self.ready.pop_front()
        {
            let Some(flow) = self.flows.get_mut(&channel) else { continue };
            flow.is_ready = false;
            let Some((frame, is_retransmission)) = flow.poll_frame(now, &self.limits) else {
                continue;
            };
            taken += 1;
            make_ready(&mut self.ready, flow);
            set_timer(&mut self.timers, flow, &self.limits);
            self.counters.frames_sent += 1;
            self.counters.frames_retransmitted += u64::from(is_retransmission);
            let (port, len) = (flow.port, frame.len());
            let mut head = [0; VirtioNetHeader::LEN + Frame::MIN_PARSE_BYTES];
            let head =
                &mut head[..(len as usize).min(VirtioNetHeader::LEN + Frame::MIN_PARSE_BYTES)];
            let token = self.nics.send(frame);
            self.nics.read(port, token, 0, head, Reading::First);
            self.switch.handle_frame(now, TenantFrame { port, token, len }, head, &mut self.nics);
        }
        taken
    }

    /// Writes the next packet to send to `packet` and `payload`; `None` if no packet may leave.
    pub fn poll_packet(
        &mut self,
        now: Instant,
        packet: &mut Packet,
        payload: &mut PacketPayload,
    ) -> Option<Departure> {
        let nics = &mut self.nics;
        let mut loaded = None;
        self.switch.poll_burst(now, 1, packet, |leaving| {
            let vni = U24::truncate(leaving.vni.get());
            payload.rdma = None;
            payload.vxlan = Some(VxlanHeader { vni, next: VxlanNext::Weft });
            payload.bytes.resize(leaving.payload_len().into(), 0);
            leaving.read(nics, &mut payload.bytes);
            // All connections of a host share its source ports, one for each path.
            loaded = Some(Departure { connection: None, ..*leaving.departure });
        });
        if loaded.is_some() {
            return loaded;
        }
        while let Some(plain) = self.switch.poll_plain() {
            self.plain.push(&plain, self.paths, nics);
        }
        self.plain.poll(packet, payload)
    }

    /// Returns the next event of the tenants.
    pub fn poll_event(&mut self) -> Option<VtepEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which [`take_turn`](Self::take_turn) must be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let tenants = self.timers.first().map(|&(at, _)| at);
        tenants.into_iter().chain(self.switch.poll_timeout()).min()
    }

    /// Returns the channels it has an end of.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.flows.keys().copied()
    }

    /// Returns the switch.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Returns the number of bytes that its tenants received, without duplicates.
    pub fn received_bytes(&self) -> u64 {
        self.counters.bytes_received
    }

    /// Returns the counters of its frames, at all ports and at their tenants.
    pub fn counters(&self) -> OverlayCounters {
        let ports = (0..self.config.tenants * self.config.ports).map(PortId);
        let ports = ports.filter_map(|port| self.switch.port_counters(port));
        OverlayCounters::new(
            ports.chain([self.switch.counters()]),
            self.counters,
            self.switch.pair_count() as u64,
        )
    }
}

/// Puts a flow at the end of the queue of flows that may send, unless it is in the queue.
fn make_ready(ready: &mut VecDeque<ChannelId>, flow: &mut Flow) {
    if !std::mem::replace(&mut flow.is_ready, true) {
        ready.push_back(flow.channel);
    }
}

/// Schedules the check of a flow's timeout. A flow has one entry at a time; the check finds whether an ACK has extended
/// the timeout since.
fn set_timer(timers: &mut BTreeSet<(Instant, ChannelId)>, flow: &mut Flow, limits: &Limits) {
    if flow.timer.is_none()
        && let Some(at) = flow.sender.poll_timeout(limits)
    {
        flow.timer = Some(at);
        timers.insert((at, flow.channel));
    }
}
