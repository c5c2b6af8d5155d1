//! Datagrams between the queue pairs of all hosts.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::case::Case;
use super::network::{End, LENGTH, address};
use super::pool::{Queue, SLOT, memory_of};
use super::post::draw_range;
use super::side::{MAX_POSTED, SOURCE, len32, split_sge};
use super::{Checked, Violation, count, ensure};
use crate::{
    Attributes, Completion, Data, Datagram, Extra, Operation, QueuePairNumber, RegionRequest,
    SendRequest, Service, State, Status, WorkKind,
};

const QKEY: u32 = 0x1234;
/// Bytes of a receive request before the datagram.
const ROUTE_HEADER: usize = 40;

/// A datagram that was sent.
#[derive(Debug)]
struct Sent {
    from: (usize, QueuePairNumber),
    data: Vec<u8>,
    extra: Option<Extra>,
    /// `true` if it must arrive.
    certain: bool,
}

/// A host's queue pair for datagrams.
#[derive(Debug)]
pub(super) struct DatagramEnd {
    end: End,
    pub(super) pool: usize,
    /// The posted requests, and `true` for signalled ones.
    pub(super) posted: VecDeque<(u64, bool)>,
    /// Number of the next request.
    next: u64,
    /// The datagrams in flight to this queue pair.
    in_flight: Vec<Sent>,
    /// `true` once the host was cut off: connections of that time may fail later.
    pub(super) partitioned: bool,
}

impl Case {
    pub(super) fn add_datagram_end(&mut self, host: usize) {
        let service = Service::UnreliableDatagram;
        let program = self.hosts[host];
        let qp = self.create_qp(host, service, None);
        let pool = self.add_pool(host, program.domain, Queue::Of(qp));
        let end = self.memory_end(host, qp);
        let up = |state| Attributes { state: Some(state), ..Attributes::default() };
        let init =
            Attributes { pkey_index: Some(0), port: Some(1), qkey: Some(QKEY), ..up(State::Init) };
        let ready = Attributes { sq_psn: Some(0), ..up(State::ReadyToSend) };
        for attributes in [init, up(State::ReadyToReceive), ready] {
            self.network.modify(&end, &attributes);
        }
        let (posted, in_flight) = (VecDeque::new(), Vec::new());
        self.datagram_ends.push(DatagramEnd {
            end,
            pool,
            posted,
            next: 0,
            in_flight,
            partitioned: false,
        });
    }

    fn memory_end(&mut self, host: usize, qp: QueuePairNumber) -> End {
        let program = self.hosts[host];
        let owner = self.memory(host, LENGTH);
        let access = super::network::every_right();
        let iova = super::network::BASE;
        let region = RegionRequest { owner, address: 0, length: LENGTH, iova, access };
        let device = &mut self.network.hosts[host].device;
        let key = device.register(program.domain, &region).expect("there is room");
        program.end(host, qp, owner, key)
    }

    /// Posts a datagram to another host, sometimes one that no queue pair accepts.
    pub(super) fn post_datagram(&mut self, from: usize) {
        let to = (from + 1 + self.rng.index(self.hosts.len() - 1)) % self.hosts.len();
        let me = &self.datagram_ends[from];
        if me.posted.len() >= MAX_POSTED {
            return;
        }
        let (end, wr_id) = (me.end, me.next);
        let source = draw_range(&SOURCE, SLOT - ROUTE_HEADER, &mut self.rng);
        let data = memory_of(&self.network, end.host, end.owner)[source.clone()].to_vec();
        let word = self.rng.next_u32();
        // Datagrams that may be lost must be distinguishable.
        let with_word = data.len() < 8 || self.rng.chance(1, 2);
        let (operation, extra) = match with_word {
            true => (Operation::SendWithImmediate(word), Some(Extra::Immediate(word))),
            false => (Operation::Send, None),
        };
        let peer = &self.datagram_ends[to];
        let (mut qp, mut qkey, mut taken) = (peer.end.qp, QKEY, true);
        match self.rng.below(12) {
            0 => (qkey, taken) = (QKEY + 1, false),
            1 => (qp, taken) = (self.sides[0].end.qp, self.sides[0].end.qp == peer.end.qp),
            2 => (qp, taken) = (QueuePairNumber(0xff_fff0), false),
            _ => {}
        }
        let pool = &mut self.pools[peer.pool];
        let certain = pool.has_room() && !peer.partitioned && !me.partitioned;
        if taken && (certain || self.rng.chance(1, 4)) {
            pool.in_flight += 1;
            if !certain {
                // It may consume the receive request of any other.
                self.datagram_ends[to].in_flight.iter_mut().for_each(|sent| sent.certain = false);
            }
            let sent = Sent { from: (from, end.qp), data, extra, certain };
            self.datagram_ends[to].in_flight.push(sent);
        } else if taken {
            return;
        } else {
            count(&mut self.tally.refusals, "not for anybody there (UD)");
        }
        let signaled = is_signaled(self.datagram_ends[from].posted.len(), self.rng.chance(3, 4));
        let sges = split_sge(end.sge(source.start as u64, len32(source.len())), &mut self.rng);
        let datagram = Some(Datagram { address: address(to), qp, qkey });
        let request = SendRequest {
            signaled,
            datagram,
            ..SendRequest::new(wr_id, operation, Data::Gather(&sges))
        };
        self.network.post(&end, &request);
        count(&mut self.tally.requests, "SEND (UD)");
        let me = &mut self.datagram_ends[from];
        me.next += 1;
        me.posted.push_back((wr_id, signaled));
    }

    pub(super) fn check_datagram(&mut self, host: usize, completion: &Completion) -> Checked {
        let about = || format!("host {host}, datagrams: {completion:?}");
        let me = &mut self.datagram_ends[host];
        ensure(completion.qp == me.end.qp, || format!("of no queue pair: {}", about()))?;
        ensure(completion.status == Status::Success, || format!("it failed: {}", about()))?;
        if completion.kind != WorkKind::Receive {
            while let Some((wr_id, signaled)) = me.posted.pop_front() {
                if wr_id == completion.wr_id {
                    return Ok(());
                }
                ensure(!signaled, || format!("{wr_id} was passed over: {}", about()))?;
            }
            return Err(Violation(format!("nobody posted: {}", about())));
        }
        let pool = &mut self.pools[me.pool];
        let Some(slot) = pool.take(completion.wr_id) else {
            return Err(Violation(format!("not that receive request: {}", about())));
        };
        let start = slot * SLOT;
        let length = completion.length as usize;
        let bytes = pool.memory(&self.network)[start..start + length].to_vec();
        let (header, data) = bytes.split_at(ROUTE_HEADER);
        let source = completion.source.map(|source| (source.address, source.qp));
        let sent = me.in_flight.iter().position(|sent| {
            let from = (address(sent.from.0), sent.from.1);
            Some(from) == source && sent.extra == completion.extra && sent.data == data
        });
        let Some(sent) = sent else {
            return Err(Violation(format!("nobody sent, or sent so: {}", about())));
        };
        me.in_flight.remove(sent);
        pool.in_flight -= 1;
        pool.image.change(start, header);
        pool.image.change(start + ROUTE_HEADER, data);
        Ok(())
    }

    /// Returns `true` if every certain datagram has arrived, and all requests are completed.
    pub(super) fn datagrams_done(&self) -> bool {
        self.datagram_ends
            .iter()
            .all(|end| end.posted.is_empty() && end.in_flight.iter().all(|sent| !sent.certain))
    }

    pub(super) fn unfinished_datagrams(&self) -> String {
        let open = |end: &DatagramEnd| {
            let certain = end.in_flight.iter().filter(|sent| sent.certain).count();
            (end.posted.len(), certain)
        };
        format!("datagrams {:?}", self.datagram_ends.iter().map(open).collect::<Vec<_>>())
    }

    /// Stops waiting for datagrams that may be lost.
    pub(super) fn forget_datagrams(&mut self) {
        for end in &mut self.datagram_ends {
            self.pools[end.pool].in_flight -= end.in_flight.len();
            end.in_flight.clear();
        }
    }

    /// Marks the datagrams from and to a host that is cut off.
    pub(super) fn partition_datagrams(&mut self, host: usize) {
        for (at, end) in self.datagram_ends.iter_mut().enumerate() {
            end.partitioned |= at == host;
            for sent in &mut end.in_flight {
                sent.certain &= at != host && sent.from.0 != host;
            }
        }
    }
}

/// Returns `true` if a request is signalled. The last one that fits must be; otherwise earlier ones would never be
/// retired.
const fn is_signaled(posted: usize, drawn: bool) -> bool {
    drawn || posted + 1 >= MAX_POSTED
}
