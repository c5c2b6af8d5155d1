//! The load of the demonstration over kernel TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use weft_perf::{LatencyMicros, TestKind, latency_histogram};
use weft_udp::Clock;

use super::flow::{Finished, Running};
use super::goodput::Goodput;
use super::{BULK_MESSAGE, REQUEST_BYTES};

/// Timeout of a read, which bounds the wait for late data after the load.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a write, after which a blocked sender reads the clock.
const WRITE_TIMEOUT: Duration = Duration::from_millis(20);

/// Starts the load over a connection's sender and receiver, and returns the running flow.
pub(super) fn start(
    (sender, receiver): (TcpStream, TcpStream),
    kind: TestKind,
    span: Duration,
) -> Running {
    Running::new(thread::spawn(move || {
        sender.set_nodelay(true)?;
        receiver.set_nodelay(true)?;
        let receiving = thread::spawn(move || receive(receiver, kind));
        let sent = match kind {
            TestKind::Throughput => send(sender, span),
            TestKind::Latency | TestKind::Messages => request(sender, span),
        };
        let goodput = receiving.join().map_err(|_| anyhow!("the receiving thread panicked"))??;
        Ok(Finished { goodput, latency: LatencyMicros::of(&sent?), cipher: None })
    }))
}

/// Writes as fast as the kernel accepts it for `span`. Returns an empty histogram.
fn send(mut stream: TcpStream, span: Duration) -> Result<Histogram<u64>> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let chunk = vec![0; BULK_MESSAGE as usize];
    let until = Clock.now().as_nanos() + nanos(span);
    while Clock.now().as_nanos() < until {
        match stream.write(&chunk) {
            Err(error) if !is_timeout(&error) => return Err(error).context("TCP send"),
            _ => {}
        }
    }
    Ok(latency_histogram())
}

/// Sends one request at a time for `span`, each answered before the next, and returns the round-trip times in
/// nanoseconds.
fn request(mut stream: TcpStream, span: Duration) -> Result<Histogram<u64>> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut round_trips = latency_histogram();
    let mut message = [0; REQUEST_BYTES as usize];
    let until = Clock.now().as_nanos() + nanos(span);
    loop {
        let sent_at = Clock.now().as_nanos();
        if sent_at >= until {
            return Ok(round_trips);
        }
        stream.write_all(&message).context("TCP request")?;
        stream.read_exact(&mut message).context("TCP response")?;
        round_trips.saturating_record(Clock.now().as_nanos() - sent_at);
    }
}

/// Counts the received bytes over time, and answers requests, until the sender closes.
fn receive(mut stream: TcpStream, kind: TestKind) -> Result<Goodput> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut goodput = Goodput::default();
    let mut buffer = vec![0; 1 << 17];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(goodput),
            Ok(length) => {
                goodput.add(Clock.now().as_nanos(), length as u64);
                if kind.replies() {
                    stream.write_all(&buffer[..length]).context("TCP answer")?;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("TCP receive"),
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("an act lasts seconds")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    #[test]
    fn a_bulk_transfer_counts_received_bytes_while_it_lasts() {
        let finished = start(pair(), TestKind::Throughput, Duration::from_millis(200));
        let goodput = finished.finish().unwrap().goodput;
        assert!(goodput.mean_bps(0.0, 0.1) > 1e6, "{goodput:?}");
        assert!((0.1..1.0).contains(&goodput.seconds()), "{goodput:?}");
    }

    #[test]
    fn requests_are_answered_one_by_one() {
        let finished =
            start(pair(), TestKind::Latency, Duration::from_millis(100)).finish().unwrap();
        assert!(finished.latency.count > 10, "{finished:?}");
        assert!(finished.latency.p50 > 0.0);
    }
}
