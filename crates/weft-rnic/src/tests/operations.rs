//! Every operation on a network without faults.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::Duration;

use super::network::{BASE, Network};
use crate::*;

const RC: Service = Service::ReliableConnected;
const UC: Service = Service::UnreliableConnected;

fn gather(wr_id: u64, operation: Operation, sges: &[Sge]) -> SendRequest<'_> {
    SendRequest::new(wr_id, operation, Data::Gather(sges))
}

#[test]
pub(super) fn a_send_is_scattered_over_its_receive_request() {
    for service in [RC, UC] {
        let (mut network, a, b) = Network::pair(service);
        network.fill(&a, 1);
        network.post_receive(&b, 7, &[b.sge(100, 10), b.sge(5000, 5000)]);
        network.post(&a, &gather(3, Operation::Send, &[a.sge(0, 1000), a.sge(3000, 2000)]));
        let received = network.completions(&b, 1)[0];
        assert_eq!((received.wr_id, received.status), (7, Status::Success));
        assert_eq!((received.length, received.kind), (3000, WorkKind::Receive));
        assert_eq!(network.outcomes(&a, 1), [(3, Status::Success)]);
        let memory = network.memory(&a);
        let sent = [&memory[..1000], &memory[3000..5000]].concat();
        let memory = network.memory(&b);
        assert_eq!([&memory[100..110], &memory[5000..7990]].concat(), sent);
        assert!(memory[7990..].iter().all(|&byte| byte == 0));
    }
}

#[test]
pub(super) fn immediate_data_comes_with_its_message() {
    let (mut network, a, b) = Network::pair(RC);
    (0..3).for_each(|wr_id| network.post_receive(&b, wr_id, &[b.sge(0, 100)]));
    network.post(&a, &gather(0, Operation::SendWithImmediate(0xabcd), &[a.sge(0, 10)]));
    let write = Operation::WriteWithImmediate(b.remote(500), 0x1234);
    network.post(&a, &gather(1, write, &[a.sge(0, 600)]));
    network.post(&a, &gather(2, Operation::Send, &[]));
    let got: Vec<_> =
        network.completions(&b, 3).iter().map(|c| (c.kind, c.length, c.extra)).collect();
    let expected = [
        (WorkKind::Receive, 10, Some(Extra::Immediate(0xabcd))),
        (WorkKind::ReceiveWriteWithImmediate, 600, Some(Extra::Immediate(0x1234))),
        (WorkKind::Receive, 0, None),
    ];
    assert_eq!(got, expected);
}

#[test]
pub(super) fn a_write_changes_only_its_target() {
    for service in [RC, UC] {
        let (mut network, a, b) = Network::pair(service);
        network.fill(&a, 1);
        network.post(&a, &gather(1, Operation::Write(b.remote(777)), &[a.sge(9, 5000)]));
        assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
        let sent = network.memory(&a)[9..5009].to_vec();
        let memory = network.memory(&b);
        assert_eq!(memory[777..5777], sent);
        assert!(memory[..777].iter().chain(&memory[5777..]).all(|&byte| byte == 0));
    }
}

#[test]
pub(super) fn a_read_returns_the_requested_bytes() {
    let (mut network, a, b) = Network::pair(RC);
    network.fill(&b, 2);
    let sges = [a.sge(10, 1), a.sge(2000, 4999)];
    network.post(&a, &gather(1, Operation::Read(b.remote(300)), &sges));
    let completion = network.completions(&a, 1)[0];
    assert_eq!((completion.kind, completion.length), (WorkKind::Read, 5000));
    let there = network.memory(&b)[300..5300].to_vec();
    let memory = network.memory(&a);
    assert_eq!((memory[10], &memory[2000..6999]), (there[0], &there[1..]));
}

#[test]
pub(super) fn atomics_return_the_previous_value() {
    let (mut network, a, b) = Network::pair(RC);
    network.memory(&b)[64..72].copy_from_slice(&40u64.to_ne_bytes());
    let remote = b.remote(64);
    let swap = |compare, swap| Operation::Atomic {
        remote,
        operation: AtomicOperation::CompareSwap { compare, swap },
    };
    let operations = [
        Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 2 } },
        swap(42, 7),
        swap(42, 8),
    ];
    for (number, operation) in (0..).zip(operations) {
        // The response of each is scattered over two entries.
        let at = 100 + 8 * number;
        network.post(&a, &gather(number, operation, &[a.sge(at, 3), a.sge(at + 3, 5)]));
    }
    let kinds: Vec<_> = network.completions(&a, 3).iter().map(|c| (c.kind, c.length)).collect();
    let swapped = (WorkKind::Atomic(AtomicKind::CompareSwap), 8);
    assert_eq!(kinds, [(WorkKind::Atomic(AtomicKind::FetchAdd), 8), swapped, swapped]);
    let memory = network.memory(&a)[100..124].to_vec();
    let words = memory.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    assert_eq!(words.collect::<Vec<_>>(), [40, 42, 7]);
    assert_eq!(network.memory(&b)[64..72], 7u64.to_ne_bytes());
}

#[test]
fn inline_data_is_copied_when_it_is_posted() {
    let (mut network, a, b) = Network::pair(RC);
    let mut data = *b"as it was";
    let write = Operation::Write(b.remote(0));
    network.post(&a, &SendRequest::new(1, write, Data::Inline(&data)));
    data.fill(b'x');
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    assert_eq!(network.memory(&b)[..9], *b"as it was");
}

#[test]
fn only_signalled_requests_are_completed_and_all_in_order() {
    let (mut network, a, b) = Network::pair(RC);
    for wr_id in 0..20 {
        let operation = match wr_id % 3 {
            0 => Operation::Read(b.remote(0)),
            1 => Operation::Write(b.remote(9000)),
            _ => Operation::Atomic {
                remote: b.remote(0),
                operation: AtomicOperation::FetchAdd { add: 1 },
            },
        };
        let length = if wr_id % 3 == 2 { 8 } else { 700 };
        let sges = [a.sge(0, length)];
        network
            .post(&a, &SendRequest { signaled: wr_id % 2 == 1, ..gather(wr_id, operation, &sges) });
    }
    let expected: Vec<_> = (0..10).map(|n| (2 * n + 1, Status::Success)).collect();
    assert_eq!(network.outcomes(&a, 10), expected);
    network.run_for(Duration::from_millis(1));
    assert_eq!(network.poll(&a), None);
}

#[test]
pub(super) fn a_fence_waits_for_the_reads_before_it() {
    let (mut network, a, b) = Network::pair(RC);
    network.fill(&b, 3);
    let there = network.memory(&b)[..4000].to_vec();
    network.post(&a, &gather(1, Operation::Read(b.remote(0)), &[a.sge(0, 4000)]));
    // The WRITE sends the bytes that the READ returns; without the fence they would be zeros.
    let write = Operation::Write(b.remote(20_000));
    let sges = [a.sge(0, 4000)];
    network.post(&a, &SendRequest { fence: true, ..gather(2, write, &sges) });
    assert_eq!(network.outcomes(&a, 2), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(network.memory(&b)[20_000..24_000], there);
}

#[test]
fn reads_in_flight_stay_within_max_rd_atomic() {
    let (mut network, a, b) = Network::pair(RC);
    let requests = alloc::rc::Rc::new(core::cell::Cell::new((0i32, 0i32)));
    let seen = requests.clone();
    network.rule = Box::new(move |on_link| {
        let (mut open, mut max) = seen.get();
        match (on_link.from, on_link.message().map(|message| message.opcode)) {
            (0, Some(0x0c)) => open += 1,
            (1, Some(0x10)) => open -= 1,
            _ => {}
        }
        max = max.max(open);
        seen.set((open, max));
        super::network::Fate::Pass
    });
    for wr_id in 0..30 {
        network.post(&a, &gather(wr_id, Operation::Read(b.remote(0)), &[a.sge(0, 100)]));
    }
    assert_eq!(network.completions(&a, 30).len(), 30);
    assert_eq!(requests.get().1, 4);
}

#[test]
pub(super) fn windows_are_bound_and_invalidated_by_work_requests() {
    let (mut network, a, b) = Network::pair(RC);
    let window = network.hosts[1].device.allocate_window(b.domain, WindowKind::Type2).unwrap();
    let rkey = window ^ 0x55;
    let bind =
        Bind { region: b.key, address: BASE + 100, length: 50, access: Access::REMOTE_WRITE };
    let operation = Operation::BindWindow { window, key: Some(rkey), bind };
    network.post(&b, &gather(1, operation, &[]));
    assert_eq!(network.outcomes(&b, 1), [(1, Status::Success)]);
    network.fill(&a, 4);
    let through = |offset| Remote { address: BASE + 100 + offset, rkey };
    network.post_receive(&b, 2, &[]);
    network.post(&a, &gather(1, Operation::Write(through(10)), &[a.sge(0, 40)]));
    network.post(&a, &gather(2, Operation::SendWithInvalidate(rkey), &[]));
    network.post(&a, &gather(3, Operation::Write(through(10)), &[a.sge(50, 40)]));
    let (fine, refused) = (Status::Success, Status::RemoteAccess);
    assert_eq!(network.outcomes(&a, 3), [(1, fine), (2, fine), (3, refused)]);
    assert_eq!(network.completions(&b, 1)[0].extra, Some(Extra::Invalidated(rkey)));
    let sent = network.memory(&a)[..40].to_vec();
    assert_eq!(network.memory(&b)[110..150], sent);
}

#[test]
pub(super) fn a_shared_queue_serves_several_queue_pairs_and_reports_its_limit() {
    let mut network = Network::new(3);
    let ends = [network.end(0, RC), network.end(1, RC)];
    let server = network.end(2, RC);
    let device = &mut network.hosts[2].device;
    let srq = device.create_srq(server.domain, 16, 2).unwrap();
    let request = QueuePairRequest {
        srq: Some(srq),
        ..super::network::request(server.domain, server.cq, RC)
    };
    let servers =
        ends.map(|_| super::network::End { qp: device.create_qp(&request).unwrap(), ..server });
    for wr_id in 0..4 {
        let sges = [server.sge(wr_id * 1000, 1000)];
        device.post_srq_receive(srq, &ReceiveRequest { wr_id, sges: &sges }).unwrap();
    }
    device.arm_srq(srq, 2).unwrap();
    for (end, served) in ends.iter().zip(&servers) {
        network.join(end, served, |_| ());
        network.fill(end, u64::from(end.qp.0));
    }
    for end in [0, 1, 0] {
        network.post(&ends[end], &gather(0, Operation::Send, &[ends[end].sge(0, 900)]));
    }
    let got = network.completions(&server, 3);
    let mut taken: Vec<_> = got.iter().map(|completion| completion.wr_id).collect();
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2]);
    for completion in &got {
        let from = usize::from(completion.qp == servers[1].qp);
        let sent = network.memory(&ends[from])[..900].to_vec();
        let at = usize::try_from(completion.wr_id).unwrap() * 1000;
        assert_eq!(network.memory(&server)[at..at + 900], sent);
    }
    assert!(network.hosts[2].events.contains(&Event::SrqLimitReached { srq }));
}

#[test]
pub(super) fn a_drained_send_queue_is_reported_and_can_resume() {
    let (mut network, a, b) = Network::pair(RC);
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 9000)]));
    network.run_for(Duration::from_micros(30));
    let drain = Attributes {
        state: Some(State::SendQueueDrained),
        drained_event: Some(true),
        ..Attributes::default()
    };
    network.modify(&a, &drain);
    network.post(&a, &gather(2, Operation::Write(b.remote(0)), &[a.sge(0, 10)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    network.run_for(Duration::from_millis(1));
    assert_eq!(network.hosts[0].events, vec![Event::SendQueueDrained { qp: a.qp }]);
    assert_eq!(network.poll(&a), None, "the second has not begun");
    let resume = Attributes { state: Some(State::ReadyToSend), ..Attributes::default() };
    network.modify(&a, &resume);
    assert_eq!(network.outcomes(&a, 1), [(2, Status::Success)]);
}
