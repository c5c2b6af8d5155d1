use std::collections::BTreeMap;

use weft_units::{Duration, Seed};
use weft_wire::EtherType;

use super::*;
use crate::example::{ethernet, icmp, packet, parsed, tcp_numbered, udp};
use crate::{TcpFlags, protocol};

const IN: Direction = Direction::Ingress;
const OUT: Direction = Direction::Egress;
/// The addresses of the tenant and of another machine.
const HERE: &str = "10.0.0.1";
const THERE: &str = "10.9.0.2";

fn at(millis: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(millis)
}

fn config(rules: &[&str]) -> SecurityGroupConfig {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    SecurityGroupConfig { name: "web".into(), members: Vec::new(), rules }
}

fn groups(rules: &[&str]) -> SecurityGroups {
    bounded(rules, 1000)
}

fn bounded(rules: &[&str], max_connections: usize) -> SecurityGroups {
    let connections = ConnectionsConfig { max_connections, ..ConnectionsConfig::default() };
    SecurityGroups::new(&[config(rules)], &Sets::new(), connections, (1, 2)).unwrap()
}

fn evaluate(
    groups: &mut SecurityGroups,
    direction: Direction,
    bytes: &[u8],
    millis: u64,
) -> Result<Pass, Refusal> {
    groups.evaluate(direction, &parsed(bytes), bytes, at(millis))
}

fn datagram(source: (&str, u16), destination: (&str, u16)) -> Vec<u8> {
    packet(source.0, destination.0, protocol::UDP, &udp(source.1, destination.1, &[]))
}

/// Returns a segment between 10.9.0.2:40000, the originator, and 10.0.0.1:80.
fn segment(direction: Direction, flags: TcpFlags, sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let numbers = (sequence, acknowledgement);
    match direction {
        IN => packet(
            THERE,
            HERE,
            protocol::TCP,
            &tcp_numbered((40_000, 80), flags, numbers, &[], &[]),
        ),
        OUT => packet(
            HERE,
            THERE,
            protocol::TCP,
            &tcp_numbered((80, 40_000), flags, numbers, &[], &[]),
        ),
    }
}

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const SYN_ACK: TcpFlags = TcpFlags(0x12);
const FIN_ACK: TcpFlags = TcpFlags(0x11);
const RST: TcpFlags = TcpFlags::RST;

const WEB: &[&str] = &["allow ingress tcp to any port 80 name http"];

/// Returns groups with a connection that both sides opened at 0.
fn established() -> SecurityGroups {
    let mut groups = groups(WEB);
    assert_eq!(evaluate(&mut groups, IN, &segment(IN, SYN, 100, 0), 0), Ok(Pass::Rule(0)));
    assert_eq!(
        evaluate(&mut groups, OUT, &segment(OUT, SYN_ACK, 500, 101), 0),
        Ok(Pass::Connection)
    );
    assert_eq!(evaluate(&mut groups, IN, &segment(IN, ACK, 101, 501), 0), Ok(Pass::Connection));
    groups
}

#[test]
fn replies_pass_where_requests_did_and_nothing_else() {
    let mut groups = established();
    let denied = Err(Refusal::Denied(None));
    assert_eq!(evaluate(&mut groups, OUT, &datagram((HERE, 1), (THERE, 53)), 1), denied);
    let other = packet(HERE, THERE, 6, &tcp_numbered((80, 40_001), SYN_ACK, (0, 0), &[], &[]));
    assert_eq!(evaluate(&mut groups, OUT, &other, 1), denied);
    assert_eq!(groups.connections(), 1);
    // The tenant cannot send as the other end.
    assert_eq!(evaluate(&mut groups, OUT, &segment(IN, ACK, 101, 501), 1), denied);
    let explanation = groups.explain(IN, &parsed(&segment(IN, SYN, 0, 0))).to_string();
    assert_eq!(explanation, "allow by web: 1000 allow ingress tcp to any port 80 name web/http");
    let counters = SecurityGroupCounters { passed: 3, denied: 3, ..Default::default() };
    assert_eq!(groups.counters(), counters);
}

#[test]
fn tcp_connections_live_as_long_as_rfc_5382_requires() {
    let ack = segment(OUT, ACK, 501, 101);
    let open = |millis| evaluate(&mut established(), OUT, &ack, millis);
    assert_eq!(open(7_439_999), Ok(Pass::Connection));
    assert_eq!(open(7_440_000), Err(Refusal::Denied(None)));
    // A connection opened by one side only expires after four minutes.
    let half = |millis| {
        let mut groups = groups(WEB);
        evaluate(&mut groups, IN, &segment(IN, SYN, 100, 0), 0).unwrap();
        evaluate(&mut groups, OUT, &segment(OUT, SYN_ACK, 500, 101), millis)
    };
    assert_eq!((half(239_999).is_ok(), half(240_000).is_ok()), (true, false));
    // A connection closed by one side lives as long as an open one, one closed by both four minutes.
    let mut groups = established();
    evaluate(&mut groups, IN, &segment(IN, FIN_ACK, 101, 501), 0).unwrap();
    assert!(evaluate(&mut groups, OUT, &ack, 7_000_000).is_ok());
    evaluate(&mut groups, OUT, &segment(OUT, FIN_ACK, 501, 102), 7_000_000).unwrap();
    assert!(evaluate(&mut groups, IN, &segment(IN, ACK, 102, 502), 7_239_999).is_ok());
    assert!(evaluate(&mut groups, OUT, &ack, 7_480_000).is_err());
}

#[test]
fn the_same_ports_may_be_used_again() {
    let mut groups = established();
    evaluate(&mut groups, IN, &segment(IN, FIN_ACK, 101, 501), 0).unwrap();
    evaluate(&mut groups, OUT, &segment(OUT, FIN_ACK, 501, 102), 0).unwrap();
    // The responder may not begin a connection; the originator may, by the rule.
    assert_eq!(evaluate(&mut groups, OUT, &segment(OUT, SYN, 9, 0), 1), Err(Refusal::Denied(None)));
    assert_eq!(evaluate(&mut groups, IN, &segment(IN, SYN, 9000, 0), 1), Ok(Pass::Rule(0)));
    assert_eq!(
        evaluate(&mut groups, OUT, &segment(OUT, SYN_ACK, 1, 9001), 2),
        Ok(Pass::Connection)
    );
    assert_eq!(groups.connections(), 1);
}

#[test]
fn only_a_reset_that_its_receiver_accepts_ends_a_connection() {
    let ack = segment(OUT, ACK, 501, 101);
    // The tenant expects 101 next; a reset before that, or a window after, is not accepted.
    for (sequence, trusted) in [(101, true), (50_000, true), (100, false), (1 << 31, false)] {
        let mut groups = established();
        assert!(evaluate(&mut groups, IN, &segment(IN, RST, sequence, 0), 0).is_ok());
        assert!(evaluate(&mut groups, OUT, &ack, 9_999).is_ok());
        let mut groups = established();
        evaluate(&mut groups, IN, &segment(IN, RST, sequence, 0), 0).unwrap();
        assert_eq!(evaluate(&mut groups, OUT, &ack, 10_000).is_err(), trusted, "{sequence}");
    }
    // A refused connection: the reset answers the first segment.
    let mut groups = groups(WEB);
    evaluate(&mut groups, IN, &segment(IN, SYN, 100, 0), 0).unwrap();
    assert!(evaluate(&mut groups, OUT, &segment(OUT, TcpFlags(0x14), 0, 101), 0).is_ok());
    assert!(evaluate(&mut groups, OUT, &ack, 10_000).is_err());
}

#[test]
fn a_connection_from_before_a_restart_continues_where_a_rule_allows_it() {
    let mut groups = groups(WEB);
    let ack = segment(OUT, ACK, 501, 101);
    assert!(evaluate(&mut groups, OUT, &ack, 0).is_err());
    assert_eq!(evaluate(&mut groups, IN, &segment(IN, ACK, 101, 501), 0), Ok(Pass::Rule(0)));
    assert_eq!(evaluate(&mut groups, OUT, &ack, 7_439_999), Ok(Pass::Connection));
}

#[test]
fn udp_connections_live_longer_after_a_reply() {
    let request = datagram((HERE, 5000), (THERE, 53));
    let reply = datagram((THERE, 53), (HERE, 5000));
    let requested = || {
        let mut groups = groups(&["allow egress udp to any port 53"]);
        assert_eq!(evaluate(&mut groups, IN, &reply, 0), Err(Refusal::Denied(None)));
        evaluate(&mut groups, OUT, &request, 0).unwrap();
        groups
    };
    assert!(evaluate(&mut requested(), IN, &reply, 29_999).is_ok());
    assert!(evaluate(&mut requested(), IN, &reply, 30_000).is_err());
    let replied = || {
        let mut groups = requested();
        evaluate(&mut groups, IN, &reply, 0).unwrap();
        groups
    };
    assert!(evaluate(&mut replied(), IN, &reply, 299_999).is_ok());
    assert!(evaluate(&mut replied(), IN, &reply, 300_000).is_err());
}

#[test]
fn an_echo_reply_passes_to_the_requester_only() {
    let ping = |kind, id| packet(HERE, THERE, protocol::ICMP, &icmp(kind, 0, id, &[]));
    let pong = |kind, id| packet(THERE, HERE, protocol::ICMP, &icmp(kind, 0, id, &[]));
    let mut groups = groups(&["allow egress icmp type 8"]);
    assert!(evaluate(&mut groups, IN, &pong(0, 7), 0).is_err());
    assert_eq!(evaluate(&mut groups, OUT, &ping(8, 7), 0), Ok(Pass::Rule(0)));
    assert_eq!(evaluate(&mut groups, IN, &pong(0, 7), 59_999), Ok(Pass::Connection));
    assert!(evaluate(&mut groups, IN, &pong(0, 8), 59_999).is_err());
    assert!(evaluate(&mut groups, IN, &pong(5, 7), 59_999).is_err(), "a redirect");
    assert!(evaluate(&mut groups, IN, &pong(0, 7), 119_999).is_err());
}

#[test]
fn icmp_errors_pass_to_the_sender_of_the_quoted_packet() {
    let v4 = datagram((HERE, 5000), (THERE, 53));
    let mut groups = groups(&["allow egress udp to any port 53"]);
    let error = |to: &str, quote: &[u8]| {
        // The sender is a router that has no connection with the tenant.
        packet("10.0.0.254", to, protocol::ICMP, &icmp(3, 1, 0, quote))
    };
    assert!(evaluate(&mut groups, IN, &error(HERE, &v4[14..]), 0).is_err());
    evaluate(&mut groups, OUT, &v4, 0).unwrap();
    assert_eq!(evaluate(&mut groups, IN, &error(HERE, &v4[14..]), 0), Ok(Pass::Related));
    // A quote as short as RFC 792 allows; a shorter one; one of another connection; an error to another machine;
    // one in the other IP version.
    assert_eq!(evaluate(&mut groups, IN, &error(HERE, &v4[14..42]), 0), Ok(Pass::Related));
    assert!(evaluate(&mut groups, IN, &error(HERE, &v4[14..37]), 0).is_err());
    let other = datagram((HERE, 5001), (THERE, 53));
    assert!(evaluate(&mut groups, IN, &error(HERE, &other[14..]), 0).is_err());
    assert!(evaluate(&mut groups, IN, &error("10.0.0.9", &v4[14..]), 0).is_err());
    let v6 = datagram(("2001:db8::1", 5000), ("2001:db8::2", 53));
    assert!(evaluate(&mut groups, IN, &error(HERE, &v6[14..]), 0).is_err());
    let error = packet("2001:db8::9", "2001:db8::1", 58, &icmp(2, 0, 0, &v6[14..]));
    assert!(evaluate(&mut groups, IN, &error, 0).is_err());
    evaluate(&mut groups, OUT, &v6, 0).unwrap();
    assert_eq!(evaluate(&mut groups, IN, &error, 0), Ok(Pass::Related));
}

#[test]
fn neighbour_discovery_passes_under_any_rules() {
    let mut groups = groups(&[]);
    let arp = ethernet(EtherType::ARP, &[&[0, 1, 8, 0, 6, 4, 0, 1][..], &[0; 20]].concat());
    assert_eq!(evaluate(&mut groups, IN, &arp, 0), Ok(Pass::Neighbours));
    let solicitation = packet("fe80::1", "ff02::1:ff00:2", 58, &icmp(135, 0, 0, &[0; 16]));
    assert_eq!(evaluate(&mut groups, OUT, &solicitation, 0), Ok(Pass::Neighbours));
    let mut routed = solicitation;
    routed[21] = 254;
    assert_eq!(evaluate(&mut groups, OUT, &routed, 0), Err(Refusal::Denied(None)));
    let other = ethernet(EtherType(0x88cc), &[0; 50]);
    assert_eq!(evaluate(&mut groups, IN, &other, 0), Err(Refusal::Denied(None)));
}

#[test]
fn later_fragments_pass_after_their_first_fragment() {
    let part = |identification: u8, units: u8| {
        let mut bytes = packet(THERE, HERE, protocol::UDP, &udp(5000, 53, &[0; 16]));
        (bytes[19], bytes[20], bytes[21]) = (identification, 0x20, units);
        bytes
    };
    let mut groups = groups(&["allow ingress udp to any port 53"]);
    assert_eq!(evaluate(&mut groups, IN, &part(1, 3), 0), Err(Refusal::NoFirstFragment));
    assert_eq!(evaluate(&mut groups, IN, &part(1, 0), 0), Ok(Pass::Rule(0)));
    assert_eq!(evaluate(&mut groups, IN, &part(1, 3), 59_999), Ok(Pass::Fragment));
    assert_eq!(evaluate(&mut groups, IN, &part(2, 3), 59_999), Err(Refusal::NoFirstFragment));
    assert_eq!(evaluate(&mut groups, IN, &part(1, 3), 60_000), Err(Refusal::NoFirstFragment));
    // As many first fragments as the table keeps.
    for identification in 0..=255 {
        evaluate(&mut groups, IN, &part(identification, 0), 60_000).unwrap();
    }
    assert!((0..=255).all(|id| evaluate(&mut groups, IN, &part(id, 3), 60_000).is_ok()));
    assert_eq!(groups.first_fragments.len(), MAX_FIRST_FRAGMENTS);
}

#[test]
fn a_flood_of_requests_evicts_no_connection_with_a_reply() {
    let mut groups = bounded(&["allow ingress udp"], 100);
    let request = |port| datagram((THERE, port), (HERE, 53));
    let reply = |port| datagram((HERE, 53), (THERE, port));
    for port in 0..50 {
        evaluate(&mut groups, IN, &request(port), 0).unwrap();
        evaluate(&mut groups, OUT, &reply(port), 0).unwrap();
    }
    assert!((50..20_000).all(|port| evaluate(&mut groups, IN, &request(port), 1000).is_ok()));
    assert_eq!(groups.connections(), 100);
    assert!(
        (0..50).all(|port| evaluate(&mut groups, OUT, &reply(port), 1000) == Ok(Pass::Connection))
    );
    // Connections with a reply fill the table, and then it has no room until they expire.
    for port in 20_000..20_050 {
        assert!(evaluate(&mut groups, IN, &request(port), 2000).is_ok());
        assert!(evaluate(&mut groups, OUT, &reply(port), 2000).is_ok());
    }
    assert_eq!(evaluate(&mut groups, IN, &request(30_000), 3000), Err(Refusal::TableFull));
    assert_eq!(groups.counters().table_full, 1);
    groups.sweep(1000, at(302_001));
    assert_eq!(groups.connections(), 0);
}

#[test]
fn new_rules_end_connections_that_they_do_not_allow_to_begin() {
    let mut groups = established();
    let mut rule = "allow ingress tcp from 10.0.0.0/8 to any port 80";
    let limits = ConnectionsConfig::default();
    let ack = segment(OUT, ACK, 501, 101);
    groups.set(&[config(&[rule])], &Sets::new(), limits).unwrap();
    assert_eq!(evaluate(&mut groups, OUT, &ack, 1), Ok(Pass::Connection));
    rule = "allow ingress tcp from 10.0.0.0/16 to any port 80";
    groups.set(&[config(&[rule])], &Sets::new(), limits).unwrap();
    assert_eq!(evaluate(&mut groups, OUT, &ack, 1), Err(Refusal::Denied(None)));
    assert_eq!(groups.connections(), 0);
    // Wrong rules change nothing.
    let mut groups = established();
    let wrong = config(&["allow ingress any from @nobody"]);
    assert!(groups.set(&[wrong], &Sets::new(), limits).is_err());
    assert_eq!(evaluate(&mut groups, OUT, &ack, 1), Ok(Pass::Connection));
}

#[test]
fn new_limits_count_for_the_next_packets() {
    let rules = ["allow ingress udp"];
    let mut groups = groups(&rules);
    let request = |port| datagram((THERE, port), (HERE, 53));
    let reply = |port| datagram((HERE, 53), (THERE, port));
    assert!(evaluate(&mut groups, IN, &request(1), 0).is_ok());
    let udp_established = Duration::from_secs(1);
    let limits = ConnectionsConfig { max_connections: 1, udp_established, ..Default::default() };
    groups.set(&[config(&rules)], &Sets::new(), limits).unwrap();
    assert_eq!(evaluate(&mut groups, OUT, &reply(1), 1), Ok(Pass::Connection));
    assert_eq!(evaluate(&mut groups, IN, &request(2), 2), Err(Refusal::TableFull));
    assert!(evaluate(&mut groups, IN, &request(2), 1_001).is_ok());
}

/// Compares random datagrams between few ends with a plain list of the connections.
#[test]
fn a_datagram_passes_by_a_rule_or_by_its_connection() {
    for seed in 0..100 {
        let mut rng = Seed(seed).child("groups", 0).rng();
        let mut groups = groups(&["allow egress udp", "allow ingress udp to any port 1"]);
        // By the two ports: the originator's direction, `true` after a reply, and the expiry.
        let mut model: BTreeMap<(u16, u16), (Direction, bool, u64)> = BTreeMap::new();
        let mut now = 0;
        for _ in 0..500 {
            now += rng.below(40_000);
            let port = |rng: &mut weft_units::Rng| u16::try_from(rng.below(4)).unwrap();
            let (here, there) = (port(&mut rng), port(&mut rng));
            let direction = [IN, OUT][rng.index(2)];
            let bytes = match direction {
                IN => datagram((THERE, there), (HERE, here)),
                OUT => datagram((HERE, here), (THERE, there)),
            };
            let known = model.get(&(here, there)).copied().filter(|&(.., until)| now < until);
            let allowed = direction == OUT || here == 1;
            let expected = match known {
                Some((began, answered, _)) => {
                    let answered = answered || began != direction;
                    let until = now + if answered { 300_000 } else { 30_000 };
                    model.insert((here, there), (began, answered, until));
                    true
                }
                None => {
                    if allowed {
                        model.insert((here, there), (direction, false, now + 30_000));
                    }
                    allowed
                }
            };
            assert_eq!(
                evaluate(&mut groups, direction, &bytes, now).is_ok(),
                expected,
                "seed {seed}"
            );
        }
    }
}
