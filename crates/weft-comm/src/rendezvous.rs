//! Ranks find each other at rank 0's address: over TCP each says who it is and where it listens, and hears where all
//! are. A line there, a line back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_units::{Duration, Instant};

use crate::CommError;
use crate::error::socket;

/// Begins both lines; the number is the version.
const NAME: &str = "weft-coll-1";
/// The longest line: a rank's is short, the answer has an address for each rank.
const LONGEST: u64 = 1 << 20;
/// How long who has connected may take for its line.
const LINE: time::Duration = time::Duration::from_secs(2);
/// How long a rank rests before it looks again for a rank 0 that does not listen yet.
const AGAIN: Duration = Duration::from_millis(50);

/// Who a rank is, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub rank: usize,
    /// Ranks of the group.
    pub ranks: usize,
    /// The port that it takes channels at.
    pub port: u16,
    /// Its address, where it is to be another than that it reaches rank 0 by.
    pub address: Option<IpAddr>,
    /// What all ranks must agree on, without spaces.
    pub agreement: String,
}

/// Where all ranks are, and a number that nobody else has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) token: u64,
}

pub(crate) fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let positive = "the clock counts up from zero";
    let seconds = u64::try_from(time.tv_sec).expect(positive);
    Instant::from_nanos(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect(positive))
}

pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the clock still tells two groups of a machine apart.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => now().as_nanos(),
    }
}

/// Brings all ranks of a group together at an address, which rank 0 listens at: where each of them is, by number.
///
/// # Errors
/// The address is not rank 0's, ranks do not come in time, or do not agree.
pub fn rendezvous(
    at: SocketAddr,
    member: &Member,
    patience: Duration,
) -> Result<Vec<SocketAddr>, CommError> {
    meet(at, member, patience).map(|found| found.addresses)
}

pub(crate) fn meet(
    at: SocketAddr,
    member: &Member,
    patience: Duration,
) -> Result<Found, CommError> {
    let Member { rank, ranks, .. } = *member;
    if rank >= ranks {
        return Err(CommError::Rank { rank, ranks });
    }
    let until = now() + patience;
    if rank == 0 { gather(at, member, until) } else { ask(at, member, until) }
}

/// Rank 0: hears who comes, and tells all.
fn gather(at: SocketAddr, member: &Member, until: Instant) -> Result<Found, CommError> {
    let listening = format!("listening at {at}");
    let listener = TcpListener::bind(at).map_err(socket(listening.clone()))?;
    listener.set_nonblocking(true).map_err(socket(listening))?;
    let ranks = member.ranks;
    let mut came: Vec<Option<(SocketAddr, Option<TcpStream>)>> = (0..ranks).map(|_| None).collect();
    let own = member.address.unwrap_or_else(|| at.ip());
    came[0] = Some((SocketAddr::new(own, member.port), None));
    while came.iter().any(Option::is_none) {
        let Some((mut connection, peer)) = accept(&listener, until)? else {
            let missing: Vec<String> = (0..ranks)
                .filter(|&rank| came[rank].is_none())
                .map(|rank| rank.to_string())
                .collect();
            let there = came.iter().flatten().count();
            let missing = missing.join(", ");
            let why = format!("error ranks {missing} did not come in time");
            answer(&mut came, &why);
            return Err(CommError::Missing { at, came: there, ranks, missing });
        };
        let heard = read_line(&mut connection).and_then(|line| hear(&line, peer, member, &came));
        match heard {
            Ok((rank, address)) => {
                // Rank 0 may listen at every address: this is the one that others reach it by.
                if let (Some((own, _)), Ok(local)) = (&mut came[0], connection.local_addr())
                    && own.ip().is_unspecified()
                {
                    own.set_ip(local.ip());
                }
                came[rank] = Some((address, Some(connection)));
            }
            // Whoever is not of this group is sent away; who is and does not fit ends it for all.
            Err(Unfit::Stranger(why)) => drop(writeln!(connection, "{NAME} error {why}")),
            Err(Unfit::Member(why)) => {
                let _ = writeln!(connection, "{NAME} error {why}");
                answer(&mut came, &format!("error {why}"));
                return Err(CommError::Options(why));
            }
        }
    }
    let addresses: Vec<SocketAddr> = came.iter().flatten().map(|(address, _)| *address).collect();
    let token = random();
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    answer(&mut came, &format!("ok {token} {}", list.join(",")));
    Ok(Found { addresses, token })
}

/// Why somebody who came is none of the group.
enum Unfit {
    Stranger(String),
    Member(String),
}

fn accept(
    listener: &TcpListener,
    until: Instant,
) -> Result<Option<(TcpStream, SocketAddr)>, CommError> {
    loop {
        match listener.accept() {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(socket("taking a rank's connection")(error)),
        }
        let left = until.since(now());
        if left == Duration::ZERO {
            return Ok(None);
        }
        wait(&mut [PollFd::new(listener, PollFlags::IN)], left);
    }
}

/// Waits for descriptors, or for a time.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>], patience: Duration) {
    let nanos = patience.as_nanos().min(3_600_000_000_000);
    let timeout = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).expect("an hour at most"),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).expect("less than a second"),
    };
    // An interrupted wait is a short one.
    let _ = poll(descriptors, Some(&timeout));
}

fn read_line(connection: &mut TcpStream) -> Result<String, Unfit> {
    let stranger = |error: std::io::Error| Unfit::Stranger(error.to_string());
    connection.set_nonblocking(false).map_err(stranger)?;
    connection.set_read_timeout(Some(LINE)).map_err(stranger)?;
    connection.set_write_timeout(Some(LINE)).map_err(stranger)?;
    line_of(connection).map_err(stranger)
}

fn line_of(connection: &TcpStream) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(connection.take(LONGEST)).read_line(&mut line)?;
    Ok(line)
}

/// Reads who somebody is: `weft-coll-1 RANK PORT ADDRESS AGREEMENT`.
fn hear(
    line: &str,
    peer: SocketAddr,
    member: &Member,
    came: &[Option<(SocketAddr, Option<TcpStream>)>],
) -> Result<(usize, SocketAddr), Unfit> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [NAME, rank, port, address, agreement] = words[..] else {
        return Err(Unfit::Stranger("this is rank 0 of a group, which you do not speak to".into()));
    };
    let malformed = || Unfit::Stranger(format!("{line:?} is no rank's line"));
    let rank: usize = rank.parse().map_err(|_| malformed())?;
    let port: u16 = port.parse().map_err(|_| malformed())?;
    let ip = match address {
        "-" => peer.ip(),
        address => address.parse().map_err(|_| malformed())?,
    };
    if agreement != member.agreement {
        let (ours, theirs) = (&member.agreement, agreement);
        return Err(Unfit::Member(format!("rank 0 has {ours}, rank {rank} has {theirs}")));
    }
    match came.get(rank) {
        Some(None) => Ok((rank, SocketAddr::new(ip, port))),
        Some(Some((other, _))) => {
            Err(Unfit::Member(format!("{peer} says it is rank {rank}, which {other} is already")))
        }
        None => Err(Unfit::Member(format!("{peer} says it is rank {rank} of {}", came.len()))),
    }
}

fn answer(came: &mut [Option<(SocketAddr, Option<TcpStream>)>], what: &str) {
    for connection in came.iter_mut().flatten().filter_map(|(_, connection)| connection.as_mut()) {
        // Who is gone again is missed when channels are made.
        let _ = writeln!(connection, "{NAME} {what}");
    }
}

/// The others: say who they are, and hear where all are.
fn ask(at: SocketAddr, member: &Member, until: Instant) -> Result<Found, CommError> {
    let Member { rank, port, address, agreement, .. } = member;
    let doing = || format!("asking rank 0 at {at}");
    let mut connection = loop {
        let left = time::Duration::from_nanos(until.since(now()).as_nanos().max(1_000_000));
        match TcpStream::connect_timeout(&at, left) {
            Ok(connection) => break connection,
            Err(error) if until <= now() => return Err(socket(doing())(error)),
            // It does not listen yet.
            Err(_) => wait(&mut [], AGAIN),
        }
    };
    let address = address.map_or("-".into(), |address| address.to_string());
    writeln!(connection, "{NAME} {rank} {port} {address} {agreement}").map_err(socket(doing()))?;
    // Rank 0 gives up when the last does not come; then it says so.
    let left = time::Duration::from_nanos(until.since(now()).as_nanos()) + 2 * LINE;
    connection.set_read_timeout(Some(left)).map_err(socket(doing()))?;
    let line = line_of(&connection).map_err(socket(doing()))?;
    read_answer(&line, member.ranks).map_err(|why| CommError::Refused { at, why })
}

/// Reads where all are.
fn read_answer(line: &str, ranks: usize) -> Result<Found, String> {
    let Some(rest) = line.strip_prefix(NAME) else {
        return Err(match line.trim() {
            "" => "it closed the connection".into(),
            other => format!("it is no rank 0 and says {other:?}"),
        });
    };
    if let Some(why) = rest.trim().strip_prefix("error ") {
        return Err(why.into());
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    let malformed = || format!("its answer {rest:?} cannot be read");
    let ["ok", token, list] = words[..] else { return Err(malformed()) };
    let token = token.parse().map_err(|_| malformed())?;
    let addresses: Result<Vec<SocketAddr>, _> = list.split(',').map(str::parse).collect();
    let addresses = addresses.map_err(|_| malformed())?;
    if addresses.len() == ranks { Ok(Found { addresses, token }) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: usize, ranks: usize) -> Member {
        let port = 7000 + u16::try_from(rank).unwrap();
        Member { rank, ranks, port, address: None, agreement: format!("ranks={ranks}") }
    }

    /// A port that nobody has now.
    fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn all(members: Vec<Member>, patience: Duration) -> Vec<Result<Vec<SocketAddr>, String>> {
        let at = free();
        let threads: Vec<_> = members
            .into_iter()
            .rev()
            .map(|member| {
                std::thread::spawn(move || {
                    rendezvous(at, &member, patience).map_err(|error| error.to_string())
                })
            })
            .collect();
        threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn all_hear_where_all_are_whoever_comes_first() {
        let found = all((0..5).map(|rank| member(rank, 5)).collect(), Duration::from_secs(20));
        let want: Vec<SocketAddr> =
            (0..5).map(|rank| format!("127.0.0.1:{}", 7000 + rank).parse().unwrap()).collect();
        for addresses in found {
            assert_eq!(addresses, Ok(want.clone()));
        }
    }

    #[test]
    fn who_does_not_come_or_fit_is_named_to_all() {
        let found = all(vec![member(0, 3), member(2, 3)], Duration::from_millis(300));
        assert!(found[0].as_ref().unwrap_err().contains("only 2 of 3 ranks came"), "{found:?}");
        assert!(found[1].as_ref().unwrap_err().contains("ranks 1 did not come"), "{found:?}");

        let other = Member { agreement: "ranks=3,lanes=9".into(), ..member(1, 3) };
        let found = all(vec![member(0, 3), other], Duration::from_secs(20));
        for said in found {
            let said = said.unwrap_err();
            assert!(said.contains("rank 0 has ranks=3, rank 1 has ranks=3,lanes=9"), "{said}");
        }
        let twice = all(vec![member(0, 3), member(1, 3), member(1, 3)], Duration::from_secs(20));
        assert!(twice[0].as_ref().unwrap_err().contains("says it is rank 1"), "{twice:?}");
        let beyond = rendezvous(free(), &member(3, 3), Duration::ZERO).unwrap_err();
        assert_eq!(beyond.to_string(), "rank 3 of 3: ranks are numbered from 0");
    }

    #[test]
    fn strangers_are_sent_away_and_hold_nobody_up() {
        let at = free();
        let zero =
            std::thread::spawn(move || rendezvous(at, &member(0, 2), Duration::from_secs(20)));
        let until = now() + Duration::from_secs(20);
        for words in ["GET / HTTP/1.0\r\n", "weft-coll-1 x 1 - y\n", "\u{0}\n"] {
            let mut stranger = loop {
                match TcpStream::connect(at) {
                    Ok(connected) => break connected,
                    Err(error) => assert!(now() < until, "{error}"),
                }
            };
            stranger.write_all(words.as_bytes()).unwrap();
            let mut said = String::new();
            let _ = stranger.read_to_string(&mut said);
            assert!(said.contains("error"), "{said}");
        }
        rendezvous(at, &member(1, 2), Duration::from_secs(20)).unwrap();
        assert_eq!(zero.join().unwrap().unwrap().len(), 2);
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        for line in [
            "",
            "weft-coll-1",
            "weft-coll-1 ok 1 1.2.3.4:5",
            "weft-coll-1 ok x 1.2.3.4:5,1.2.3.4:6",
            "HTTP/1.0 200\n",
        ] {
            assert!(read_answer(line, 2).is_err(), "{line:?}");
        }
    }
}
