use alloc::string::ToString;
use alloc::vec::Vec;
use std::collections::BTreeSet;

use weft_units::{Rng, Seed};

use super::*;

fn random_tuple(rng: &mut Rng) -> FiveTuple {
    let ports = rng.next_u32().to_be_bytes();
    FiveTuple {
        src: rng.next_u32(),
        dst: rng.next_u32(),
        src_port: u16::from_be_bytes([ports[0], ports[1]]),
        dst_port: u16::from_be_bytes([ports[2], ports[3]]),
        protocol: rng.next_u32().to_be_bytes()[0],
    }
}

fn xor(a: FiveTuple, b: FiveTuple) -> FiveTuple {
    FiveTuple {
        src: a.src ^ b.src,
        dst: a.dst ^ b.dst,
        src_port: a.src_port ^ b.src_port,
        dst_port: a.dst_port ^ b.dst_port,
        protocol: a.protocol ^ b.protocol,
    }
}

const ZEROS: FiveTuple = FiveTuple { src: 0, dst: 0, src_port: 0, dst_port: 0, protocol: 0 };

/// Returns the number of pairs with `f(a ^ b) = f(a) ^ f(b) ^ f(0)`, of 2,000 random pairs.
fn affine_pairs(f: impl Fn(&FiveTuple) -> u32) -> u32 {
    let mut rng = Seed(1).child("pairs", 0).rng();
    (0..2_000)
        .map(|_| {
            let (a, b) = (random_tuple(&mut rng), random_tuple(&mut rng));
            u32::from(f(&xor(a, b)) == f(&a) ^ f(&b) ^ f(&ZEROS))
        })
        .sum()
}

fn switches() -> impl Iterator<Item = SwitchHash> {
    HashAlgorithm::ALL.iter().flat_map(|&algorithm| {
        [(0, 0), (1, 0), (0xdead_beef, 5), (42, 15), (7, 31)].map(|(seed, rotate)| SwitchHash {
            algorithm,
            seed,
            rotate,
        })
    })
}

#[test]
fn crcs_folds_and_toeplitz_are_affine_and_linux_is_not() {
    for switch in switches() {
        let pairs = affine_pairs(|tuple| switch.value(tuple));
        match switch.algorithm.is_affine() {
            true => assert_eq!(pairs, 2_000, "{switch:?}"),
            false => assert!(pairs < 5, "{switch:?}: {pairs}"),
        }
    }
}

#[test]
fn the_index_is_affine_for_groups_of_powers_of_two_only() {
    let switch = SwitchHash { algorithm: HashAlgorithm::Crc32, seed: 9, rotate: 0 };
    let index =
        |count| move |tuple: &FiveTuple| u32::try_from(switch.select(tuple, count)).unwrap();
    assert_eq!(affine_pairs(index(8)), 2_000);
    assert!(affine_pairs(index(7)) < 500);
    assert!(affine_pairs(index(60)) < 500);
}

#[test]
fn the_tabulated_form_is_the_direct_one_for_every_row() {
    for switch in switches() {
        let fabric = FabricHash::new(switch.algorithm);
        let salt = fabric.salt(switch.seed, switch.rotate);
        let mut rng = Seed(2).child("tuples", 0).rng();
        for _ in 0..500 {
            let tuple = random_tuple(&mut rng);
            let base = fabric.base(&tuple);
            for count in [1, 2, 3, 8, 60, 64, 1000] {
                let direct = switch.select(&tuple, count);
                assert_eq!(fabric.select(base, || tuple, salt, count), direct, "{switch:?}");
                assert!(direct < count);
            }
        }
    }
}

#[test]
fn every_row_spreads_flows_over_sixty_links() {
    // The flows of a permutation: neighbouring addresses, random source ports.
    for switch in switches().filter(|switch| switch.seed == 1) {
        let mut load = [0u32; 60];
        let mut rng = Seed(3).child("ports", 0).rng();
        for flow in 0..60_000u32 {
            let src_port = 0xc000 | u16::try_from(rng.below(1 << 14)).unwrap();
            let (src, dst) = (0x0a00_0000 + flow % 1024, 0x0a00_0000 + flow % 977);
            let tuple = FiveTuple { src, dst, src_port, dst_port: 4791, protocol: 17 };
            load[switch.select(&tuple, 60)] += 1;
        }
        assert!(load.iter().all(|&flows| (500..2_000).contains(&flows)), "{switch:?} {load:?}");
    }
}

#[test]
fn ports_reach_all_pairs_of_paths_only_when_tiers_take_different_bits() {
    // Joint (leaf, spine) choices of 64 each that the 14 free bits of a RoCE source port reach.
    let reached = |leaf: SwitchHash, spine: SwitchHash| {
        let choices = (0xc000..=0xffffu16).map(|src_port| {
            let (src, dst) = (0x0a00_0001, 0x0a00_0002);
            let tuple = FiveTuple { src, dst, src_port, dst_port: 4791, protocol: 17 };
            (leaf.select(&tuple, 64), spine.select(&tuple, 64))
        });
        choices.collect::<BTreeSet<_>>().len()
    };
    let switch = |algorithm, seed, rotate| SwitchHash { algorithm, seed, rotate };
    let ccitt = |seed, rotate| switch(HashAlgorithm::Crc16Ccitt, seed, rotate);
    assert_eq!(reached(ccitt(1, 0), ccitt(2, 0)), 64);
    assert_eq!(reached(ccitt(1, 0), ccitt(2, 6)), 4096);
    let bisync = |seed, rotate| switch(HashAlgorithm::Crc16Bisync, seed, rotate);
    assert_eq!(reached(bisync(1, 0), bisync(2, 0)), 64);
    assert_eq!(reached(bisync(1, 0), ccitt(2, 0)), 4096);
    // Two functions may still share a sum of bits: one of these twelve bits depends on the others.
    assert_eq!(reached(bisync(1, 0), switch(HashAlgorithm::Crc32, 2, 0)), 2048);
    let xor = |seed, rotate| switch(HashAlgorithm::Xor16, seed, rotate);
    assert_eq!(reached(xor(1, 0), xor(2, 0)), 64);
}

#[test]
fn weights_divide_flows_in_their_proportion() {
    for switch in switches().filter(|switch| switch.seed == 42) {
        let mut rng = Seed(4).child("weighted", 0).rng();
        let mut load = [0u32; 4];
        for _ in 0..13_000 {
            let tuple = random_tuple(&mut rng);
            load[switch.select_weighted(&tuple, &[3, 1, 0, 9]).unwrap()] += 1;
        }
        assert_eq!(load[2], 0, "{switch:?}");
        for (flows, weight) in [(load[0], 3), (load[1], 1), (load[3], 9)] {
            assert!(flows.abs_diff(weight * 1000) < 300, "{switch:?} {load:?}");
        }
        assert_eq!(switch.select_weighted(&random_tuple(&mut rng), &[0, 0]), None);
    }
}

#[test]
fn names_parse_back_and_a_typo_gets_a_suggestion() {
    for &algorithm in HashAlgorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
    }
    let names: Vec<_> = HashAlgorithm::ALL.iter().map(|row| row.name()).collect();
    let want = weft_units::unknown_name("hash", "crc31", &names);
    assert!(want.contains("did you mean \"crc32\""));
    assert_eq!("crc31".parse::<HashAlgorithm>().unwrap_err().to_string(), want);
}

/// Microsoft's verification suite for RSS, IPv6 with TCP: source, port, destination, port, hash.
const RSS_OF_IPV6: [(&str, u16, &str, u16, u32); 3] = [
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x4020_7d3d),
    ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0xdde5_1bbf),
    ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x02d1_feef),
];

#[test]
fn toeplitz_gives_the_published_hashes_of_ipv6_flows() {
    let switch = SwitchHash { algorithm: HashAlgorithm::Toeplitz, seed: 0, rotate: 0 };
    for (src, src_port, dst, dst_port, hash) in RSS_OF_IPV6 {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        let tuple = FiveTuple6 { src, dst, flow_label: 7, src_port, dst_port, protocol: 6 };
        assert_eq!(switch.value6(&tuple), hash, "{src}");
    }
}

#[test]
fn every_function_distinguishes_source_ports() {
    let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    for &algorithm in HashAlgorithm::ALL {
        let switch = SwitchHash { algorithm, seed: 9, rotate: 3 };
        let tuple = |src_port| FiveTuple6 {
            src,
            dst,
            flow_label: 0,
            src_port,
            dst_port: 4791,
            protocol: 17,
        };
        let mut used = [0u32; 8];
        (0xc000..0xd000).for_each(|port| used[switch.select6(&tuple(port), 8)] += 1);
        let name = algorithm.name();
        assert!(used.iter().all(|&count| (256..1024).contains(&count)), "{name}: {used:?}");
    }
}
