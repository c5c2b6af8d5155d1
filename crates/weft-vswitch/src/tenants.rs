//! The tenants' ports of a thread, through which the switch reaches them.

use std::collections::BTreeMap;
use std::{fmt, io};

use weft_ports::{Port, PortError};
use weft_trace::pcapng::Direction;
use weft_udp::Clock;
use weft_units::{Duration, Instant, Probability, Rng, Seed};
use weft_vpc::{Frame, PortId, Reading, Slot, Staging, Tenants, Token, Turn};
use weft_wire::VirtioNetHeader;

use crate::capture::Capture;
use crate::mirror::Mirrors;

/// Ports by number, and those of them with work that their tenants have not seen yet.
#[derive(Default)]
pub(crate) struct Ports {
    ports: BTreeMap<PortId, Box<dyn Port>>,
    unflushed: Vec<PortId>,
    loss_injectors: BTreeMap<PortId, LossInjector>,
    captures: BTreeMap<PortId, Capture>,
    pub(crate) mirrors: Mirrors,
    error_log: ErrorLog,
}

/// The loss of frames on purpose between the switch and a tenant, where a full queue would lose them.
#[derive(Debug)]
struct LossInjector {
    loss: Probability,
    rng: Rng,
}

impl LossInjector {
    fn draw(&mut self) -> bool {
        self.rng.below(1_000_000) < u64::from(self.loss.millionths())
    }
}

/// A log of errors at ports, which have counted them and continue. It writes at most one line per port and second,
/// so that a tenant with an error in every packet does not fill the disk.
#[derive(Debug, Default)]
struct ErrorLog {
    quiet_until: BTreeMap<PortId, Instant>,
}

impl ErrorLog {
    fn log_error(&mut self, port: PortId, result: Result<(), PortError>) {
        let Err(error) = result else { return };
        let now = Clock.now();
        if self.quiet_until.get(&port).is_none_or(|&until| until <= now) {
            self.quiet_until.insert(port, now + Duration::from_secs(1));
            tracing::warn!(port = port.0, %error, "port");
        }
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.ports.keys()).finish()
    }
}

impl Ports {
    pub(crate) fn insert(&mut self, id: PortId, port: Box<dyn Port>) {
        self.ports.insert(id, port);
    }

    pub(crate) fn remove(&mut self, id: PortId) -> Option<Box<dyn Port>> {
        self.loss_injectors.remove(&id);
        self.captures.remove(&id);
        self.mirrors.set(id, None);
        self.ports.remove(&id)
    }

    /// Starts a capture of a port, or stops it.
    ///
    /// # Errors
    /// The last part of the previous capture could not be written.
    pub(crate) fn capture(&mut self, id: PortId, capture: Option<Capture>) -> io::Result<()> {
        let before = match capture {
            Some(capture) => self.captures.insert(id, capture),
            None => self.captures.remove(&id),
        };
        before.map_or(Ok(()), |mut before| before.flush())
    }

    /// Writes a frame that passes a port to its capture. A capture that cannot be written ends.
    pub(crate) fn record(&mut self, id: PortId, direction: Direction, head: &[u8], len: u32) {
        self.write(id, |capture| capture.record(direction, head, len));
    }

    /// Copies a frame of `len` bytes that a tenant sent, if the port has a mirror for it.
    pub(crate) fn mirror(&mut self, id: PortId, token: Token, len: u32) {
        if self.mirrors.copies_sent(id) {
            let Self { ports, mirrors, error_log, .. } = self;
            let Some(port) = ports.get_mut(&id) else { return };
            mirrors.copy(id, len, |frame| {
                error_log.log_error(id, port.read(token, 0, frame, Reading::First));
            });
        }
    }

    /// Writes buffered records of all captures to their files.
    pub(crate) fn flush_captures(&mut self) {
        for id in self.captures.keys().copied().collect::<Vec<_>>() {
            self.write(id, Capture::flush);
        }
    }

    /// Runs `act` on a port's capture, and ends the capture if `act` fails.
    fn write(&mut self, id: PortId, act: impl FnOnce(&mut Capture) -> io::Result<()>) {
        let Some(capture) = self.captures.get_mut(&id) else { return };
        if let Err(error) = act(capture) {
            let file = capture.file().display();
            tracing::warn!(port = id.0, %file, %error, "the capture ends here");
            self.captures.remove(&id);
        }
    }

    /// Drops frames for a tenant from now on with the probability `loss`; `seed` seeds the random numbers.
    pub(crate) fn lose(&mut self, id: PortId, loss: Probability, seed: Seed) {
        self.loss_injectors.remove(&id);
        if loss != Probability::NONE {
            self.loss_injectors.insert(id, LossInjector { loss, rng: seed.rng() });
        }
    }

    /// Returns `true` if a tenant is connected to a port.
    pub(crate) fn is_up(&self, id: PortId) -> bool {
        self.ports.get(&id).is_some_and(|port| port.is_up())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PortId, &dyn Port)> {
        self.ports.iter().map(|(&id, port)| (id, &**port))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Box<dyn Port>)> {
        self.ports.iter_mut().map(|(&id, port)| (id, port))
    }

    /// Runs `action` on a port and logs its error.
    pub(crate) fn with<T: Default>(
        &mut self,
        id: PortId,
        action: impl FnOnce(&mut dyn Port) -> Result<T, PortError>,
    ) -> T {
        let Some(port) = self.ports.get_mut(&id) else { return T::default() };
        match action(&mut **port) {
            Ok(done) => done,
            Err(error) => {
                self.error_log.log_error(id, Err(error));
                T::default()
            }
        }
    }

    pub(crate) fn ids(&self) -> Vec<PortId> {
        self.ports.keys().copied().collect()
    }

    /// Makes the work since the last call visible to the tenants.
    pub(crate) fn flush(&mut self) {
        self.unflushed.sort_unstable();
        self.unflushed.dedup();
        for id in self.unflushed.drain(..) {
            if let Some(port) = self.ports.get_mut(&id) {
                self.error_log.log_error(id, port.flush());
            }
        }
    }

    /// Returns a port, and marks it as one to be flushed.
    fn touch(&mut self, id: PortId) -> Option<&mut Box<dyn Port>> {
        if self.unflushed.last() != Some(&id) {
            self.unflushed.push(id);
        }
        self.ports.get_mut(&id)
    }
}

impl Tenants for Ports {
    fn read(&mut self, port: PortId, token: Token, offset: u32, out: &mut [u8], reading: Reading) {
        match self.ports.get_mut(&port) {
            Some(known) => {
                self.error_log.log_error(port, known.read(token, offset, out, reading));
            }
            None => out.fill(0),
        }
    }

    fn release(&mut self, port: PortId, token: Token) {
        if let Some(port) = self.touch(port) {
            port.release(token);
        }
    }

    fn claim(
        &mut self,
        port: PortId,
        len: u32,
        turn: Turn,
        staging: Staging,
        head: &[u8],
    ) -> Option<Slot> {
        let known = self.ports.get_mut(&port)?;
        if self.loss_injectors.get_mut(&port).is_some_and(LossInjector::draw) {
            return None;
        }
        let slot = known.claim(len, turn, staging, head)?;
        if let Some(capture) = self.captures.get_mut(&port) {
            capture.start_frame(slot, len);
        }
        self.mirrors.start_frame(port, slot, len);
        Some(slot)
    }

    fn place(&mut self, port: PortId, slot: Slot, offset: u32, bytes: &[u8]) {
        if let Some(known) = self.ports.get_mut(&port) {
            self.error_log.log_error(port, known.place(slot, offset, bytes));
        }
    }

    fn peek(&mut self, port: PortId, slot: Slot, out: &mut [u8]) -> usize {
        self.ports.get_mut(&port).map_or(0, |port| port.peek(slot, out))
    }

    fn complete(&mut self, port: PortId, slot: Slot) {
        if let Some(len) = self.captures.get_mut(&port).and_then(|capture| capture.end_frame(slot))
        {
            let mut head = [0; VirtioNetHeader::LEN + Frame::MIN_PARSE_BYTES];
            let known = self.peek(port, slot, &mut head);
            self.record(port, Direction::In, &head[..known], len);
        }
        if let Some(len) = self.mirrors.end_frame(port, slot) {
            let Self { ports, mirrors, .. } = self;
            if let Some(known) = ports.get_mut(&port) {
                mirrors.copy(port, len, |frame| {
                    known.peek(slot, frame);
                });
            }
        }
        if let Some(port) = self.touch(port) {
            port.complete(slot);
        }
    }

    fn cancel(&mut self, port: PortId, slot: Slot) {
        if let Some(capture) = self.captures.get_mut(&port) {
            capture.end_frame(slot);
        }
        self.mirrors.end_frame(port, slot);
        if let Some(port) = self.touch(port) {
            port.cancel(slot);
        }
    }
}
