use std::net::TcpListener;

use super::*;

fn token() -> Token {
    Token::random().unwrap()
}

fn member(rank: usize, ranks: usize) -> Member {
    let port = 7000 + u16::try_from(rank).unwrap();
    let hello_timeout = Duration::from_secs(2);
    let agreement = format!("ranks={ranks}");
    Member { rank, ranks, port, address: None, agreement, token: None, hello_timeout }
}

/// Returns an address with a free port.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn all(members: Vec<Member>, timeout: Duration) -> Vec<Result<Vec<SocketAddr>, String>> {
    let at = free();
    let threads: Vec<_> = members
        .into_iter()
        .rev()
        .map(|member| {
            std::thread::spawn(move || {
                rendezvous(at, &member, timeout).map_err(|error| error.to_string())
            })
        })
        .collect();
    threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
}

/// Connects as soon as rank 0 listens.
fn connect(at: SocketAddr) -> TcpStream {
    let until = now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(at) {
            Ok(connected) => return connected,
            Err(error) => assert!(now() < until, "{error}"),
        }
    }
}

/// Returns rank 0's answer to a line.
fn answer_to(at: SocketAddr, words: &str) -> String {
    let mut connection = connect(at);
    connection.write_all(words.as_bytes()).unwrap();
    let mut answer = String::new();
    // A connection with unread bytes may be reset.
    let _ = connection.read_to_string(&mut answer);
    answer
}

#[test]
fn all_ranks_get_all_addresses_in_any_order_of_arrival() {
    let want: Vec<SocketAddr> =
        (0..5).map(|rank| format!("127.0.0.1:{}", 7000 + rank).parse().unwrap()).collect();
    for token in [None, Some(token())] {
        let members = (0..5).map(|rank| Member { token: token.clone(), ..member(rank, 5) });
        for addresses in all(members.collect(), Duration::from_secs(20)) {
            assert_eq!(addresses, Ok(want.clone()));
        }
    }
}

#[test]
fn a_missing_or_unfit_rank_is_named_to_all() {
    let token = Some(token());
    let member = |rank, ranks| Member { token: token.clone(), ..member(rank, ranks) };
    let found = all(vec![member(0, 3), member(2, 3)], Duration::from_secs(3));
    assert!(found[0].as_ref().unwrap_err().contains("only 2 of 3 ranks came"), "{found:?}");
    assert!(found[1].as_ref().unwrap_err().contains("ranks 1 did not come"), "{found:?}");

    let other = Member { agreement: "ranks=3,lanes=9".into(), ..member(1, 3) };
    let found = all(vec![member(0, 3), other], Duration::from_secs(20));
    for answer in found {
        let answer = answer.unwrap_err();
        assert!(answer.contains("rank 0 has ranks=3, rank 1 has ranks=3,lanes=9"), "{answer}");
    }
    let twice = all(vec![member(0, 3), member(1, 3), member(1, 3)], Duration::from_secs(20));
    assert!(twice[0].as_ref().unwrap_err().contains("says it is rank 1"), "{twice:?}");
    let beyond = rendezvous(free(), &member(3, 3), Duration::ZERO).unwrap_err();
    assert_eq!(beyond.to_string(), "rank 3 of 3: ranks are numbered from 0");
}

/// The attacker: a host that reaches rank 0 during the rendezvous, and knows everything about the job but its token.
#[test]
fn a_connection_without_the_token_neither_joins_the_job_nor_ends_it() {
    let (at, job) = (free(), token());
    let zero = Member { token: Some(job.clone()), ..member(0, 2) };
    let zero = std::thread::spawn(move || rendezvous(at, &zero, Duration::from_secs(20)));
    let guess = token();
    for (words, want) in [
        ("GET / HTTP/1.0\r\n".to_owned(), "which you do not speak to"),
        ("\u{0}\n".into(), "which you do not speak to"),
        ("weft-coll-2\n".into(), "which you do not speak to"),
        // A rank of a version without tokens.
        ("weft-coll-1 1 7001 - ranks=2\n".into(), "which you do not speak to"),
        ("weft-coll-2 - 1 6666 - ranks=2\n".into(), "has a token, and you show none"),
        (format!("weft-coll-2 {} 1 6666 - ranks=2\n", guess.reveal()), "not this job's token"),
        // Lines that end a job without a token: an invalid rank, and other options.
        (format!("weft-coll-2 {} 9 6666 - ranks=2\n", guess.reveal()), "not this job's token"),
        (format!("weft-coll-2 {} 1 6666 - ranks=9\n", guess.reveal()), "not this job's token"),
        (format!("weft-coll-2 {} x 6666 - y\n", job.reveal()), "no rank's line"),
        ("weft-coll-2 ".repeat(100), "too long"),
    ] {
        let answer = answer_to(at, &words);
        assert!(answer.contains(want), "{words:?}: {answer:?}");
        assert!(!answer.contains(job.reveal()), "{answer:?}");
    }
    let one = Member { token: Some(job), ..member(1, 2) };
    let found = rendezvous(at, &one, Duration::from_secs(20)).unwrap();
    assert_eq!(found[1].port(), 7001, "{found:?}");
    assert_eq!(zero.join().unwrap().unwrap(), found);
}

/// The attacker: another user of the machine on which a job without a token meets on loopback.
#[test]
fn without_a_token_a_wrong_line_closes_its_own_connection_alone() {
    let at = free();
    let zero = std::thread::spawn(move || rendezvous(at, &member(0, 2), Duration::from_secs(20)));
    for (words, want) in [
        ("weft-coll-2 - 9 6666 - ranks=2\n", "says it is rank 9 of 2"),
        ("weft-coll-2 - 1 6666 - ranks=9\n", "rank 1 has ranks=9"),
        ("weft-coll-2 0123456789abcdef 1 6666 - ranks=2\n", "has no token: set WEFT_JOB_TOKEN"),
    ] {
        let answer = answer_to(at, words);
        assert!(answer.contains(want), "{words:?}: {answer:?}");
    }
    let found = rendezvous(at, &member(1, 2), Duration::from_secs(20)).unwrap();
    assert_eq!(zero.join().unwrap().unwrap(), found);
}

/// The attacker: a host that connects repeatedly, and sends nothing or half a line.
#[test]
fn silent_connections_delay_no_rank_and_are_closed() {
    let at = free();
    let zero = Member { hello_timeout: Duration::from_millis(200), ..member(0, 2) };
    let zero = std::thread::spawn(move || rendezvous(at, &zero, Duration::from_secs(60)));
    // More connections than can be pending at a time. One after the other they would take a minute.
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(at)).collect();
    let mut half = connect(at);
    half.write_all(b"weft-coll-2 ").unwrap();
    silent.push(half);
    for mut connection in silent {
        connection.set_read_timeout(Some(time::Duration::from_secs(20))).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("error"), "{answer:?}");
    }
    let found = rendezvous(at, &member(1, 2), Duration::from_secs(20)).unwrap();
    assert_eq!(zero.join().unwrap().unwrap(), found);
}

#[test]
fn without_a_token_ranks_do_not_meet_where_other_hosts_may_come() {
    for at in ["0.0.0.0:0", "10.0.0.1:7000", "[fd00::1]:7000"] {
        let at: SocketAddr = at.parse().unwrap();
        for rank in [0, 1] {
            let error = rendezvous(at, &member(rank, 2), Duration::ZERO).unwrap_err().to_string();
            let fixes = [&at.to_string(), "WEFT_JOB_TOKEN", "weft adm token"];
            assert!(fixes.iter().all(|fix| error.contains(fix)), "{error}");
        }
    }
}

#[test]
fn invalid_answers_are_refused() {
    for line in [
        "",
        "weft-coll-2",
        "weft-coll-2 ok 1 1.2.3.4:5",
        "weft-coll-2 ok x 1.2.3.4:5,1.2.3.4:6",
        "HTTP/1.0 200\n",
    ] {
        assert!(read_answer(line, 2).is_err(), "{line:?}");
    }
}

/// The attacker: a host that connects repeatedly and sends nothing.
#[test]
fn of_257_silent_connections_the_oldest_is_closed() {
    let at = free();
    // None is closed for its silence during this test.
    let zero = Member { hello_timeout: Duration::from_secs(600), ..member(0, 2) };
    let zero = std::thread::spawn(move || rendezvous(at, &zero, Duration::from_secs(60)));
    let mut silent: Vec<TcpStream> = (0..257).map(|_| connect(at)).collect();
    silent[0].set_read_timeout(Some(time::Duration::from_secs(20))).unwrap();
    let mut answer = String::new();
    silent[0].read_to_string(&mut answer).unwrap();
    assert!(answer.contains("too many others came meanwhile"), "{answer:?}");
    let found = rendezvous(at, &member(1, 2), Duration::from_secs(20)).unwrap();
    assert_eq!(zero.join().unwrap().unwrap(), found);
}
