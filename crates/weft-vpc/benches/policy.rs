//! The cost of a decision on a frame: `cargo bench -p weft-vpc --bench policy`.
//!
//! Prints nanoseconds per operation, the minimum of seven rounds: other work on the machine can only add time.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use weft_units::{Instant as Time, Rng, Seed};
use weft_vpc::{
    Acl, AclConfig, Action, ConnectionsConfig, Direction, Ends, Frame, Net, Ports, Prefix, Rule,
    SecurityGroupConfig, SecurityGroups, Sets, protocol,
};
use weft_wire::{Ecn, EtherType, EthernetHeader, Ipv4Header, Ipv4Options, MacAddr, U6, U13};

const ROUNDS: u32 = 7;
/// Number of frames used in rotation, so that neither the branch predictor nor the cache learns one answer.
const FRAMES: usize = 1024;

/// Returns the time of an operation, nanoseconds: the minimum of [`ROUNDS`] rounds.
#[expect(clippy::disallowed_methods, reason = "a benchmark is a clock's one use here")]
fn nanoseconds(operations: u32, mut operation: impl FnMut(usize)) -> f64 {
    let mut next = 0;
    let round = |_| {
        let start = Instant::now();
        for _ in 0..operations {
            operation(next % FRAMES);
            next += 1;
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(operations)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Returns the time that `make` takes, milliseconds, and the result of `make`.
#[expect(clippy::disallowed_methods, reason = "a benchmark is a clock's one use here")]
fn timed<T>(make: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let made = make();
    (start.elapsed().as_secs_f64() * 1e3, made)
}

/// Returns a UDP datagram over IPv4 in a frame.
fn datagram(source: Ipv4Addr, destination: Ipv4Addr, port: u16) -> Vec<u8> {
    let ethernet = EthernetHeader {
        destination: MacAddr([2, 0, 0, 0, 0, 2]),
        source: MacAddr([2, 0, 0, 0, 0, 1]),
        ethertype: EtherType::IPV4,
    };
    let ip = Ipv4Header {
        dscp: U6::default(),
        ecn: Ecn::NotCapable,
        payload_len: 8,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: U13::default(),
        ttl: 64,
        protocol: protocol::UDP,
        source,
        destination,
        options: Ipv4Options::NONE,
    };
    let mut bytes = vec![0; EthernetHeader::LEN + Ipv4Header::LEN];
    ethernet.emit(&mut bytes);
    ip.emit(&mut bytes[EthernetHeader::LEN..]);
    bytes.extend([0x9c, 0x40]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    bytes
}

/// A function that returns a random rule of a list.
type Shape = fn(&mut Rng) -> Rule;

/// Returns a rule with a prefix, a protocol and a port, as in the lists of clouds.
fn usual(rng: &mut Rng) -> Rule {
    let len = [16, 24, 24, 32][rng.index(4)];
    let port = u16::try_from(rng.below(1024)).expect("below 1,024");
    Rule {
        protocol: Some([protocol::TCP, protocol::UDP][rng.index(2)]),
        from: Ends { net: net(len, rng), ports: None },
        to: Ends { net: Net::Any, ports: Ports::new(port, port) },
        ..Rule::new(Action::Allow, Direction::Ingress)
    }
}

/// Returns a rule of any pair of prefix lengths: the most tuples that rules can form.
fn any_lengths(rng: &mut Rng) -> Rule {
    let (from, to) = (1 + rng.below(32), 1 + rng.below(32));
    Rule {
        from: Ends { net: net(from, rng), ports: None },
        to: Ends { net: net(to, rng), ports: None },
        ..Rule::new(Action::Allow, Direction::Ingress)
    }
}

/// Returns a rule without prefixes, with a range of ports.
fn ports_only(rng: &mut Rng) -> Rule {
    let first = u16::try_from(rng.below(1024)).expect("below 1,024");
    let last = first + u16::try_from(rng.below(16)).expect("below 16");
    Rule {
        protocol: Some(protocol::UDP),
        to: Ends { net: Net::Any, ports: Ports::new(first, last) },
        ..Rule::new(Action::Allow, Direction::Ingress)
    }
}

/// Returns one of the 65,536 addresses of 10.0/16, so that rules match frames.
fn address(rng: &mut Rng) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | (rng.next_u32() >> 16))
}

fn net(len: u64, rng: &mut Rng) -> Net {
    let len = u8::try_from(len).expect("at most 32");
    Net::Prefix(Prefix::new(IpAddr::V4(address(rng)), len).expect("at most 32"))
}

fn main() {
    let mut rng = Seed(1).child("policy", 0).rng();
    let frames: Vec<_> = (0..FRAMES)
        .map(|_| {
            let port = u16::try_from(rng.below(1024)).expect("below 1,024");
            datagram(address(&mut rng), address(&mut rng), port)
        })
        .collect();
    let parse = nanoseconds(2_000_000, |index| {
        let bytes = black_box(&frames[index]);
        black_box(&Frame::parse(bytes, bytes.len()));
    });
    println!("parse a frame: {parse:.1} ns");

    let frames: Vec<_> =
        frames.iter().map(|bytes| Frame::parse(bytes, bytes.len()).expect("a frame")).collect();
    println!("{:<22} {:>7} {:>9} {:>8} {:>9}", "access list", "rules", "ns", "matched", "build ms");
    let shapes: [(&str, Shape); 3] =
        [("usual", usual), ("any lengths", any_lengths), ("ports only", ports_only)];
    for (name, shape) in shapes {
        for count in [1, 100, 10_000, 100_000] {
            let rules = (0..count).map(|_| shape(&mut rng)).collect();
            let config = AclConfig { name: name.into(), default: Action::Deny, rules };
            let (build, mut acl) = timed(|| Acl::new(&config, &Sets::new()).expect("good rules"));
            let ns = nanoseconds(200_000, |index| {
                black_box(acl.evaluate(Direction::Ingress, black_box(&frames[index])));
            });
            let decided =
                frames.iter().filter(|frame| acl.explain(Direction::Ingress, frame).rule.is_some());
            println!(
                "{name:<22} {count:>7} {ns:>9.1} {:>7.1}% {build:>9.2}",
                decided.count() as f64 * 100.0 / FRAMES as f64
            );
        }
    }

    println!("{:<22} {:>11} {:>5}", "security group", "connections", "ns");
    for count in [FRAMES, 100_000] {
        let rules = vec![Rule::new(Action::Allow, Direction::Ingress)];
        let group = SecurityGroupConfig { name: "any".into(), members: Vec::new(), rules };
        let connections =
            ConnectionsConfig { max_connections: count, ..ConnectionsConfig::default() };
        let groups = SecurityGroups::new(&[group], &Sets::new(), connections, (1, 2));
        let mut groups = groups.expect("good rules");
        let bytes: Vec<_> = (0..count)
            .map(|_| {
                let port = u16::try_from(rng.below(1024)).expect("below 1,024");
                datagram(address(&mut rng), address(&mut rng), port)
            })
            .collect();
        let frames: Vec<_> =
            bytes.iter().map(|bytes| Frame::parse(bytes, bytes.len()).expect("a frame")).collect();
        let mut evaluate_frame = |index: usize| {
            let verdict =
                groups.evaluate(Direction::Ingress, &frames[index], &bytes[index], Time::EPOCH);
            assert!(black_box(verdict).is_ok(), "everything may come");
        };
        (0..count).for_each(&mut evaluate_frame);
        // The frames are far apart, so that no connection is still in the cache.
        let ns = nanoseconds(200_000, |index| evaluate_frame(index * (count / FRAMES)));
        println!("{:<22} {count:>11} {ns:>5.1}", "a connection's frame");
    }
}
