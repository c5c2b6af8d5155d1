//! One end of a tenant's flow: it sends frames and processes those that it receives.

use weft_units::Instant;
use weft_vpc::PortId;

use super::frame::{MAX_SACKS, Segment, Vnic, is_body};
use super::nics::Sent;
use super::receiver::{FrameOrder, Receiver, unwrap, wrap};
use super::sender::{Limits, Sender};
use crate::traffic::{ChannelId, Side};

/// An end of a flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) channel: ChannelId,
    pub(super) side: Side,
    /// The vNIC of this end, and the port of the switch that it is behind.
    pub(super) port: PortId,
    pub(super) local: Vnic,
    pub(super) remote: Vnic,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// `true` while it is in the queue of flows that may send.
    pub(super) is_ready: bool,
    /// The time at which the flow is next checked for a timeout.
    pub(super) timer: Option<Instant>,
    /// Number of its next frame.
    serial: u64,
    /// The frame that must be acknowledged: its number, and the position of its first byte.
    ack_due: Option<(u32, u64)>,
}

/// The effect of a frame at the end that it reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The frame has data; the number of its bytes that are new.
    Data(u64),
    /// The frame is an ACK.
    Ack,
    /// The frame's bytes differ from those sent.
    Damaged,
}

impl Flow {
    pub(super) fn new(
        (channel, side): (ChannelId, Side),
        port: PortId,
        (local, remote): (Vnic, Vnic),
        limits: &Limits,
    ) -> Self {
        Self {
            channel,
            side,
            port,
            local,
            remote,
            sender: Sender::new(limits),
            receiver: Receiver::default(),
            is_ready: false,
            timer: None,
            serial: 0,
            ack_due: None,
        }
    }

    /// Returns the TCP ports of the frames that a side sends: the halves of the channel's number.
    fn ports(channel: ChannelId, from: Side) -> (u16, u16) {
        let [a, b, c, d] = channel.0.to_be_bytes();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match from {
            Side::Opener => (low, high),
            Side::Peer => (high, low),
        }
    }

    /// Returns the channels that a frame may belong to, by the side that it is for.
    pub(super) fn channels(segment: &Segment) -> [(ChannelId, Side); 2] {
        let channel = |high: u16, low: u16| ChannelId(u32::from(high) << 16 | u32::from(low));
        let (source, destination) = segment.ports;
        [(channel(destination, source), Side::Peer), (channel(source, destination), Side::Opener)]
    }

    /// Returns the key of the bytes that a side sends.
    fn stream(channel: ChannelId, from: Side) -> u32 {
        channel.0 << 1 | u32::from(from == Side::Peer)
    }

    /// Returns the next frame to send, if any, and `true` if its bytes were sent before.
    pub(super) fn poll_frame(&mut self, now: Instant, limits: &Limits) -> Option<(Sent, bool)> {
        let serial = self.serial;
        let (ack_due, acknowledged) = (self.ack_due.take(), self.receiver.acknowledged());
        let ports = Self::ports(self.channel, self.side);
        let (echo, sacks, piece) = match ack_due {
            Some((echo, recent)) => (echo, self.receiver.sacks(recent), None),
            None => {
                let piece = self.sender.poll_piece(now, serial, limits)?;
                (0, [(0, 0); MAX_SACKS], Some(piece))
            }
        };
        self.serial += 1;
        let (start, len) = piece.map_or((0, 0), |piece| (piece.start, piece.end - piece.start));
        let segment = Segment {
            ports,
            sequence: wrap(start),
            acknowledged,
            serial: wrap(serial),
            echo,
            sacks,
            payload_len: u16::try_from(len).expect("no longer than a frame"),
        };
        let mss = u16::try_from(limits.mss).expect("no longer than a packet");
        let mut headers = [0; super::frame::MAX_HEADERS];
        let header_len = segment.emit(self.local, self.remote, mss, &mut headers);
        let stream = Self::stream(self.channel, self.side);
        let (position, payload_len) = (start, segment.payload_len);
        let frame = Sent { headers, header_len, stream, position, payload_len };
        Some((frame, piece.is_some_and(|piece| piece.is_retransmission)))
    }

    /// Records the number of a frame that has arrived, and returns the frame's position among the others.
    pub(super) fn frame_order(&mut self, segment: &Segment) -> FrameOrder {
        self.receiver.on_frame(segment.serial)
    }

    /// Processes a frame that has arrived, with its payload.
    pub(super) fn on_frame(
        &mut self,
        now: Instant,
        segment: &Segment,
        body: &[u8],
        limits: &Limits,
    ) -> Outcome {
        if body.is_empty() {
            self.on_ack(now, segment, limits);
            return Outcome::Ack;
        }
        let stream = Self::stream(self.channel, self.side.other());
        let position = unwrap(segment.sequence, self.receiver.position());
        if !is_body(stream, position, body) {
            return Outcome::Damaged;
        }
        let fresh = self.receiver.on_data(position, body.len() as u64);
        self.ack_due = Some((segment.serial, position));
        Outcome::Data(fresh)
    }

    fn on_ack(&mut self, now: Instant, segment: &Segment, limits: &Limits) {
        let near = self.sender.acknowledged();
        let number = |low| unwrap(low, near);
        let sacks = segment.sacks.iter().filter(|(start, end)| start != end);
        let sacks = sacks.map(|&(start, end)| (number(start), number(end)));
        let echo = unwrap(segment.echo, self.serial);
        self.sender.on_ack(now, number(segment.acknowledged), sacks, echo, limits);
    }
}
