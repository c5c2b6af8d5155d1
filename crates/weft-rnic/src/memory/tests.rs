use weft_transport::Secret;

use super::emtt::{Accessor, Emtt};
use super::*;
use crate::ProtectionDomain;

const ACCESSOR: Accessor = Accessor { domain: ProtectionDomain(7), qp: 1 };
const OTHER_QP: Accessor = Accessor { qp: 2, ..ACCESSOR };
const OTHER_DOMAIN: Accessor = Accessor { domain: ProtectionDomain(8), qp: 1 };

fn emtt(limit: u32) -> Emtt {
    Emtt::new(limit, &Secret::new([3; 16]))
}

fn everything() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
}

fn request(access: Access) -> RegionRequest {
    let owner = Owner::Guest(3);
    RegionRequest { owner, address: 0x10_0000, length: 0x1000, iova: 0x7000, access }
}

fn region(emtt: &mut Emtt, access: Access) -> u32 {
    emtt.register(ACCESSOR.domain, &request(access)).unwrap()
}

#[test]
fn an_address_and_a_key_become_the_owners_address() {
    let mut emtt = emtt(10);
    let key = region(&mut emtt, everything());
    let place = emtt.translate(ACCESSOR, key, 0x7010, 0x20, Right::RemoteWrite).unwrap();
    assert_eq!(place, Place { owner: Owner::Guest(3), address: 0x10_0010, len: 0x20 });
    let zero_based = region(&mut emtt, everything() | Access::ZERO_BASED);
    let place = emtt.translate(ACCESSOR, zero_based, 0x10, 0x20, Right::LocalRead).unwrap();
    assert_eq!(place.address, 0x10_0010);
}

#[test]
fn an_owner_determines_the_address_type() {
    use AddressType::{Translated, Untranslated};
    let mut emtt = emtt(10);
    // Owners of three kinds with the same number: figure 7's root complex, and its switch.
    for (owner, address_type) in [
        (Owner::Host(4), Untranslated),
        (Owner::Guest(4), Untranslated),
        (Owner::Gpu(4), Translated),
    ] {
        let region = RegionRequest { owner, ..request(everything()) };
        let key = emtt.register(ACCESSOR.domain, &region).unwrap();
        let place = emtt.translate(ACCESSOR, key, 0x7010, 0x20, Right::RemoteWrite).unwrap();
        assert_eq!(place, Place { owner, address: 0x10_0010, len: 0x20 });
        assert_eq!(place.owner.address_type(), address_type);
    }
}

#[test]
fn bounds_hold_at_both_ends_and_where_numbers_wrap() {
    let mut emtt = emtt(10);
    let key = region(&mut emtt, everything());
    for (address, len, inside) in [
        (0x7000, 0x1000, true),
        (0x8000, 0, true),
        (0x6fff, 1, false),
        (0x7000, 0x1001, false),
        (0x8000, 1, false),
        (u64::MAX, 1, false),
        (u64::MAX - 0xfff, u32::MAX, false),
        (0x7fff, u32::MAX, false),
    ] {
        let got = emtt.translate(ACCESSOR, key, address, len, Right::RemoteRead);
        assert_eq!(got.is_ok(), inside, "{address:#x} + {len:#x}: {got:?}");
    }
}

#[test]
fn each_right_is_needed_and_no_other() {
    let rights = [
        (Right::LocalWrite, Access::LOCAL_WRITE),
        (Right::RemoteWrite, Access::REMOTE_WRITE),
        (Right::RemoteRead, Access::REMOTE_READ),
        (Right::RemoteAtomic, Access::REMOTE_ATOMIC),
    ];
    for (_, given) in rights {
        let mut emtt = emtt(10);
        let key = region(&mut emtt, given);
        assert!(emtt.translate(ACCESSOR, key, 0x7000, 8, Right::LocalRead).is_ok());
        for (right, needed) in rights {
            let got = emtt.translate(ACCESSOR, key, 0x7000, 8, right);
            let expected = if given == needed { None } else { Some(AccessError::NotAllowed) };
            assert_eq!(got.err(), expected, "{right:?} with {given:?}");
        }
    }
}

#[test]
fn a_key_is_of_one_domain_and_dies_with_its_region() {
    let mut emtt = emtt(10);
    let key = region(&mut emtt, everything());
    let foreign = emtt.translate(OTHER_DOMAIN, key, 0x7000, 8, Right::RemoteRead);
    assert_eq!(foreign, Err(AccessError::WrongDomain));
    emtt.deregister(key);
    let next = region(&mut emtt, everything());
    assert_ne!(next >> 8, key >> 8);
    let old = emtt.translate(ACCESSOR, key, 0x7000, 8, Right::RemoteRead);
    assert_eq!(old, Err(AccessError::BadKey));
    assert_eq!(emtt.translate(ACCESSOR, 0, 0, 0, Right::LocalRead), Err(AccessError::BadKey));
    let nowhere = emtt.translate(ACCESSOR, u32::MAX, 0, 0, Right::LocalRead);
    assert_eq!(nowhere, Err(AccessError::BadKey));
}

#[test]
fn no_more_keys_than_the_limit() {
    let mut emtt = emtt(2);
    let keys = [region(&mut emtt, everything()), region(&mut emtt, everything())];
    assert_eq!(emtt.register(ACCESSOR.domain, &request(everything())), None);
    emtt.deregister(keys[0]);
    assert!(emtt.allocate_window(ACCESSOR.domain, WindowKind::Type1).is_some());
}

fn bind_of(region: u32, access: Access) -> Bind {
    Bind { region, address: 0x7100, length: 0x100, access }
}

#[test]
fn a_window_of_type_1_gets_a_new_key_with_each_bind_and_shows_only_its_part() {
    let mut emtt = emtt(10);
    let key = region(&mut emtt, everything());
    let window = emtt.allocate_window(ACCESSOR.domain, WindowKind::Type1).unwrap();
    let bind = bind_of(key, Access::REMOTE_READ);
    let bound = emtt.bind(ACCESSOR, window, None, &bind).unwrap();
    assert_ne!(bound, window);
    let read = |emtt: &Emtt, key, address, len| {
        emtt.translate(OTHER_QP, key, address, len, Right::RemoteRead).map(|place| place.address)
    };
    assert_eq!(read(&emtt, bound, 0x7100, 0x100), Ok(0x10_0100));
    assert_eq!(read(&emtt, bound, 0x7100, 0x101), Err(AccessError::OutOfBounds));
    assert_eq!(read(&emtt, bound, 0x70ff, 1), Err(AccessError::OutOfBounds));
    assert_eq!(read(&emtt, window, 0x7100, 1), Err(AccessError::BadKey));
    let write = emtt.translate(ACCESSOR, bound, 0x7100, 1, Right::RemoteWrite);
    assert_eq!(write, Err(AccessError::NotAllowed));
    let local = emtt.translate(ACCESSOR, bound, 0x7100, 1, Right::LocalRead);
    assert_eq!(local, Err(AccessError::BadKey), "windows are for peers");
    assert_eq!(emtt.region_use(key).unwrap().1, 1);
    let unbound = emtt.bind(ACCESSOR, bound, None, &Bind { length: 0, ..bind }).unwrap();
    assert_eq!(read(&emtt, unbound, 0x7100, 1), Err(AccessError::BadKey));
    assert_eq!(emtt.region_use(key).unwrap().1, 0);
}

#[test]
fn a_window_of_type_2_serves_one_queue_pair_until_it_is_invalidated() {
    let mut emtt = emtt(10);
    let key = region(&mut emtt, everything());
    let window = emtt.allocate_window(ACCESSOR.domain, WindowKind::Type2).unwrap();
    let bind = bind_of(key, Access::REMOTE_WRITE | Access::ZERO_BASED);
    let new_key = window & !0xff | 0x5a;
    assert_eq!(emtt.bind(ACCESSOR, window, None, &bind), Err(AccessError::BadBind));
    assert_eq!(emtt.bind(ACCESSOR, window, Some(new_key), &bind), Ok(new_key));
    let again = emtt.bind(ACCESSOR, new_key, Some(new_key + 1), &bind);
    assert_eq!(again, Err(AccessError::BadBind), "invalidate it first");
    let place = emtt.translate(ACCESSOR, new_key, 0x10, 8, Right::RemoteWrite).unwrap();
    assert_eq!(place.address, 0x10_0110, "zero-based");
    let foreign = emtt.translate(OTHER_QP, new_key, 0x10, 8, Right::RemoteWrite);
    assert_eq!(foreign, Err(AccessError::WrongQueuePair));
    assert_eq!(emtt.invalidate(OTHER_QP, new_key), Err(AccessError::WrongQueuePair));
    assert_eq!(emtt.invalidate(ACCESSOR, new_key), Ok(()));
    assert_eq!(emtt.invalidate(ACCESSOR, new_key), Err(AccessError::BadKey));
    let gone = emtt.translate(ACCESSOR, new_key, 0x10, 8, Right::RemoteWrite);
    assert_eq!(gone, Err(AccessError::BadKey));
}

#[test]
fn a_bind_needs_the_rights_of_its_region() {
    let mut emtt = emtt(10);
    let unbindable = region(&mut emtt, Access::LOCAL_WRITE);
    let read_only = region(&mut emtt, Access::MW_BIND);
    let window = emtt.allocate_window(ACCESSOR.domain, WindowKind::Type1).unwrap();
    let mut bind = |region, access| emtt.bind(ACCESSOR, window, None, &bind_of(region, access));
    assert_eq!(bind(unbindable, Access::REMOTE_READ), Err(AccessError::NotAllowed));
    assert_eq!(bind(read_only, Access::REMOTE_WRITE), Err(AccessError::NotAllowed));
    assert!(bind(read_only, Access::REMOTE_READ).is_ok());
}

#[test]
fn invalidating_a_plain_region_is_refused() {
    let mut emtt = emtt(10);
    let key = region(&mut emtt, everything());
    assert_eq!(emtt.invalidate(ACCESSOR, key), Err(AccessError::BadKey));
}

/// A peer that knows the key of one region cannot guess the keys of others.
#[test]
fn a_key_says_nothing_of_others() {
    let mut emtt = emtt(1000);
    let keys: Vec<u32> = (0..1000).map(|_| region(&mut emtt, everything())).collect();
    let reached = |key| emtt.translate(ACCESSOR, key, 0x7000, 8, Right::RemoteRead).is_ok();
    let own = keys[500];
    assert!(reached(own));
    let near = (1..10_000).flat_map(|step| [-step, step]).map(|step| own.wrapping_add_signed(step));
    let next = (1..1000).map(|step| own.wrapping_add(step << 8));
    let before = (1..1000).map(|step| own.wrapping_sub(step << 8));
    let tried: Vec<u32> = near.chain(next).chain(before).collect();
    assert_eq!(tried.iter().filter(|&&key| reached(key)).count(), 0);
    // No difference between consecutive keys occurs twice.
    let mut steps: Vec<u32> = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps.len(), 999);
    assert!(keys.iter().all(|key| *key >= 256));
}
