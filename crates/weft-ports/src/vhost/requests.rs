//! The action of each request of a front end (QEMU's docs/interop/vhost-user.rst).

use std::fs::File;
use std::sync::Arc;

use vhost::vhost_user::VhostUserVirtioFeatures;
use vhost::vhost_user::message::FrontendReq;
use virtio_bindings::virtio_config::VIRTIO_F_RING_PACKED;

use super::body::{Body, event, table};
use super::device::Device;
use super::fault::{FrontEndFault, MemoryFault};
use super::features::{offered, offered_protocol, terms};
use super::log::DirtyLog;
use super::memory::Memory;
use super::message::Message;
use crate::readiness::Readiness;

impl Device {
    /// Executes a request. Returns its answer, if that is more than success.
    ///
    /// # Errors
    /// The fault of the front end's request.
    pub(super) fn handle(
        &mut self,
        message: Message,
        readiness: &Readiness,
    ) -> Result<Option<Vec<u8>>, FrontEndFault> {
        let request = FrontendReq::try_from(message.request);
        let body = Body(&message.body);
        let mut files = message.files.into_iter();
        let number = |value: u64| Ok(Some(value.to_ne_bytes().to_vec()));
        match request {
            Ok(FrontendReq::GET_FEATURES) => return number(offered(self.max_pairs)),
            Ok(FrontendReq::GET_PROTOCOL_FEATURES) => return number(offered_protocol()),
            Ok(FrontendReq::GET_QUEUE_NUM) => return number(self.max_pairs as u64),
            Ok(FrontendReq::GET_MAX_MEM_SLOTS) => return number(self.max_regions as u64),
            Ok(FrontendReq::GET_VRING_BASE) => {
                let (queue, _) = self.queue_of(&body)?;
                self.stop(queue);
                let base = [body.u32(0)?, self.ring(queue).base()];
                self.update();
                return Ok(Some(base.map(u32::to_ne_bytes).concat()));
            }
            Ok(FrontendReq::SET_FEATURES) => self.set_features(body.u64(0)?)?,
            Ok(FrontendReq::SET_PROTOCOL_FEATURES) => {
                self.protocol = body.u64(0)? & offered_protocol();
            }
            Ok(FrontendReq::RESET_OWNER | FrontendReq::RESET_DEVICE) => self.reset(readiness),
            Ok(FrontendReq::SET_MEM_TABLE) => {
                self.memory = Memory::map(table(&body, files)?, self.max_regions)?;
            }
            Ok(FrontendReq::ADD_MEM_REG) => {
                let file = files.next().ok_or(MemoryFault::NoDescriptor)?;
                self.memory.add(&body.region(8)?, File::from(file), self.max_regions)?;
            }
            Ok(FrontendReq::REM_MEM_REG) => self.memory.remove(&body.region(8)?)?,
            Ok(FrontendReq::SET_VRING_NUM) => {
                let (queue, size) = self.queue_of(&body)?;
                self.stopped(queue)?.set_size(size)?;
            }
            Ok(FrontendReq::SET_VRING_BASE) => {
                let (queue, base) = self.queue_of(&body)?;
                self.stopped(queue)?.set_base(base)?;
            }
            Ok(FrontendReq::SET_VRING_ADDR) => {
                let (queue, _) = self.queue_of(&body)?;
                let (table, used, offered) = (body.u64(8)?, body.u64(16)?, body.u64(24)?);
                self.ring(queue).set_places(table, offered, used);
            }
            Ok(FrontendReq::SET_VRING_ENABLE) => {
                let (queue, enable) = self.queue_of(&body)?;
                self.set_enabled(queue, enable != 0);
            }
            Ok(FrontendReq::SET_VRING_KICK) => {
                let (queue, file) = event(&body, files.next())?;
                let queue = self.queue(queue)?;
                let file = file.ok_or(FrontEndFault::NoKicks)?;
                self.set_kick(queue, file, readiness)?;
            }
            Ok(FrontendReq::SET_VRING_CALL) => {
                let (queue, file) = event(&body, files.next())?;
                let queue = self.queue(queue)?;
                let ring = self.ring(queue);
                ring.call = file;
                // Interrupts that the old descriptor no longer carried would be lost.
                ring.interrupt();
            }
            Ok(FrontendReq::SET_VRING_ERR) => {
                let (queue, file) = event(&body, files.next())?;
                let queue = self.queue(queue)?;
                self.ring(queue).error = file;
            }
            Ok(FrontendReq::SET_LOG_BASE) => {
                let file = File::from(files.next().ok_or(MemoryFault::NoDescriptor)?);
                self.log = Some(Arc::new(DirtyLog::map(file, body.u64(0)?, body.u64(8)?)?));
                self.update();
                // The front end waits for an answer before it starts to log.
                return number(0);
            }
            Ok(FrontendReq::SEND_RARP) => self.announces = true,
            Ok(FrontendReq::SET_LOG_FD | FrontendReq::SET_OWNER | FrontendReq::NET_SET_MTU) => {}
            Ok(other) => return Err(FrontEndFault::NotOffered(format!("{other:?}"))),
            Err(_) => return Err(FrontEndFault::UnknownRequest(message.request)),
        }
        self.update();
        Ok(None)
    }

    /// Returns the queue that a request names, and the integer after it.
    fn queue_of(&mut self, body: &Body<'_>) -> Result<(usize, u32), FrontEndFault> {
        let (queue, value) = body.queue()?;
        Ok((self.queue(queue)?, value))
    }

    fn set_features(&mut self, features: u64) -> Result<(), FrontEndFault> {
        if features & !offered(self.max_pairs) != 0 {
            return Err(FrontEndFault::Features(features));
        }
        let packed = features & 1 << VIRTIO_F_RING_PACKED != 0;
        for ring in self.pairs.iter_mut().flat_map(|pair| &mut pair.rings) {
            ring.set_packed(packed)?;
        }
        self.features = features;
        self.terms = terms(features);
        // If a front end does not negotiate protocol features, its rings are enabled from the
        // start.
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            for ring in self.pairs.iter_mut().flat_map(|pair| &mut pair.rings) {
                ring.enabled = true;
            }
        }
        Ok(())
    }
}
