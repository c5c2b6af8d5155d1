use alloc::string::{String, ToString};

use super::*;

fn tuple() -> FiveTuple {
    let (src, dst) = (u32::from_be_bytes([192, 168, 0, 9]), u32::from_be_bytes([10, 9, 3, 4]));
    FiveTuple { src, dst, src_port: 1000, dst_port: 4791, protocol: 17 }
}

#[test]
fn the_hash_of_a_known_flow_is_that_of_linux() {
    // Validated against `ip route get` on Linux 6.18.
    assert_eq!(multipath_hash(Policy::Layer4, 424_242, &tuple()), 1_742_002_118);
}

#[test]
fn choices_are_those_of_a_linux_router() {
    // `ip route get 10.$net.3.4 from 192.168.0.9 iif in0 ipproto udp sport $s dport 4791` for
    // ports 1000 to 1099 on Linux 6.18, seed 424242: the index of the next hop.
    let five_tuple = Policy::Fields(Fields::FIVE_TUPLE);
    for (policy, net, weights, first_fifty, last_fifty) in [
        (
            Policy::Layer4,
            9,
            [3, 1, 2],
            "20102120200100020002010001201200002020001212020201",
            "02100000000010212120010020000020200100022102011110",
        ),
        (
            Policy::Layer4,
            8,
            [1, 1, 1],
            "20102102021122012102120220022122200021000101020110",
            "02202120210201021102121222012100012010021021201011",
        ),
        (
            five_tuple,
            9,
            [3, 1, 2],
            "22002022220102020002210010202001212101020020121012",
            "02202200120022110001010002100102202022120022220020",
        ),
        (
            five_tuple,
            8,
            [1, 1, 1],
            "10222100010022101120112011111021000021002020001022",
            "02210220102021202000202210102211100000001102011221",
        ),
    ] {
        let dst = u32::from_be_bytes([10, net, 3, 4]);
        let choices = (1000..1100).map(|src_port| {
            let tuple = FiveTuple { src_port, dst, ..tuple() };
            let hash = multipath_hash(policy, 424_242, &tuple);
            select_weighted(hash, &weights).unwrap().to_string()
        });
        let want = [first_fifty, last_fifty].concat();
        assert_eq!(choices.collect::<String>(), want, "{policy:?} {weights:?}");
    }
}

#[test]
fn choices_for_ipv6_are_those_of_a_linux_router() {
    // `ip -6 route get fd00:9:3::4 from fd00:192::9 iif in0 ipproto udp sport $s dport 4791` for ports 1000
    // to 1099 on Linux 6.18, seed 424242, policy 1, weights 3, 1 and 2: the index of the next hop.
    let want = "2012020002110001202102000220212022000100220210202221220001000121\
                220100100012210111000221001000200001";
    let (src, dst) = ("fd00:192::9".parse().unwrap(), "fd00:9:3::4".parse().unwrap());
    let choices = (1000..1100).map(|src_port| {
        let (dst_port, protocol, flow_label) = (4791, 17, 0);
        let tuple = FiveTuple6 { src, dst, flow_label, src_port, dst_port, protocol };
        let hash = multipath_hash6(Policy::Layer4, 424_242, &tuple);
        select_weighted(hash, &[3, 1, 2]).unwrap().to_string()
    });
    assert_eq!(choices.collect::<String>(), want);
}

/// The flow label changes the hash under the policies that include it, and under no other.
#[test]
fn flow_labels_count_under_the_policies_that_include_them() {
    let tuple = |flow_label| FiveTuple6 {
        src: "fd00:1::2".parse().unwrap(),
        dst: "fd00:2::2".parse().unwrap(),
        flow_label,
        src_port: 49_152,
        dst_port: 4791,
        protocol: 17,
    };
    let hash = |policy, label| multipath_hash6(policy, 7, &tuple(label));
    let labelled = Policy::Fields(Fields(Fields::FIVE_TUPLE.0 | Fields::FLOW_LABEL));
    for policy in [Policy::Layer3, Policy::InnerLayer3, labelled] {
        assert_ne!(hash(policy, 1), hash(policy, 2), "{policy:?}");
    }
    for policy in [Policy::Layer4, Policy::Fields(Fields::FIVE_TUPLE)] {
        assert_eq!(hash(policy, 1), hash(policy, 2), "{policy:?}");
    }
    // One policy hashes the label in network order, the other in native order.
    assert_ne!(hash(Policy::Layer3, 1), hash(Policy::InnerLayer3, 1));
    assert_eq!(hash(Policy::Layer3, 0), hash(Policy::InnerLayer3, 0));
}

#[test]
fn thresholds_are_rounded_half_up() {
    // A third of 2^31 is 715827882.67, two thirds 1431655765.33.
    for (hash, member) in [(715_827_882, 0), (715_827_883, 1), (1_431_655_764, 1)] {
        assert_eq!(select(hash, 3), member);
    }
    assert_eq!(select(1_431_655_765, 3), 2);
}

#[test]
fn siphash_matches_the_vectors_of_its_paper() {
    // Appendix A of the paper: key 00..0f; message of eight bytes 00..07, from the reference
    // implementation's vectors.
    let (k0, k1) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
    assert_eq!(SipHash::new(k0, k1).finish(0), 0x726f_db47_dd0e_0e31);
    assert_eq!(SipHash::new(k0, k1).word(k0).finish(1), 0x93f5_f579_9a93_2462);
}

#[test]
fn a_flow_and_its_replies_share_a_hash() {
    let there = tuple();
    let FiveTuple { src, dst, src_port, dst_port, protocol } = there;
    let back = FiveTuple { src: dst, dst: src, src_port: dst_port, dst_port: src_port, protocol };
    for policy in [Policy::Layer3, Policy::Layer4, Policy::Fields(Fields::FIVE_TUPLE)] {
        assert_eq!(multipath_hash(policy, 7, &there), multipath_hash(policy, 7, &back));
    }
}

#[test]
fn fields_that_are_not_selected_do_not_change_the_hash() {
    let fields = Policy::Fields(Fields(Fields::SRC | Fields::DST | Fields::PROTOCOL));
    let other_port = FiveTuple { src_port: 2000, ..tuple() };
    assert_eq!(multipath_hash(fields, 7, &tuple()), multipath_hash(fields, 7, &other_port));
    let five_tuple = Policy::Fields(Fields::FIVE_TUPLE);
    assert_ne!(multipath_hash(five_tuple, 7, &tuple()), multipath_hash(five_tuple, 7, &other_port));
}

#[test]
fn equal_weights_and_no_weights_choose_the_same_member() {
    for count in [1usize, 2, 3, 5, 7, 60, 64, 127] {
        let weights = alloc::vec![1; count];
        for part in 0..=count as u64 {
            let edge = threshold(part, count as u64);
            for hash in edge.saturating_sub(2)..=(edge + 2).min((1 << 31) - 1) {
                let hash = u32::try_from(hash).unwrap();
                assert_eq!(Some(select(hash, count)), select_weighted(hash, &weights));
            }
        }
    }
}

#[test]
fn a_member_of_weight_zero_is_never_chosen() {
    let top = (1 << 31) - 1;
    assert_eq!(select_weighted(0, &[0, 3, 0, 1]), Some(1));
    assert_eq!(select_weighted(top, &[0, 3, 1, 0]), Some(2));
    assert_eq!(select_weighted(top / 4 * 3 - 5, &[0, 3, 0, 1]), Some(1));
    assert_eq!(select_weighted(5, &[0, 0]), None);
}
