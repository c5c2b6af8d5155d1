//! The sFlow socket and its datagrams.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};
use weft_guard::is_exposed;
use weft_units::Duration;

use super::Daemon;
use crate::{CollectedItem, Inventory, RouterEntry, SteerConfig, SteerError};

/// Maximum time to receive datagrams before other work.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(20);

/// Opens the socket; with an interface, it receives only datagrams from that interface.
pub(super) fn open(at: SocketAddr, interface: Option<&str>) -> Result<UdpSocket, SteerError> {
    let open = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
        if let Some(name) = interface {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        socket.bind(&at.into())?;
        socket
            .set_read_timeout(Some(std::time::Duration::from_nanos(RECEIVE_TIMEOUT.as_nanos())))?;
        Ok(socket.into())
    };
    let by = interface.map(|name| format!(" of interface {name}")).unwrap_or_default();
    open().map_err(SteerError::io(format!("listen for sFlow at {at}{by}")))
}

/// Warns if routers send from other hosts but the socket accepts only local datagrams.
pub(super) fn warn_if_unreachable(config: &SteerConfig, inventory: &Inventory) {
    let at = config.listen();
    let elsewhere = |router: &&RouterEntry| router.sources().any(is_exposed);
    let router = inventory.routers.iter().find(elsewhere).filter(|_| !is_exposed(at.ip()));
    if let Some(router) = router {
        tracing::warn!(
            %at,
            router = router.name,
            "sFlow is taken from this host only: set `management` to this host's address in the routers' network"
        );
    }
}

impl Daemon {
    /// Receives datagrams until there are none, or until other work must run.
    pub(super) fn receive(&mut self) -> Result<(), SteerError> {
        let (mut datagram, mut received) = ([0; 65_536], vec![]);
        let deadline = self.clock.now() + RECEIVE_TIMEOUT;
        while self.clock.now() < deadline {
            let (length, from) = match self.socket.recv_from(&mut datagram) {
                Ok(datagram) => datagram,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    break;
                }
                Err(error) => return Err(SteerError::io("listen for sFlow")(error)),
            };
            let now = self.clock.now();
            let fabric = self.controller.fabric();
            self.collector.ingest(&datagram[..length], from.ip(), now, fabric, &mut received);
            self.pass_on(&mut received);
        }
        Ok(())
    }

    /// Passes received items to the engine.
    pub(super) fn pass_on(&mut self, received: &mut Vec<CollectedItem>) {
        for it in received.drain(..) {
            match it {
                CollectedItem::Report(report) => self.controller.handle_report(report),
                CollectedItem::Sample(sample) => self.controller.handle_sample(sample),
            }
        }
    }
}
