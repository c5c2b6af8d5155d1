//! The attributes of a queue pair, and those that each transition between states requires and accepts (IBTA volume 1,
//! chapter 10, and `ibv_modify_qp(3)`).

use core::net::SocketAddr;

use super::{Marking, Service, State};
use crate::{Access, VerbsError};

/// The attributes of a queue pair (`struct ibv_qp_attr`); the fields that are `Some` form the mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Attributes {
    /// The new state; the current state changes attributes only.
    pub state: Option<State>,
    /// The state that the queue pair must be in.
    pub current_state: Option<State>,
    /// `true` to request [`Event::SendQueueDrained`](crate::Event::SendQueueDrained).
    pub drained_event: Option<bool>,
    /// The rights of the peer.
    pub access: Option<Access>,
    /// Index into the partition table, which has one entry.
    pub pkey_index: Option<u16>,
    /// The port; the device has one.
    pub port: Option<u8>,
    /// The Q_Key that incoming datagrams must have.
    pub qkey: Option<u32>,
    /// The address vector: the address of the peer's host.
    pub destination: Option<SocketAddr>,
    /// The labels of its packets, which the address vector sets with the destination. A queue pair that may send accepts
    /// them alone, too: then they hold from the next packet on.
    pub marking: Option<Marking>,
    /// The path MTU in bytes: 256 to 4096, a power of two. Only stored for queries: the transport negotiates its own.
    pub path_mtu: Option<u16>,
    /// The exponent of the local ACK timeout, 4.096 us times a power of two, after which a connection attempt is
    /// retried; zero counts as 14. With `retry_count` it gives the time for which a peer may be silent before requests
    /// fail, if that is longer than the transport's `peer_timeout`; without end if it is zero. It gives the time after which
    /// requests fail once the peer has closed the connection or exited, too, then 2 s at most. The transport recovers losses.
    pub timeout: Option<u8>,
    /// Number of retries before requests to an unresponsive peer fail.
    pub retry_count: Option<u8>,
    /// RNR retries; 7 means without limit.
    pub rnr_retry: Option<u8>,
    /// The peer's first PSN.
    pub rq_psn: Option<u32>,
    /// The first PSN of this queue pair.
    pub sq_psn: Option<u32>,
    /// Number of READs and atomics in flight.
    pub max_rd_atomic: Option<u8>,
    /// Number of the peer's READs and atomics in flight.
    pub max_dest_rd_atomic: Option<u8>,
    /// The timer value of RNR NAKs: the time that the peer waits when no receive request is available.
    pub min_rnr_timer: Option<u8>,
    /// The peer's queue pair.
    pub dest_qp: Option<u32>,
}

/// Bits of `enum ibv_qp_attr_mask`.
mod mask {
    pub(super) const STATE: u32 = 1;
    pub(super) const CUR_STATE: u32 = 1 << 1;
    pub(super) const DRAINED_EVENT: u32 = 1 << 2;
    pub(super) const ACCESS: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const PORT: u32 = 1 << 5;
    pub(super) const QKEY: u32 = 1 << 6;
    pub(super) const AV: u32 = 1 << 7;
    pub(super) const PATH_MTU: u32 = 1 << 8;
    pub(super) const TIMEOUT: u32 = 1 << 9;
    pub(super) const RETRY_CNT: u32 = 1 << 10;
    pub(super) const RNR_RETRY: u32 = 1 << 11;
    pub(super) const RQ_PSN: u32 = 1 << 12;
    pub(super) const MAX_RD_ATOMIC: u32 = 1 << 13;
    pub(super) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(super) const SQ_PSN: u32 = 1 << 16;
    pub(super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(super) const DEST_QPN: u32 = 1 << 20;
}

impl Attributes {
    /// Returns the attributes that are set, in the bits of `enum ibv_qp_attr_mask`.
    pub fn mask(&self) -> u32 {
        let bit = |set: bool, bit| if set { bit } else { 0 };
        bit(self.state.is_some(), mask::STATE)
            | bit(self.current_state.is_some(), mask::CUR_STATE)
            | bit(self.drained_event.is_some(), mask::DRAINED_EVENT)
            | bit(self.access.is_some(), mask::ACCESS)
            | bit(self.pkey_index.is_some(), mask::PKEY_INDEX)
            | bit(self.port.is_some(), mask::PORT)
            | bit(self.qkey.is_some(), mask::QKEY)
            | bit(self.destination.is_some(), mask::AV)
            | bit(self.path_mtu.is_some(), mask::PATH_MTU)
            | bit(self.timeout.is_some(), mask::TIMEOUT)
            | bit(self.retry_count.is_some(), mask::RETRY_CNT)
            | bit(self.rnr_retry.is_some(), mask::RNR_RETRY)
            | bit(self.rq_psn.is_some(), mask::RQ_PSN)
            | bit(self.max_rd_atomic.is_some(), mask::MAX_RD_ATOMIC)
            | bit(self.min_rnr_timer.is_some(), mask::MIN_RNR_TIMER)
            | bit(self.sq_psn.is_some(), mask::SQ_PSN)
            | bit(self.max_dest_rd_atomic.is_some(), mask::MAX_DEST_RD_ATOMIC)
            | bit(self.dest_qp.is_some(), mask::DEST_QPN)
    }
}

/// The required and the optional attributes of a transition, each for RC, UC and UD.
type Rule = ([u32; 3], [u32; 3]);

/// The transition table. It has no alternate paths, since the transport sprays over many paths.
const fn rule(from: State, to: State) -> Option<Rule> {
    use State::{
        Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError,
    };
    use mask::{
        ACCESS, AV, CUR_STATE, DEST_QPN, DRAINED_EVENT, MAX_DEST_RD_ATOMIC, MAX_RD_ATOMIC,
        MIN_RNR_TIMER, PATH_MTU, PKEY_INDEX, PORT, QKEY, RETRY_CNT, RNR_RETRY, RQ_PSN, SQ_PSN,
        TIMEOUT,
    };
    const NOTHING: [u32; 3] = [0; 3];
    let connected = PKEY_INDEX | PORT | ACCESS;
    let own = [connected, connected, PKEY_INDEX | PORT | QKEY];
    let peer = AV | PATH_MTU | DEST_QPN | RQ_PSN;
    let running = [CUR_STATE | ACCESS | MIN_RNR_TIMER, CUR_STATE | ACCESS, CUR_STATE | QKEY];
    Some(match (from, to) {
        (_, Reset) => (NOTHING, NOTHING),
        (
            Init | ReadyToReceive | ReadyToSend | SendQueueDrained | SendQueueError | Error,
            Error,
        ) => (NOTHING, NOTHING),
        (Reset, Init) => (own, NOTHING),
        (Init, Init) => (NOTHING, own),
        (Init, ReadyToReceive) => (
            [peer | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER, peer, 0],
            [ACCESS | PKEY_INDEX, ACCESS | PKEY_INDEX, PKEY_INDEX | QKEY],
        ),
        (ReadyToReceive, ReadyToSend) => {
            let reliable = TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_RD_ATOMIC;
            ([reliable, SQ_PSN, SQ_PSN], running)
        }
        (ReadyToSend | SendQueueDrained, ReadyToSend) => (NOTHING, running),
        (SendQueueError, ReadyToSend) => (NOTHING, [0, CUR_STATE | ACCESS, CUR_STATE | QKEY]),
        (ReadyToSend, SendQueueDrained) => (NOTHING, [DRAINED_EVENT; 3]),
        (SendQueueDrained, SendQueueDrained) => {
            let connected = AV | ACCESS | PKEY_INDEX;
            let reliable = connected
                | PORT
                | TIMEOUT
                | RETRY_CNT
                | RNR_RETRY
                | MAX_RD_ATOMIC
                | MAX_DEST_RD_ATOMIC
                | MIN_RNR_TIMER;
            (NOTHING, [reliable, connected, PKEY_INDEX | QKEY])
        }
        _ => return None,
    })
}

/// Checks the transition from `from` that `attributes` describe; returns the new state.
///
/// # Errors
/// The transition does not exist, or attributes are missing, surplus or out of range.
pub(crate) fn transition(
    service: Service,
    from: State,
    attributes: &Attributes,
) -> Result<State, VerbsError> {
    let to = attributes.state.unwrap_or(from);
    if attributes.current_state.is_some_and(|state| state != from) {
        return Err(VerbsError::WrongState(from));
    }
    let reliable = service == Service::ReliableConnected;
    let (needs, takes) = rule(from, to)
        .filter(|_| !(reliable && from == State::SendQueueError && to == State::ReadyToSend))
        .ok_or(VerbsError::NoTransition { from, to })?;
    let index = match service {
        Service::ReliableConnected => 0,
        Service::UnreliableConnected => 1,
        Service::UnreliableDatagram => 2,
    };
    let given = attributes.mask() & !mask::STATE;
    let missing = needs[index] & !given;
    if missing != 0 {
        return Err(VerbsError::MissingAttributes { missing });
    }
    let extra = given & !(needs[index] | takes[index] | mask::CUR_STATE);
    if extra != 0 {
        return Err(VerbsError::ExtraAttributes { extra });
    }
    check_ranges(attributes)?;
    Ok(to)
}

/// Checks the range of every attribute.
fn check_ranges(attributes: &Attributes) -> Result<(), VerbsError> {
    let rows: [(&'static str, Option<u64>, u64); 10] = [
        ("pkey_index", attributes.pkey_index.map(u64::from), 0),
        ("timeout", attributes.timeout.map(u64::from), 31),
        ("retry_cnt", attributes.retry_count.map(u64::from), 7),
        ("rnr_retry", attributes.rnr_retry.map(u64::from), 7),
        ("min_rnr_timer", attributes.min_rnr_timer.map(u64::from), 31),
        ("rq_psn", attributes.rq_psn.map(u64::from), 0xff_ffff),
        ("sq_psn", attributes.sq_psn.map(u64::from), 0xff_ffff),
        ("dest_qp_num", attributes.dest_qp.map(u64::from), 0xff_ffff),
        ("path_mtu", attributes.path_mtu.map(u64::from), 4096),
        ("port_num", attributes.port.map(u64::from), 1),
    ];
    for (field, got, limit) in rows {
        if let Some(got) = got.filter(|&got| got > limit) {
            return Err(VerbsError::OverLimit { field, got, limit });
        }
    }
    if attributes.path_mtu.is_some_and(|mtu| mtu < 256 || !mtu.is_power_of_two()) {
        return Err(VerbsError::Invalid("path_mtu is 256, 512, 1024, 2048 or 4096"));
    }
    if attributes.port == Some(0) {
        return Err(VerbsError::Invalid("ports count from 1"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RC: Service = Service::ReliableConnected;

    fn to(state: State) -> Attributes {
        Attributes { state: Some(state), ..Attributes::default() }
    }

    fn to_init() -> Attributes {
        Attributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::NONE),
            ..to(State::Init)
        }
    }

    #[test]
    fn exactly_the_transitions_of_the_standard_exist() {
        use State::*;
        let all =
            [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error];
        for from in all {
            for target in all {
                let listed = match (from, target) {
                    (_, Reset) => true,
                    (Reset, Error) => false,
                    (_, Error) => true,
                    (Reset | Init, Init) => true,
                    (Init, ReadyToReceive) => true,
                    (ReadyToReceive | ReadyToSend | SendQueueDrained, ReadyToSend) => true,
                    (ReadyToSend | SendQueueDrained, SendQueueDrained) => true,
                    (SendQueueError, ReadyToSend) => false,
                    _ => false,
                };
                let got = transition(RC, from, &to(target));
                let refused = matches!(got, Err(VerbsError::NoTransition { .. }));
                assert_eq!(!refused, listed, "{from:?} to {target:?}: {got:?}");
            }
        }
        let datagram = Service::UnreliableDatagram;
        assert!(transition(datagram, SendQueueError, &to(ReadyToSend)).is_ok());
    }

    #[test]
    fn attributes_missing_or_too_many_are_named() {
        assert_eq!(transition(RC, State::Reset, &to_init()), Ok(State::Init));
        let missing = Attributes { port: None, ..to_init() };
        let error = VerbsError::MissingAttributes { missing: 1 << 5 };
        assert_eq!(transition(RC, State::Reset, &missing), Err(error));
        let extra = Attributes { qkey: Some(1), ..to_init() };
        let error = VerbsError::ExtraAttributes { extra: 1 << 6 };
        assert_eq!(transition(RC, State::Reset, &extra), Err(error));
        let datagram = Attributes { access: None, qkey: Some(1), ..to_init() };
        let service = Service::UnreliableDatagram;
        assert_eq!(transition(service, State::Reset, &datagram), Ok(State::Init));
    }

    #[test]
    fn the_expected_state_must_be_the_current_state() {
        let attributes = Attributes { current_state: Some(State::Init), ..to(State::ReadyToSend) };
        let error = VerbsError::WrongState(State::ReadyToSend);
        assert_eq!(transition(RC, State::ReadyToSend, &attributes), Err(error));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for attributes in [
            Attributes { pkey_index: Some(1), ..to_init() },
            Attributes { port: Some(0), ..to_init() },
            Attributes { port: Some(2), ..to_init() },
        ] {
            assert!(transition(RC, State::Reset, &attributes).is_err(), "{attributes:?}");
        }
    }
}
