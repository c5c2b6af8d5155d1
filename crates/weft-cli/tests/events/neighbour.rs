//! A BGP neighbour of the overlay: its session is established, it sends a faulty update, and it goes away.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weft_vswitch::Daemon;
use weft_vswitch::config::Config;

use crate::{Folder, Log};

/// Types of messages (RFC 4271, section 4.1).
const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const KEEPALIVE: u8 = 4;

/// Returns a message with this body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(19 + body.len()).unwrap();
    [&[0xff; 16][..], &length.to_be_bytes(), &[kind], body].concat()
}

/// Returns the OPEN of AS 65001, with EVPN.
fn open() -> Vec<u8> {
    let capabilities = [1, 4, 0, 25, 0, 70, 65, 4, 0, 0, 0xfd, 0xe9];
    let length = u8::try_from(capabilities.len()).unwrap();
    let (asn, hold_time, router_id) = ([0xfd, 0xe9], [0, 90], [10, 9, 9, 9]);
    let parameters = [&[length + 2, 2, length][..], &capabilities].concat();
    message(OPEN, &[&[4][..], &asn, &hold_time, &router_id, &parameters].concat())
}

/// Returns an UPDATE whose ORIGIN is too long. It withdraws no route, so that the session goes on (RFC 7606).
fn faulty_update() -> Vec<u8> {
    let unreached = [0x80, 15, 3, 0, 25, 70];
    let origin = [0x40, 1, 2, 0, 0];
    let attributes = [&unreached[..], &origin].concat();
    let length = u16::try_from(attributes.len()).unwrap().to_be_bytes();
    message(UPDATE, &[&[0, 0][..], &length, &attributes].concat())
}

/// Waits for the daemon's session, and establishes it.
fn establish(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut header = [0; 19];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[18], OPEN);
    stream.write_all(&[open(), message(KEEPALIVE, &[])].concat()).unwrap();
    stream
}

pub(crate) fn session(log: &Log, folder: &Folder) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Routes name no port, so that it is the standard one: at an address that no other test has.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let text = format!(
        "[host]\naddress = '127.{high}.{low}.9'\ncontrol = '{}'\n\
         [evpn]\nas = 65000\nneighbour = [{{ address = '127.0.0.1', as = 65001, port = {} }}]\n",
        folder.path("evpn.sock").display(),
        listener.local_addr().unwrap().port(),
    );
    let config: Config = toml::from_str(&text).unwrap();
    let mut daemon = Daemon::open(config).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| daemon.run(|| stop.load(Relaxed), |_| ()).unwrap());
        let mut neighbour = establish(&listener);
        let values = [("neighbour", "127.0.0.1"), ("asn", "65001")];
        log.wait("bgp-session-up", &values, || ());
        for _ in 0..3 {
            neighbour.write_all(&faulty_update()).unwrap();
        }
        let refused = log.wait("routes-refused", &values, || ());
        assert_eq!(refused["count"], 3, "one event for all: {refused:?}");
        drop(neighbour);
        log.wait("bgp-session-down", &values, || ());
        stop.store(true, Relaxed);
    });
}
