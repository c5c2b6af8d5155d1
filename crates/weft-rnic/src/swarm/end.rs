//! Queue pairs of the simulated network, and their connection.

use crate::*;

use super::network::{Host, Network, address};

/// A queue pair with its objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask for it"))]
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask for it"))]
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePairNumber,
    pub(crate) owner: Owner,
    /// The key of all of the owner's memory, with every right, at address [`BASE`].
    pub(crate) key: u32,
}

/// The first address of an end's memory in work requests.
pub(crate) const BASE: u64 = 0x7000_0000;
/// Bytes of an end's memory.
pub(crate) const LENGTH: u64 = 64 * 1024;

/// Returns all rights of regions except zero-based addresses and relaxed ordering.
pub(crate) fn every_right() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
}

pub(crate) fn request(
    domain: ProtectionDomain,
    cq: CompletionQueue,
    service: Service,
) -> QueuePairRequest {
    QueuePairRequest {
        domain,
        service,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        max_send: 64,
        max_receive: 64,
        max_send_sge: 8,
        max_receive_sge: 8,
        max_inline: 64,
        signal_all: false,
    }
}

impl Network {
    pub(crate) fn modify(&mut self, end: &End, attributes: &Attributes) {
        let now = self.now;
        self.hosts[end.host].device.modify_qp(now, end.qp, attributes).unwrap();
    }

    fn reliable(&self, end: &End) -> bool {
        self.hosts[end.host].device.service(end.qp) == Some(Service::ReliableConnected)
    }

    pub(crate) fn ready_to_receive(
        &mut self,
        end: &End,
        peer: &End,
        tweak: impl Fn(&mut Attributes),
    ) {
        self.modify(
            end,
            &Attributes {
                state: Some(State::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(every_right()),
                ..Attributes::default()
            },
        );
        let reliable = self.reliable(end);
        let mut attributes = Attributes {
            state: Some(State::ReadyToReceive),
            destination: Some(address(peer.host)),
            path_mtu: Some(1024),
            dest_qp: Some(peer.qp.0),
            rq_psn: Some(0xff_fff0),
            max_dest_rd_atomic: reliable.then_some(4),
            min_rnr_timer: reliable.then_some(1),
            ..Attributes::default()
        };
        tweak(&mut attributes);
        self.modify(end, &attributes);
    }

    pub(crate) fn ready_to_send(&mut self, end: &End, tweak: impl Fn(&mut Attributes)) {
        let reliable = self.reliable(end);
        let mut attributes = Attributes {
            state: Some(State::ReadyToSend),
            sq_psn: Some(0xff_fff0),
            timeout: reliable.then_some(8),
            retry_count: reliable.then_some(3),
            rnr_retry: reliable.then_some(7),
            max_rd_atomic: reliable.then_some(4),
            ..Attributes::default()
        };
        tweak(&mut attributes);
        self.modify(end, &attributes);
    }

    /// Posts a request, and executes it or sends its packet if that is possible in the same call.
    pub(crate) fn post(&mut self, end: &End, request: &SendRequest<'_>) {
        if self.execute_at_once(end, request) {
            return;
        }
        let mut sent = None;
        let Host { device, memory, .. } = &mut self.hosts[end.host];
        let posted =
            device.post_send_and_transmit(self.now, end.qp, request, |transmit, source| {
                sent = Some((*transmit, memory.payload_of(transmit, source)));
            });
        posted.unwrap();
        if let Some((transmit, payload)) = sent {
            self.put_on_wire(end.host, &transmit, &payload);
        }
    }
}

impl End {
    /// Returns an entry for a range of its memory.
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: BASE + offset, length, lkey: self.key }
    }

    /// Returns a location in its memory for peers.
    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { address: BASE + offset, rkey: self.key }
    }
}
