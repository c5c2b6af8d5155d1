//! The socket to a collector.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use serde::{Deserialize, Serialize};
use weft_units::Instant;
use weft_vpc::{PortFlow, PortId};

use super::ipfix;
use super::settings::FlowLogSettings;
use crate::OpenError;

/// The socket to a collector, and the messages and records sent to it.
#[derive(Debug)]
pub(crate) struct FlowExporter {
    socket: UdpSocket,
    is_connected: bool,
    encoder: ipfix::Encoder,
    /// The names of ports, those that are gone while records of them are left.
    pub(super) names: BTreeMap<PortId, String>,
    pub(super) status: FlowLogStatus,
}

/// The state of the flow logs' export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowLogStatus {
    /// The collector.
    pub collector: SocketAddr,
    /// Number of records sent.
    pub sent: u64,
    /// Number of records that could not be sent.
    pub unsent: u64,
    /// Number of frames that no record contains, because their port had more flows in an interval than `max-flows`.
    pub unrecorded: u64,
    /// The last error of the socket: a collector that is not there, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl FlowExporter {
    /// Opens the socket, if there are flow logs.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub(crate) fn open(
        settings: Option<&FlowLogSettings>,
        mtu: u16,
    ) -> Result<Option<Self>, OpenError> {
        let Some(&FlowLogSettings { collector, .. }) = settings else { return Ok(None) };
        let any = match collector {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0))
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .map_err(|cause| OpenError::FlowLog { collector, cause })?;
        let status = FlowLogStatus { collector, sent: 0, unsent: 0, unrecorded: 0, error: None };
        let encoder = ipfix::Encoder::new(mtu);
        Ok(Some(Self { socket, is_connected: false, encoder, names: BTreeMap::new(), status }))
    }

    /// Sends records to the collector. `lead` is what the wall clock shows more than `now`, nanoseconds.
    pub(super) fn send(&mut self, flows: &[PortFlow], now: Instant, lead: u64) {
        let names = &self.names;
        let name = |port| names.get(&port).map_or("", String::as_str);
        for message in self.encoder.messages(flows, name, now, lead) {
            let records = u64::from(message.records);
            match self.send_message(&message.bytes) {
                Ok(()) => self.status.sent += records,
                Err(error) => {
                    self.status.unsent += records;
                    self.report(&error);
                }
            }
        }
    }

    /// Sends a message. Only a connected socket learns that nobody listens, and it cannot connect while there is no route.
    fn send_message(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_connected {
            self.socket.connect(self.status.collector)?;
            self.is_connected = true;
        }
        self.socket.send(bytes).map(drop)
    }

    /// Keeps an error for the status, and logs it unless it is the last one again.
    fn report(&mut self, error: &io::Error) {
        let text = error.to_string();
        if self.status.error.as_ref() != Some(&text) {
            tracing::warn!(collector = %self.status.collector, %error, "flow log");
            self.status.error = Some(text);
        }
    }
}
