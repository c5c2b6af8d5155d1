//! New queue pairs for channels whose own broke (`channel/renewal.rs`).

use weft_units::Instant;
use weft_wire::{ChannelOffer, FrameHeader, FrameKind};

use super::{ChannelId, Context, Shared, WorkId};
use crate::channel::{Channel, Outgoing, Renewal};
use crate::event::CloseReason;
use crate::verbs::{DeviceError, Slice, Verbs, Work};

impl<V: Verbs> Context<V> {
    /// Handles the peer's offer of a new queue pair, and begins an attempt to return to RDMA if one is due.
    pub(super) fn renew(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id).filter(|it| it.stream.rdma_lost) else {
            return;
        };
        let received = channel.back.received.take();
        let is_due = channel.back.due.is_some_and(|due| due <= now);
        if received.is_none() && !is_due {
            return;
        }
        if is_due {
            channel.schedule_renewal(now, &self.shared.config);
        }
        let outcome = match received {
            Some(peer) if self.channels[id].begins_renewal() => self.test_new_qp(now, id, &peer),
            Some(peer) => self.answer_renewal(now, id, &peer),
            None => self.begin_renewal(now, id),
        };
        if let Err(reason) = outcome {
            self.fail(now, id, reason);
        }
        self.reschedule(id);
    }

    /// Offers the peer a new queue pair.
    fn begin_renewal(&mut self, now: Instant, id: ChannelId) -> Result<(), CloseReason> {
        let attempt = self.channels[id].offer.attempt.wrapping_add(1);
        // A device without room may have some at the next attempt.
        if self.replace_qp(now, id, attempt).is_err() {
            return Ok(());
        }
        self.set_renewal(id, Renewal::Offered);
        self.send_offer(now, id)
    }

    /// Connects the new queue pair with the peer's, and tests the connection.
    fn test_new_qp(
        &mut self,
        now: Instant,
        id: ChannelId,
        peer: &ChannelOffer,
    ) -> Result<(), CloseReason> {
        let channel = &self.channels[id];
        if channel.back.renewal != Renewal::Offered || peer.attempt != channel.offer.attempt {
            // An answer to an offer that was withdrawn.
            return Ok(());
        }
        let tested = self.connect_new_qp(now, id, peer).and_then(|()| {
            self.shared.current = id;
            let work_id = self.shared.work_id(WorkId::Probe);
            let qp = self.channels[id].qp;
            self.shared.verbs.post_send(now, qp, work_id, Work::Probe, true)
        });
        match tested {
            Ok(()) => self.set_renewal(id, Renewal::Testing),
            Err(_) => self.discard_qp(now, id),
        }
        Ok(())
    }

    /// Answers the peer's offer with that of a connected queue pair.
    fn answer_renewal(
        &mut self,
        now: Instant,
        id: ChannelId,
        peer: &ChannelOffer,
    ) -> Result<(), CloseReason> {
        let replaced = self.replace_qp(now, id, peer.attempt);
        let connected = replaced.and_then(|()| self.connect_new_qp(now, id, peer));
        if connected.is_err() {
            // Without an answer the peer tries again later.
            self.discard_qp(now, id);
            return Ok(());
        }
        self.set_renewal(id, Renewal::Ready);
        self.send_offer(now, id)
    }

    /// Gives the channel a new queue pair with receive requests, in place of one that was not used.
    fn replace_qp(&mut self, now: Instant, id: ChannelId, attempt: u8) -> Result<(), DeviceError> {
        self.discard_qp(now, id);
        let qp = self.take_qp(now)?;
        self.forget_qp(id, self.channels[id].qp);
        let channel = self.channels.get_mut(id).expect("the caller's");
        channel.adopt_qp(qp, attempt);
        channel.back.renewal = Renewal::Offered;
        if channel.offer.shared {
            self.by_qp.insert(qp, id);
        }
        self.shared.current = id;
        match channel.post_receives(&mut self.shared) {
            Err(CloseReason::Device(refused)) => {
                self.discard_qp(now, id);
                Err(refused)
            }
            _ => Ok(()),
        }
    }

    fn connect_new_qp(
        &mut self,
        now: Instant,
        id: ChannelId,
        peer: &ChannelOffer,
    ) -> Result<(), DeviceError> {
        let channel = self.channels.get_mut(id).expect("the caller's");
        channel.apply_new_offer(peer);
        let psn = channel.offer.psn.into();
        self.shared.verbs.connect_qp(now, channel.qp, psn, &channel.peer)
    }

    /// Discards a new queue pair that was not used.
    pub(super) fn discard_qp(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        if core::mem::take(&mut channel.back.renewal) == Renewal::Idle {
            return;
        }
        let (qp, posted) = (channel.qp, core::mem::take(&mut channel.posted));
        self.forget_qp(id, qp);
        // It is reset first, so that the device no longer uses the memory.
        self.return_qp(now, qp);
        posted.into_iter().for_each(|block| self.shared.memory.release(now, block));
    }

    fn set_renewal(&mut self, id: ChannelId, to: Renewal) {
        if let Some(channel) = self.channels.get_mut(id) {
            channel.back.renewal = to;
        }
    }

    fn send_offer(&mut self, now: Instant, id: ChannelId) -> Result<(), CloseReason> {
        let channel = self.channels.get_mut(id).expect("the caller's");
        if !channel.tx.reserve_open() || !channel.may_send() {
            // Without it the peer tries again later.
            return Ok(());
        }
        self.shared.current = id;
        let Ok(frame) = self.shared.offer(&channel.offer) else {
            // There may be memory at the next attempt.
            self.discard_qp(now, id);
            return Ok(());
        };
        channel.launch(now, &mut self.shared, frame)
    }
}

impl<V: Verbs> Shared<V> {
    /// Returns a frame with an offer.
    fn offer(&mut self, offer: &ChannelOffer) -> Result<Outgoing, DeviceError> {
        let frame = self.control(FrameKind::Offer)?;
        let length = u32::try_from(ChannelOffer::LEN).expect("an offer is short");
        let header = u32::try_from(FrameHeader::LEN).expect("a header is short");
        let room = frame.frame.slice();
        let place = Slice { address: room.address + u64::from(header), len: length, ..room };
        self.verbs.bytes_mut(place).copy_from_slice(&offer.emit());
        Ok(Outgoing { length, ..frame })
    }
}

impl Channel {
    /// Handles the successful end of a probe: of the test of a new queue pair, of a measurement, or of a silent peer.
    ///
    /// # Errors
    /// The errors of the return to RDMA.
    pub(crate) fn probe_completed<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &Shared<V>,
    ) -> Result<(), CloseReason> {
        if self.back.renewal == Renewal::Testing {
            self.return_to_rdma(now)?;
            self.stream.wanted = shared.config.carrier;
        } else if !self.measured(now, shared.poll_gap, &shared.config) {
            self.probing = false;
        }
        Ok(())
    }
}
