//! The rendezvous of ranks at rank 0's address: over TCP each rank sends one line with the job's token, its number and
//! its address, and receives one line with the addresses of all.
//!
//! Rank 0 closes a connection without the token, and no other rank is affected. A rank with the token and with wrong
//! options ends the job for all, with the reason, so that a mistake in a launcher shows at once. Lines are not
//! encrypted: the token does not protect against attackers who can read the network's packets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time;

use weft_guard::{Token, is_exposed};
use weft_units::{Duration, Instant};

use crate::CommError;
use crate::callers::{Caller, Callers};
use crate::error::{AnswerError, socket};
use crate::line::{MAX_LINE, NAME};
use crate::options::TOKEN_VARIABLE;
use crate::wait::wait;

/// The word in place of a missing token.
const NO_TOKEN: &str = "-";
/// Maximum time to send the answer to a rank.
const ANSWER_TIMEOUT: time::Duration = time::Duration::from_secs(2);
/// The interval between attempts to reach rank 0 before it listens.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A rank and the address on which it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The rank's number.
    pub rank: usize,
    /// Number of ranks of the group.
    pub ranks: usize,
    /// The port on which it accepts channels.
    pub port: u16,
    /// The rank's address, if it differs from that of its connection to rank 0.
    pub address: Option<IpAddr>,
    /// The text that must be equal on all ranks, without spaces.
    pub agreement: String,
    /// The job's token. Without one, ranks meet on loopback only.
    pub token: Option<Token>,
    /// The time limit for a connection to rank 0 to identify its rank.
    pub hello_timeout: Duration,
}

/// The addresses of all ranks, and the group's secret number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) group: u64,
}

/// Returns the time of the monotonic clock.
pub(crate) fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let positive = "the clock counts up from zero";
    let seconds = u64::try_from(time.tv_sec).expect(positive);
    Instant::from_nanos(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect(positive))
}

/// Returns an unguessable number.
///
/// # Panics
/// If the kernel has no randomness, which it always has for eight bytes.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the kernel has randomness");
    u64::from_ne_bytes(bytes)
}

/// Exchanges the addresses of all ranks of a group at rank 0's address. Returns them by rank number.
///
/// # Errors
/// Returns `Rank` for an invalid number, `NoToken` if other hosts reach the address and the job has no token, `Socket`
/// if rank 0 cannot be reached or cannot listen, `Missing` if ranks do not join in time, and `Refused` or `Options` if
/// rank 0 refuses a rank.
pub fn rendezvous(
    at: SocketAddr,
    member: &Member,
    timeout: Duration,
) -> Result<Vec<SocketAddr>, CommError> {
    meet(at, member, timeout).map(|found| found.addresses)
}

/// Exchanges the addresses of all ranks at rank 0's address. Returns them with the group's number.
///
/// # Errors
/// Returns the errors of [`rendezvous`].
pub(crate) fn meet(at: SocketAddr, member: &Member, timeout: Duration) -> Result<Found, CommError> {
    let Member { rank, ranks, .. } = *member;
    if rank >= ranks {
        return Err(CommError::Rank { rank, ranks });
    }
    check_token(member.token.as_ref(), &[at])?;
    let until = now() + timeout;
    if rank == 0 { run_rank_zero(at, member, until) } else { run_other_rank(at, member, until) }
}

/// Checks that a job without a token uses addresses of this host only.
///
/// # Errors
/// Returns `NoToken` if other hosts reach one of these addresses and the job has no token.
pub(crate) fn check_token(token: Option<&Token>, at: &[SocketAddr]) -> Result<(), CommError> {
    let exposed = at.iter().find(|at| is_exposed(at.ip())).filter(|_| token.is_none());
    exposed.map_or(Ok(()), |&at| Err(CommError::NoToken { at, variable: TOKEN_VARIABLE }))
}

/// A rank that has joined: its address, and its connection, which rank 0 itself does not have.
type Joined = Option<(SocketAddr, Option<TcpStream>)>;

/// Runs rank 0: receives every rank's line, and answers all.
fn run_rank_zero(at: SocketAddr, member: &Member, until: Instant) -> Result<Found, CommError> {
    let mut callers = Callers::listen(at, member.hello_timeout)?;
    let ranks = member.ranks;
    let mut joined: Vec<Joined> = (0..ranks).map(|_| None).collect();
    let own = member.address.unwrap_or_else(|| at.ip());
    joined[0] = Some((SocketAddr::new(own, member.port), None));
    while joined.iter().any(Option::is_none) {
        let time = now();
        if time >= until {
            let missing = (0..ranks).filter(|&rank| joined[rank].is_none());
            let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
            let joined_count = joined.iter().flatten().count();
            let missing = missing.join(", ");
            answer(&mut joined, &format!("error ranks {missing} did not come in time"));
            return Err(CommError::Missing { at, came: joined_count, ranks, missing });
        }
        let Some((caller, line)) = callers.next(time, |head| member.has_token(head)) else {
            if callers.accept(time)? == 0 {
                callers.wait(time, until);
            }
            continue;
        };
        match parse_caller(&line, caller.peer, member, &joined) {
            Ok((rank, address)) => add_member(&mut joined, rank, address, caller),
            Err(Unfit::Foreign(why)) => callers.refuse(caller, &why, time),
            Err(Unfit::Member(why)) => {
                callers.refuse(caller, &why, time);
                answer(&mut joined, &format!("error {why}"));
                return Err(CommError::Options(why));
            }
        }
    }
    let addresses: Vec<SocketAddr> = joined.iter().flatten().map(|(address, _)| *address).collect();
    let group = random();
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    answer(&mut joined, &format!("ok {group} {}", list.join(",")));
    Ok(Found { addresses, group })
}

/// Adds a rank of the group.
fn add_member(joined: &mut [Joined], rank: usize, address: SocketAddr, caller: Caller) {
    // Rank 0 may listen on every address: this is the one by which others reach it.
    if let (Some((own, _)), Ok(local)) = (&mut joined[0], caller.connection.local_addr())
        && own.ip().is_unspecified()
    {
        own.set_ip(local.ip());
    }
    joined[rank] = Some((address, Some(caller.connection)));
}

/// The reason to refuse a connection.
enum Unfit {
    /// The connection is of no rank of the job; others are not affected.
    Foreign(String),
    /// The rank does not fit the group; the job ends.
    Member(String),
}

impl Member {
    /// Returns the word of its line that contains the token.
    fn token_word(&self) -> &str {
        self.token.as_ref().map_or(NO_TOKEN, Token::reveal)
    }

    /// Returns `true` if the beginning of a line has the job's token.
    fn has_token(&self, head: &str) -> bool {
        let mut words = head.split_whitespace();
        let (name, presented) = (words.next(), words.next());
        // The last word may be incomplete.
        name == Some(NAME) && words.next().is_some() && presented.is_some_and(|it| self.admits(it))
    }

    /// Returns `true` if this is the word of the job's token, or of its absence.
    fn admits(&self, presented: &str) -> bool {
        self.token.as_ref().map_or(presented == NO_TOKEN, |token| token.is(presented))
    }
}

/// Parses a rank's line: `weft-coll-2 TOKEN RANK PORT ADDRESS AGREEMENT`.
fn parse_caller(
    line: &str,
    peer: SocketAddr,
    member: &Member,
    joined: &[Joined],
) -> Result<(usize, SocketAddr), Unfit> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [NAME, presented, rank, port, address, agreement] = words[..] else {
        return Err(Unfit::Foreign("this is rank 0 of a group, which you do not speak to".into()));
    };
    if !member.admits(presented) {
        return Err(Unfit::Foreign(match (&member.token, presented) {
            (Some(_), NO_TOKEN) => {
                format!("this job has a token, and you show none: set {TOKEN_VARIABLE}")
            }
            (Some(_), _) => format!("that is not this job's token: check {TOKEN_VARIABLE}"),
            (None, _) => format!("this rank 0 has no token: set {TOKEN_VARIABLE} for it too"),
        }));
    }
    let malformed = || Unfit::Foreign("that is no rank's line".into());
    let rank: usize = rank.parse().map_err(|_| malformed())?;
    let port: u16 = port.parse().map_err(|_| malformed())?;
    let ip = match address {
        "-" => peer.ip(),
        address => address.parse().map_err(|_| malformed())?,
    };
    // Only the token distinguishes a rank with wrong options from a foreign process.
    let unfit = |why: String| match member.token {
        Some(_) => Unfit::Member(why),
        None => Unfit::Foreign(why),
    };
    if agreement != member.agreement {
        let (ours, theirs) = (&member.agreement, agreement);
        return Err(unfit(format!("rank 0 has {ours}, rank {rank} has {theirs}")));
    }
    match joined.get(rank) {
        Some(None) => Ok((rank, SocketAddr::new(ip, port))),
        Some(Some((other, _))) => {
            Err(unfit(format!("{peer} says it is rank {rank}, which {other} is already")))
        }
        None => Err(unfit(format!("{peer} says it is rank {rank} of {}", joined.len()))),
    }
}

/// Sends an answer to all ranks that have joined.
fn answer(joined: &mut [Joined], what: &str) {
    for connection in joined.iter_mut().flatten().filter_map(|(_, connection)| connection.as_mut())
    {
        let sent = connection
            .set_nonblocking(false)
            .and_then(|()| connection.set_write_timeout(Some(ANSWER_TIMEOUT)))
            .and_then(|()| writeln!(connection, "{NAME} {what}"));
        // A rank that has disconnected is found missing when channels are opened.
        drop(sent);
    }
}

/// Reads the line of rank 0's answer.
fn read_line_from(connection: &TcpStream) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(connection.take(MAX_LINE as u64)).read_line(&mut line)?;
    Ok(line)
}

/// Runs the other ranks: each sends its line and receives the addresses of all.
fn run_other_rank(at: SocketAddr, member: &Member, until: Instant) -> Result<Found, CommError> {
    let Member { rank, port, address, agreement, .. } = member;
    let doing = || format!("asking rank 0 at {at}");
    let mut connection = loop {
        let left = time::Duration::from_nanos(until.since(now()).as_nanos().max(1_000_000));
        match TcpStream::connect_timeout(&at, left) {
            Ok(connection) => break connection,
            Err(error) if until <= now() => return Err(socket(doing())(error)),
            // Rank 0 does not listen yet.
            Err(_) => wait(&mut [], RETRY_INTERVAL),
        }
    };
    let address = address.map_or("-".into(), |address| address.to_string());
    let presented = member.token_word();
    writeln!(connection, "{NAME} {presented} {rank} {port} {address} {agreement}")
        .map_err(socket(doing()))?;
    // If a rank is missing at the deadline, rank 0 sends an error, so wait longer than rank 0 does.
    let left = time::Duration::from_nanos(until.since(now()).as_nanos()) + 2 * ANSWER_TIMEOUT;
    connection.set_read_timeout(Some(left)).map_err(socket(doing()))?;
    let line = read_line_from(&connection).map_err(socket(doing()))?;
    read_answer(&line, member.ranks).map_err(|why| CommError::Refused { at, why })
}

/// Parses rank 0's answer, the addresses of all ranks.
fn read_answer(line: &str, ranks: usize) -> Result<Found, AnswerError> {
    let Some(rest) = line.strip_prefix(NAME) else {
        return Err(match line.trim() {
            "" => AnswerError::Closed,
            other => AnswerError::Foreign(other.into()),
        });
    };
    if let Some(why) = rest.trim().strip_prefix("error ") {
        return Err(AnswerError::Refused(why.into()));
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    let malformed = || AnswerError::Malformed(rest.into());
    let ["ok", group, list] = words[..] else { return Err(malformed()) };
    let group = group.parse().map_err(|_| malformed())?;
    let addresses: Result<Vec<SocketAddr>, _> = list.split(',').map(str::parse).collect();
    let addresses = addresses.map_err(|_| malformed())?;
    if addresses.len() == ranks { Ok(Found { addresses, group }) } else { Err(malformed()) }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
#[cfg(test)]
mod tests;
