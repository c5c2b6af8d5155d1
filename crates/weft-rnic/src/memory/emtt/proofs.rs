//! Bounded proofs of the bounds checks: all combinations of arguments near the edges of their words are compared with
//! arithmetic that cannot overflow (`docs/design/proofs.md`).

use super::*;

const DOMAIN: ProtectionDomain = ProtectionDomain(7);
const ACCESSOR: Accessor = Accessor { domain: DOMAIN, qp: 1 };

/// Returns every value within `reach` of 0, of 2^32, of 2^63 and of 2^64.
fn near_edges(reach: u64) -> Vec<u64> {
    let around =
        |edge: u64| (0..=2 * reach).map(move |step| edge.wrapping_sub(reach).wrapping_add(step));
    [0, 1 << 32, 1 << 63].into_iter().flat_map(around).collect()
}

/// Returns every length within `reach` of 0 and of 2^32.
fn lengths(reach: u32) -> impl Iterator<Item = u32> + Clone {
    (0..=2 * reach).map(move |step| step.wrapping_sub(reach))
}

fn everything() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::MW_BIND
}

/// Returns regions near the edges that a device registers: neither their memory nor their addresses go past 2^64.
fn regions(reach: u64) -> impl Iterator<Item = RegionRequest> {
    let values = near_edges(reach);
    let all = values.clone().into_iter().flat_map(move |address| {
        let (lengths, iovas) = (values.clone(), values.clone());
        lengths.into_iter().flat_map(move |length| {
            iovas.clone().into_iter().map(move |iova| (address, length, iova))
        })
    });
    all.filter_map(|(address, length, iova)| {
        address.checked_add(length)?;
        iova.checked_add(length)?;
        let owner = Owner::Host(0);
        Some(RegionRequest { owner, address, length, iova, access: everything() })
    })
}

/// Returns `true` if `len` bytes at `address` lie in `length` bytes at `start`.
fn inside(address: u64, len: u64, start: u64, length: u64) -> bool {
    let end = |from: u64, len: u64| u128::from(from) + u128::from(len);
    address >= start && end(address, len) <= end(start, length)
}

#[test]
fn an_offset_is_given_for_what_is_inside_and_for_nothing_else() {
    let values = near_edges(10);
    for &start in &values {
        for &length in &values {
            for &address in &values {
                for &len in &values {
                    let expected = inside(address, len, start, length).then(|| address - start);
                    let got = offset_within(address, len, start, length);
                    assert_eq!(got, expected, "{address:#x}+{len:#x} in {start:#x}+{length:#x}");
                }
            }
        }
    }
}

#[test]
fn a_translated_access_lies_in_the_regions_memory() {
    let addresses = near_edges(3);
    for request in regions(3) {
        let region = Region::new(DOMAIN, &request);
        for &address in &addresses {
            for len in lengths(3) {
                let got = region.translate(ACCESSOR, address, len, true).ok();
                let fits = inside(address, len.into(), request.iova, request.length);
                assert_eq!(got.is_some(), fits, "{address:#x}+{len:#x} in {request:x?}");
                if let Some(place) = got {
                    assert_eq!(place.address - request.address, address - request.iova);
                    assert!(inside(place.address, len.into(), request.address, request.length));
                }
            }
        }
    }
}

/// Access through a window reaches its part of the region, and no byte outside that part.
#[test]
fn an_access_through_a_window_lies_in_the_window_and_its_region() {
    let values = near_edges(1);
    for request in regions(1) {
        let mut emtt = Emtt::new(4, &Secret::new([3; 16]));
        let region = emtt.register(DOMAIN, &request).unwrap();
        let mut window = emtt.allocate_window(DOMAIN, WindowKind::Type1).unwrap();
        for &start in &values {
            for &length in values.iter().filter(|&&length| length > 0) {
                let access = Access::REMOTE_READ;
                let bind = Bind { region, address: start, length, access };
                let bound = emtt.bind(ACCESSOR, window, None, &bind);
                assert_eq!(bound.is_ok(), inside(start, length, request.iova, request.length));
                let Ok(key) = bound else { continue };
                window = key;
                for &address in &values {
                    for len in lengths(1) {
                        let got =
                            emtt.translate(ACCESSOR, key, address, len, Right::RemoteRead).ok();
                        assert_eq!(got.is_some(), inside(address, len.into(), start, length));
                        if let Some(place) = got {
                            assert_eq!(place.address - request.address, address - request.iova);
                        }
                    }
                }
            }
        }
    }
}
