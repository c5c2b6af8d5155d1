//! Reception: a datagram is opened and parsed, and its packet is passed to the engine; set-up packets pass admission
//! first. Agents, the RNIC and simulated hosts share it. The overlay opens its datagrams by itself: they carry frames
//! too, and may be for another thread.

use core::net::SocketAddr;

use weft_transport::{Admission, Arrival, ConnectionId, SetupClass};
use weft_units::Instant;
use weft_wire::{Packet, SealedContent, SetupHeader, SetupKind};

use crate::{OpenError, Seals};

/// An engine behind the encryption. `'d` is the datagram's lifetime.
pub trait PacketHandler<'d> {
    /// Handles a packet other than set-up; `rest` follows its header. Returns `false` if it is no packet of the owner's
    /// protocol.
    fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        rest: &'d [u8],
    ) -> bool;

    /// Returns the connection that a set-up packet refers to, before the packet is processed.
    fn classify_setup(&self, now: Instant, arrival: &Arrival, header: &SetupHeader) -> SetupClass;

    /// Handles a set-up packet, with the encryption's verdict on it.
    fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
    );

    /// Answers the sender of a packet under unknown keys. `iv` is the low half of the packet's number.
    fn handle_unknown_encrypted(&mut self, from: SocketAddr, connection: ConnectionId, iv: u32);
}

impl Seals {
    /// Opens a datagram in place and passes its packet to `handler`. Returns `false` if it is no packet of the
    /// handler's protocol; a packet that is refused counts as one.
    #[inline]
    pub fn ingest<'d>(
        &mut self,
        handler: &mut impl PacketHandler<'d>,
        now: Instant,
        arrival: &Arrival,
        datagram: &'d mut [u8],
    ) -> bool {
        let inside: &'d [u8] = match self.open(datagram, 0) {
            Ok((inside, SealedContent::Packet)) => inside,
            Ok((_, SealedContent::Frame)) => return false,
            Err(error) => return drop_unopened(handler, arrival, error),
        };
        // By reference: a packet moved right after it was parsed stalls on its own stores.
        let Ok((packet, rest)) = &Packet::parse(inside) else { return false };
        if let Packet::Setup(header) = packet {
            self.admit_for(handler, now, arrival, header, rest);
            return true;
        }
        handler.handle_packet(now, arrival, packet, rest)
    }

    /// Handles a datagram that came to a port which only sends: the reset of a peer that no longer knows a connection.
    /// Returns `false` if it is anything else.
    pub fn ingest_reset<'d>(
        &mut self,
        handler: &mut impl PacketHandler<'d>,
        now: Instant,
        arrival: &Arrival,
        datagram: &[u8],
    ) -> bool {
        match &Packet::parse(datagram) {
            Ok((Packet::Setup(header), rest)) if header.kind == SetupKind::Reset => {
                self.admit_for(handler, now, arrival, header, rest);
                true
            }
            _ => false,
        }
    }

    fn admit_for<'d>(
        &mut self,
        handler: &mut impl PacketHandler<'d>,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        rest: &[u8],
    ) {
        let named = handler.classify_setup(now, arrival, header);
        let admission = self.admit(arrival.from, header, rest, named);
        handler.handle_admission(now, arrival, header, admission);
    }
}

/// Answers the sender of a datagram that was not opened, if it was sealed under unknown keys. Returns `false` if the
/// datagram is no packet.
#[cold]
fn drop_unopened<'d>(
    handler: &mut impl PacketHandler<'d>,
    arrival: &Arrival,
    error: OpenError,
) -> bool {
    if let OpenError::UnknownKey { connection, iv } = error {
        handler.handle_unknown_encrypted(arrival.from, connection, iv);
    }
    !matches!(error, OpenError::Header(_) | OpenError::TooShort { .. })
}

#[cfg(test)]
mod tests {
    use weft_wire::{DataHeader, SetupParameters, U4};

    use super::*;
    use crate::SealConfig;

    /// The packets passed to an engine: the payloads, the kinds of set-up packets, and the connections of packets under
    /// unknown keys.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Received<'d> {
        payloads: Vec<&'d [u8]>,
        setups: Vec<SetupKind>,
        unknown: Vec<ConnectionId>,
    }

    impl<'d> PacketHandler<'d> for Received<'d> {
        fn handle_packet(&mut self, _: Instant, _: &Arrival, _: &Packet, rest: &'d [u8]) -> bool {
            self.payloads.push(rest);
            !rest.is_empty()
        }

        fn classify_setup(&self, _: Instant, _: &Arrival, _: &SetupHeader) -> SetupClass {
            SetupClass::NoConnection
        }

        fn handle_admission(
            &mut self,
            _: Instant,
            _: &Arrival,
            header: &SetupHeader,
            _: Admission,
        ) {
            self.setups.push(header.kind);
        }

        fn handle_unknown_encrypted(&mut self, _: SocketAddr, connection: ConnectionId, _: u32) {
            self.unknown.push(connection);
        }
    }

    fn arrival() -> Arrival {
        Arrival {
            from: ([192, 0, 2, 1], 4791).into(),
            received_at: Instant::EPOCH,
            congestion_experienced: false,
            hops: 0,
        }
    }

    fn bytes(packet: &Packet, payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; packet.len()];
        packet.emit(&mut datagram);
        datagram.extend_from_slice(payload);
        datagram
    }

    fn setup(kind: SetupKind) -> Packet {
        let terms = (kind == SetupKind::Request).then(SetupParameters::default);
        let (version, cc_type) = (U4::truncate(1), U4::truncate(0));
        let (local_cid, destination_cid) = (9, 3);
        Packet::Setup(SetupHeader {
            kind,
            version,
            cc_type,
            thread_id: 0,
            reason: 0,
            local_cid,
            destination_cid,
            terms,
        })
    }

    #[test]
    fn a_datagram_reaches_the_function_for_its_kind() {
        let mut seals = Seals::new(SealConfig::off(), [7; 32]);
        let data = Packet::data(DataHeader::default(), None);
        let mut datagrams = [
            bytes(&data, b"payload"),
            bytes(&data, b""),
            bytes(&setup(SetupKind::Request), b""),
            b"\xff no packet".to_vec(),
            vec![],
            // A packet sealed under unknown keys.
            [&[weft_wire::SealedHeader::PACKET_TYPE][..], &[0; 60]].concat(),
        ];
        let mut received = Received::default();
        let took = datagrams
            .each_mut()
            .map(|datagram| seals.ingest(&mut received, Instant::EPOCH, &arrival(), datagram));
        // For packets other than set-up, the result is the engine's.
        assert_eq!(took, [true, false, true, false, false, true]);
        assert_eq!(received.payloads, [&b"payload"[..], b""]);
        assert_eq!(received.setups, [SetupKind::Request]);
        assert_eq!(received.unknown.len(), 1);
    }

    #[test]
    fn only_a_reset_is_accepted_at_a_port_that_only_sends() {
        let mut seals = Seals::new(SealConfig::off(), [7; 32]);
        let data = Packet::data(DataHeader::default(), None);
        let datagrams = [
            bytes(&setup(SetupKind::Reset), b""),
            bytes(&setup(SetupKind::Request), b""),
            bytes(&data, b"x"),
        ];
        let mut received = Received::default();
        let took = datagrams.each_ref().map(|datagram| {
            seals.ingest_reset(&mut received, Instant::EPOCH, &arrival(), datagram)
        });
        assert_eq!(took, [true, false, false]);
        assert_eq!(received, Received { setups: vec![SetupKind::Reset], ..Received::default() });
    }
}
