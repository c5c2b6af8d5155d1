//! Tenants' TCP over the overlay: numbered records with checksums, there and back.
//!
//! No fault of the schedule may end a connection: TCP retransmits for many minutes, and a daemon that is killed leaves its
//! tenants their interfaces.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weft_units::Seed;

use super::Workloads;
use crate::HOSTS;
use crate::account::Account;
use crate::journal::Journal;
use crate::shared::Shared;
use crate::stage::{TENANTS, tenant_address};

/// The port of the tenants' servers.
const PORT: u16 = 7007;
/// The time for which a record may be under way: longer than any fault with its recovery.
const LIMIT: Duration = Duration::from_secs(600);
/// Maximum length of a record's payload.
const MAX_PAYLOAD: u64 = 32 << 10;
/// Length, number and checksum.
const HEADER: usize = 20;

/// Starts a server for each tenant on each host, and clients of the next host.
///
/// # Errors
/// Returns an error if a server cannot listen.
pub(super) fn start(
    shared: &Arc<Shared>,
    journal: &Arc<Journal>,
    workloads: &mut Workloads,
) -> Result<()> {
    for (tenant, vni, _) in TENANTS {
        for host in 0..HOSTS {
            let next = (host + 1) % HOSTS;
            let server = Account::open(journal, format!("tenants {tenant} server h{next}"));
            serve(shared, tenant, next, server, workloads)?;
            let from = shared.tenant(tenant, host);
            let to = SocketAddr::from((tenant_address(next), PORT));
            let seed = Seed(u64::from(vni)).child("tenants", host as u64);
            let (mut stream, namespace) = (None, from.clone());
            let account = Account::open(journal, format!("tenants {tenant} {host}-{next}"));
            workloads.repeat(account, Duration::from_millis(80), move |number| {
                let result = match &mut stream {
                    Some(open) => exchange(open, seed, number),
                    none => connect(&namespace, to)
                        .and_then(|open| exchange(none.insert(open), seed, number)),
                };
                result.inspect_err(|_| stream = None)
            });
            let account = Account::open(journal, format!("connections {tenant} {host}-{next}"));
            let seed = seed.child("connections", 0);
            workloads.repeat(account, Duration::from_millis(500), move |number| {
                exchange(&mut connect(&from, to)?, seed, number)
            });
        }
    }
    Ok(())
}

/// Returns a connection in a namespace. A server without its interface yet is tried again.
fn connect(namespace: &str, to: SocketAddr) -> Result<TcpStream, String> {
    let began = Instant::now();
    loop {
        let opened = weft_lab::enter(namespace, || TcpStream::connect_timeout(&to, LIMIT));
        match opened.map_err(|error| error.to_string())? {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| error.to_string())?;
                limit(&stream).map_err(|error| error.to_string())?;
                return Ok(stream);
            }
            Err(error) if is_unreachable(error.kind()) && began.elapsed() < LIMIT => {
                thread::sleep(Duration::from_millis(100));
            }
            Err(error) => return Err(format!("cannot connect: {error}")),
        }
    }
}

/// Returns `true` for the errors of the tenant's own kernel while its interface has no address or no carrier.
fn is_unreachable(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable)
}

fn limit(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))
}

/// Sends a record and checks that it comes back.
fn exchange(stream: &mut TcpStream, seed: Seed, number: u64) -> Result<(), String> {
    let record = record(seed, number);
    let text = |error: std::io::Error| format!("record {number}: {error}");
    stream.write_all(&record).map_err(text)?;
    let mut returned = vec![0; record.len()];
    stream.read_exact(&mut returned).map_err(text)?;
    if returned == record { Ok(()) } else { Err(format!("record {number} has changed on its way")) }
}

/// Returns a record: length, number, checksum, and random bytes.
fn record(seed: Seed, number: u64) -> Vec<u8> {
    let mut rng = seed.child("record", number).rng();
    let length = rng.below(MAX_PAYLOAD) + 1;
    let words = (0..length.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes());
    let payload: Vec<u8> = words.take(usize::try_from(length).expect("32 KiB")).collect();
    let mut record = u32::try_from(length).expect("32 KiB").to_le_bytes().to_vec();
    record.extend(number.to_le_bytes());
    record.extend(checksum(&payload).to_le_bytes());
    record.extend(payload);
    record
}

/// FNV-1a (RFC 9923).
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn serve(
    shared: &Shared,
    tenant: &str,
    host: usize,
    account: Account,
    workloads: &mut Workloads,
) -> Result<()> {
    let namespace = shared.tenant(tenant, host);
    // The interface has its address when the daemon has its ports.
    let listener =
        weft_lab::enter(&namespace, || TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, PORT)))?
            .with_context(|| format!("cannot listen in {namespace}"))?;
    listener.set_nonblocking(true)?;
    let stop = Arc::clone(&workloads.stop_servers);
    workloads.servers.push(thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let (account, stop) = (account.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                if let Err(why) = return_records(stream, &stop) {
                    account.trouble(&why);
                }
            });
        }
    }));
    Ok(())
}

/// Checks records and sends them back, until the client ends the connection.
fn return_records(mut stream: TcpStream, stop: &AtomicBool) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    stream.set_nonblocking(false).and_then(|()| limit(&stream)).map_err(text)?;
    let mut expected = None;
    loop {
        let mut header = [0; HEADER];
        match stream.read(&mut header[..1]) {
            Ok(0) => return Ok(()),
            Ok(_) => stream.read_exact(&mut header[1..]).map_err(text)?,
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let (length, rest) = header.split_first_chunk().expect("20 bytes");
        let (number, sum) = rest.split_first_chunk().expect("16 bytes");
        let (length, number) = (u32::from_le_bytes(*length), u64::from_le_bytes(*number));
        if u64::from(length) > MAX_PAYLOAD || expected.is_some_and(|it| it != number) {
            return Err(format!(
                "a record of {length} bytes with number {number}, expected {expected:?}"
            ));
        }
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).map_err(text)?;
        if checksum(&payload).to_le_bytes() != sum {
            return Err(format!("record {number} arrived damaged"));
        }
        expected = Some(number + 1);
        stream.write_all(&[&header[..], &payload].concat()).map_err(text)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_record_and_one_that_is_missing_are_found() {
        let talk = |bytes: Vec<u8>| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let server = listener.accept().unwrap().0;
            let server = thread::spawn(move || return_records(server, &AtomicBool::new(false)));
            client.write_all(&bytes).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut returned = Vec::new();
            let _ = client.read_to_end(&mut returned);
            (server.join().unwrap(), returned)
        };
        let seed = Seed(1);
        let good = [record(seed, 0), record(seed, 1)].concat();
        assert_eq!(talk(good.clone()), (Ok(()), good));
        let mut damaged = record(seed, 0);
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(talk(damaged).0, Err("record 0 arrived damaged".into()));
        let missing = talk([record(seed, 0), record(seed, 2)].concat()).0.unwrap_err();
        assert!(missing.contains("number 2, expected Some(1)"), "{missing}");
    }
}
