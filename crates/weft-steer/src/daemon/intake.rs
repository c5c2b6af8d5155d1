//! sFlow's socket, and what comes in by it.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};
use weft_guard::is_exposed;
use weft_units::Duration;

use super::Daemon;
use crate::{Heard, Inventory, RouterEntry, SteerConfig, SteerError};

/// For how long datagrams are listened for before anything else has its turn.
const WAIT: Duration = Duration::from_millis(20);

/// Opens the socket; with an interface, only what comes in by it is taken.
pub(super) fn open(at: SocketAddr, interface: Option<&str>) -> Result<UdpSocket, SteerError> {
    let open = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
        if let Some(name) = interface {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        socket.bind(&at.into())?;
        socket.set_read_timeout(Some(std::time::Duration::from_nanos(WAIT.as_nanos())))?;
        Ok(socket.into())
    };
    let by = interface.map(|name| format!(" of interface {name}")).unwrap_or_default();
    open().map_err(SteerError::io(format!("listen for sFlow at {at}{by}")))
}

/// Warns if routers send from other hosts and nothing of that can arrive.
pub(super) fn warn_of_deafness(config: &SteerConfig, inventory: &Inventory) {
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
    /// Takes datagrams until there are none, or until others must have their turn.
    pub(super) fn listen(&mut self) -> Result<(), SteerError> {
        let (mut datagram, mut heard) = ([0; 65_536], vec![]);
        let give_up = self.clock.now() + WAIT;
        while self.clock.now() < give_up {
            let (length, from) = match self.socket.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    break;
                }
                Err(error) => return Err(SteerError::io("listen for sFlow")(error)),
            };
            let now = self.clock.now();
            let fabric = self.controller.fabric();
            self.collector.take(&datagram[..length], from.ip(), now, fabric, &mut heard);
            for it in heard.drain(..) {
                match it {
                    Heard::Report(report) => self.controller.handle_report(report),
                    Heard::Sample(sample) => self.controller.handle_sample(sample),
                }
            }
        }
        Ok(())
    }
}
