//! Virtual devices: created and destroyed at any time, and isolated from each other.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use weft_transport::{EndpointConfig, Secret};
use weft_units::{Duration, Instant, Seed};

use super::datagrams;
use super::network::{BASE, End, Fate, LENGTH, Network, config, device, every_right, request};
use crate::error::Object;
use crate::*;

const RC: Service = Service::ReliableConnected;
const NOW: Instant = Instant::from_nanos(1_000_000_000);

fn distinct(devices: &[VirtualDevice]) -> bool {
    let contexts: BTreeSet<_> = devices.iter().map(|device| device.context).collect();
    let domains: BTreeSet<_> = devices.iter().map(|device| device.domain).collect();
    let doorbells: BTreeSet<_> = devices.iter().map(|device| device.doorbell).collect();
    [contexts.len(), domains.len(), doorbells.len()] == [devices.len(); 3]
}

#[test]
fn ten_thousand_virtual_devices_have_distinct_domains_and_doorbells() {
    let mut device = device(1, config(), Limits::default());
    let mut live: Vec<_> =
        (0..10_000).map(|guest| device.create_virtual(guest, &[]).unwrap()).collect();
    assert!(distinct(&live));
    let mut number = 0;
    live.retain(|gone| {
        number += 1;
        let stays = number % 3 != 0;
        if !stays {
            device.destroy_virtual(NOW, gone.context).unwrap();
            let again = device.destroy_virtual(NOW, gone.context);
            assert_eq!(again, Err(VerbsError::Unknown(Object::Context)));
        }
        stays
    });
    live.extend((10_000..13_333).map(|guest| device.create_virtual(guest, &[]).unwrap()));
    assert_eq!(live.len(), 10_000);
    assert!(distinct(&live));
    let highest = live.iter().map(|device| device.doorbell.0).max();
    assert_eq!(highest, Some(9_999), "pages of those that went serve those that came");
    live.iter().for_each(|gone| device.destroy_virtual(NOW, gone.context).unwrap());
}

#[test]
fn a_virtual_device_over_the_limit_is_refused_without_effect() {
    let limits = Limits { contexts: 3, protection_domains: 2, ..Limits::default() };
    let endpoint = EndpointConfig {
        transport: config(),
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 16,
    };
    let seed = Seed(1);
    let mut device = Device::new(limits, endpoint, seed, Secret::from_seed(seed)).unwrap();
    let first = device.create_virtual(0, &[]).unwrap();
    device.create_virtual(1, &[]).unwrap();
    let object = Object::ProtectionDomain;
    let refused = device.create_virtual(2, &[]);
    assert_eq!(refused, Err(VerbsError::TooMany { object, limit: 2 }));
    // The context of the third is free again.
    device.destroy_virtual(NOW, first.context).unwrap();
    device.create_virtual(2, &[]).unwrap();
    device.open().unwrap();
    assert!(device.open().is_err());
}

/// A peer that knows one queue pair number cannot guess the numbers of others.
#[test]
fn a_queue_pairs_number_says_nothing_of_others() {
    for share in [None, Some(0xab)] {
        let mut device = device(1, config(), Limits::default());
        if let Some(share) = share {
            device = device.sharing_host(share);
        }
        let context = device.open().unwrap();
        let (domain, cq) =
            (device.allocate_domain(context).unwrap(), device.create_cq(context, 16).unwrap());
        let request = request(domain, cq, RC);
        let numbers: Vec<u32> = (0..100).map(|_| device.create_qp(&request).unwrap().0).collect();
        let beside = numbers.iter().filter(|&number| {
            let near = [number.wrapping_sub(1), number + 1, number + (1 << 12), number + (1 << 16)];
            near.iter().any(|&near| device.query_qp(QueuePairNumber(near)).is_ok())
        });
        // With 16 bits of its own, one in 650 numbers belongs to another queue pair.
        let by_chance = if share.is_some() { 3 } else { 0 };
        assert!(beside.count() <= by_chance, "{numbers:x?}");
        assert!(numbers.iter().all(|number| (2..0xff_ffff).contains(number)));
        assert!(share.is_none_or(|share| numbers.iter().all(|n| n >> 16 == u32::from(share))));
    }
}

/// Owners send one tenant's packets from that tenant's address, independent of others.
#[test]
fn every_packet_names_its_context() {
    let mut network = Network::new(2);
    let datagrams = [(); 2].map(|()| datagrams::end(&mut network, 0));
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    network.join(&a, &b, |_| ());
    let receiver = datagrams::end(&mut network, 1);
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    let sees = seen.clone();
    network.rule = Box::new(move |on_link| {
        if on_link.from == 0 {
            sees.borrow_mut().insert(on_link.context);
        }
        Fate::Pass
    });
    for (wr_id, sender) in (0..).zip(&datagrams) {
        network.post_receive(&receiver, wr_id, &[receiver.sge(2000 * wr_id, 1040)]);
        datagrams::post(&mut network, sender, 5, sender.sge(0, 1000), datagrams::to(&receiver));
        assert_eq!(network.outcomes(sender, 1), [(5, Status::Success)]);
        let expected = datagrams[..=usize::try_from(wr_id).unwrap()].iter();
        assert_eq!(*seen.borrow(), expected.map(|end| Some(end.context)).collect());
    }
    seen.borrow_mut().clear();
    let sges = [a.sge(0, 1000)];
    let read = SendRequest::new(1, Operation::Read(b.remote(0)), Data::Gather(&sges));
    network.post(&a, &read);
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    assert_eq!(*seen.borrow(), [Some(a.context)].into(), "its acknowledgements too");
}

#[test]
fn connections_for_datagrams_close_with_their_context() {
    let mut network = Network::new(2);
    let (a, b) = (datagrams::end(&mut network, 0), datagrams::end(&mut network, 1));
    network.post_receive(&b, 1, &[b.sge(0, 1040)]);
    datagrams::post(&mut network, &a, 5, a.sge(0, 1000), datagrams::to(&b));
    assert_eq!(network.outcomes(&a, 1), [(5, Status::Success)]);
    assert!(network.hosts[1].device.has_inbound_datagrams());
    let now = network.now;
    network.hosts[0].device.reclaim(now, a.context).unwrap();
    network.run_until(|network| !network.hosts[1].device.has_inbound_datagrams());
}

#[test]
fn a_virtual_device_reaches_its_guests_memory_and_its_gpus() {
    let mut device = device(1, config(), Limits::default());
    let tenant = device.create_virtual(7, &[3]).unwrap();
    let region = |owner| {
        let access = every_right();
        RegionRequest { owner, address: 0, length: 4096, iova: 0, access }
    };
    let own = device.register(tenant.domain, &region(Owner::Guest(7))).unwrap();
    device.register(tenant.domain, &region(Owner::Gpu(3))).unwrap();
    for owner in [Owner::Guest(8), Owner::Gpu(7), Owner::Host(7)] {
        let made = device.register(tenant.domain, &region(owner));
        assert_eq!(made, Err(VerbsError::ForeignMemory(owner)));
        // Neither can a region be moved there.
        let moved = device.reregister(own, None, |request| request.owner = owner);
        assert_eq!(moved, Err(VerbsError::ForeignMemory(owner)));
    }
}

/// Creates a peer's end, and the ends of two tenants on one host, the first of which is connected to it.
fn tenants() -> (Network, End, [(Doorbell, End); 2]) {
    let mut network = Network::new(2);
    let peer = network.end(0, RC);
    let tenants = [1, 2].map(|guest| network.tenant(1, guest, RC));
    network.join(&peer, &tenants[0].1, |_| ());
    (network, peer, tenants)
}

#[test]
fn another_tenants_key_gives_no_access() {
    let of_the_other = |other: &End| Remote { address: BASE, rkey: other.key };
    let operations: [fn(Remote) -> Operation; 3] = [Operation::Write, Operation::Read, |remote| {
        Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } }
    }];
    for operation in operations {
        let (mut network, peer, [_, (_, other)]) = tenants();
        network.fill(&other, 5);
        let (before, mine) = (network.memory(&other).to_vec(), network.memory(&peer).to_vec());
        let sges = [peer.sge(0, 8)];
        let operation = operation(of_the_other(&other));
        network.post(&peer, &SendRequest::new(1, operation, Data::Gather(&sges)));
        assert_eq!(network.outcomes(&peer, 1), [(1, Status::RemoteAccess)], "{operation:?}");
        assert!(network.memory(&other) == before, "{operation:?} wrote");
        assert!(network.memory(&peer) == mine, "{operation:?} read");
    }
}

#[test]
fn another_tenants_memory_is_not_sent_either() {
    let (mut network, peer, [(_, own), (_, other)]) = tenants();
    network.fill(&other, 5);
    let before = network.memory(&peer).to_vec();
    let sges = [Sge { address: BASE, length: 64, lkey: other.key }];
    let write = Operation::Write(peer.remote(0));
    network.post(&own, &SendRequest::new(1, write, Data::Gather(&sges)));
    assert_eq!(network.outcomes(&own, 1), [(1, Status::LocalProtection)]);
    assert!(network.memory(&peer) == before);
}

#[test]
fn a_doorbell_starts_queue_pairs_of_its_virtual_device_only() {
    let (mut network, peer, [(doorbell, own), (foreign, other)]) = tenants();
    let device = &mut network.hosts[1].device;
    let refused = Err(VerbsError::Unknown(Object::QueuePair));
    assert_eq!(device.ring(doorbell, own.qp), Ok(()));
    assert_eq!(device.ring(foreign, other.qp), Ok(()));
    assert_eq!(device.ring(foreign, own.qp), refused);
    assert_eq!(device.ring(doorbell, other.qp), refused);
    device.destroy_qp(NOW, other.qp).unwrap();
    assert_eq!(device.ring(foreign, other.qp), refused);
    // A process of the host has no doorbell page.
    let host = &network.hosts[0].device;
    assert_eq!(host.ring(Doorbell(0), peer.qp), refused);
}

#[test]
fn handles_belong_to_the_virtual_device_that_created_them() {
    let (mut network, _, [(_, own), (_, other)]) = tenants();
    let device = &mut network.hosts[1].device;
    let srq = device.create_srq(own.domain, 4, 1).unwrap();
    let window = device.allocate_window(own.domain, WindowKind::Type1).unwrap();
    for (handle, object) in [
        (Handle::Domain(own.domain), Object::ProtectionDomain),
        (Handle::CompletionQueue(own.cq), Object::CompletionQueue),
        (Handle::SharedReceiveQueue(srq), Object::SharedReceiveQueue),
        (Handle::QueuePair(own.qp), Object::QueuePair),
        (Handle::Key(own.key), Object::MemoryRegion),
        (Handle::Key(window), Object::MemoryRegion),
    ] {
        assert_eq!(device.check(own.context, handle), Ok(()), "{handle:?}");
        let unknown = Err(VerbsError::Unknown(object));
        assert_eq!(device.check(other.context, handle), unknown, "{handle:?}");
    }
    // Objects of two tenants cannot be combined.
    let mixed = device.create_qp(&request(own.domain, other.cq, RC));
    assert_eq!(mixed, Err(VerbsError::Unknown(Object::CompletionQueue)));
}

#[test]
fn destroying_a_virtual_device_during_a_write_affects_no_other() {
    let mut network = Network::new(2);
    let peers = [network.end(0, RC), network.end(0, RC)];
    let tenants = [1, 2].map(|guest| network.tenant(1, guest, RC).1);
    let write = |network: &mut Network, pair: usize, wr_id, length| {
        let sges = [peers[pair].sge(0, length)];
        let write = Operation::Write(tenants[pair].remote(0));
        network.post(&peers[pair], &SendRequest::new(wr_id, write, Data::Gather(&sges)));
    };
    for pair in [0, 1] {
        network.join(&peers[pair], &tenants[pair], |_| ());
        network.fill(&peers[pair], 9);
        write(&mut network, pair, 1, 8);
        assert_eq!(network.outcomes(&peers[pair], 1), [(1, Status::Success)]);
    }
    // Both are in the middle of a long WRITE when the tenants' host is cut off.
    let mut number = 0;
    network.rule = Box::new(move |on_link| {
        number += 1;
        if on_link.from == 1 || number % 5 == 0 { Fate::Drop } else { Fate::Pass }
    });
    for pair in [0, 1] {
        write(&mut network, pair, 2, u32::try_from(LENGTH).unwrap());
    }
    network.run_for(Duration::from_micros(30));
    assert!(network.memory(&tenants[0]).to_vec() != network.memory(&peers[0]), "not all came");
    let now = network.now;
    network.hosts[1].device.destroy_virtual(now, tenants[0].context).unwrap();
    network.rule = Box::new(|_| Fate::Pass);
    assert_eq!(network.outcomes(&peers[1], 1), [(2, Status::Success)]);
    let sent = network.memory(&peers[1]).to_vec();
    assert!(network.memory(&tenants[1]) == sent);
    let [(2, status)] = network.outcomes(&peers[0], 1)[..] else { panic!("one completion") };
    assert_ne!(status, Status::Success);
    let gone = network.hosts[1].device.check(tenants[0].context, Handle::Key(tenants[0].key));
    assert_eq!(gone, Err(VerbsError::Unknown(Object::MemoryRegion)));
}
