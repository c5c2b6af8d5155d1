//! Requests to Redis that are due while one of two paths is dead, and the share answered in time (BIFROST, figure
//! F10). Unlike redis-benchmark, which waits forever, this client can fail.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use weft_testkit::{figure_row, json};

use crate::common::{Site, Way};

const CLIENTS: u32 = 50;
/// The time between two requests of a client.
const EVERY: Duration = Duration::from_millis(20);
/// The time after a request was due within which an answer is in time.
const LIMIT: Duration = Duration::from_millis(100);
/// The times at which the path dies and returns.
const DEAD: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// A read of a missing key, and a write: both answers have five bytes.
const TESTS: [(&str, &str); 2] = [("get", "GET absent\r\n"), ("set", "SET key value\r\n")];
const ANSWER: usize = 5;

pub(crate) fn measure(way: Way) {
    for (test, request) in TESTS {
        let mut site = Site::new(way, 2);
        let options =
            ["--save", "", "--appendonly", "no", "--bind", "0.0.0.0", "--protected-mode", "no"];
        let _server = site.serve("redis-server", &options, 6379);
        let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&site)).collect();
        let began = Instant::now();
        let clients: Vec<_> = (0..CLIENTS)
            .zip(clients)
            .map(|(number, stream)| {
                let first = began + EVERY * number / CLIENTS;
                thread::spawn(move || request_on(stream, request, began, first))
            })
            .collect();
        for (at, dead) in DEAD.into_iter().zip([true, false]) {
            thread::sleep((began + at).saturating_duration_since(Instant::now()));
            site.trial.lab.set_black_hole("l0-s0", dead).expect("a link of the lab");
        }
        let counts = clients.into_iter().map(|client| client.join().expect("a client ends"));
        let counts = counts.fold(Counts::default(), Counts::and);
        // If a machine is too busy to answer while both paths work, the other number means nothing.
        let [before, answered] = counts.0.map(|[due, answered]| 100.0 * answered / due);
        let name = way.name().replace(',', "");
        println!("{name:15} {test}: {answered:.1} % answered in time, {before:.1} % before");
        let row = json!({ "way": name, "test": test, "before": before, "answered": answered });
        figure_row("bifrost-figF10", &row);
    }
}

/// Numbers of requests due and answered in time: before the path died, and while it was dead.
#[derive(Default)]
struct Counts([[f64; 2]; 2]);

impl Counts {
    fn and(self, other: Self) -> Self {
        let mut both = self.0;
        for (sums, counts) in both.iter_mut().zip(other.0) {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Self(both)
    }
}

fn connect(site: &Site) -> TcpStream {
    let to: Ipv4Addr = site.server().parse().expect("an address");
    let connect = || TcpStream::connect((to, 6379)).expect("it takes connections");
    weft_lab::enter(&site.namespace(0), connect).expect("a namespace of the trial")
}

/// Sends each request when it is due, until the path returns. Late answers are read with the next one.
fn request_on(mut stream: TcpStream, request: &str, began: Instant, first: Instant) -> Counts {
    stream.set_nodelay(true).expect("a socket");
    let (mut counts, mut awaited) = (Counts::default(), 0);
    let mut at = first;
    while at < began + DEAD[1] {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        stream.write_all(request.as_bytes()).expect("a few bytes fit the socket");
        awaited += ANSWER;
        read_until(&mut stream, &mut awaited, at + LIMIT);
        let [due, answered] = &mut counts.0[usize::from(at >= began + DEAD[0])];
        *due += 1.0;
        *answered += f64::from(u8::from(awaited == 0));
        at += EVERY;
    }
    counts
}

/// Reads the awaited bytes, at most until a time. Bytes that have arrived are read even after it.
fn read_until(stream: &mut TcpStream, awaited: &mut usize, until: Instant) {
    while *awaited > 0 {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        stream.set_read_timeout(Some(left)).expect("a time above zero");
        let mut bytes = [0; 512];
        let room = bytes.len().min(*awaited);
        match stream.read(&mut bytes[..room]) {
            Ok(read) if read > 0 => *awaited -= read,
            _ => return,
        }
    }
}
