//! The visibility of tenants' data in the network between hosts, and the hosts that are accepted there. Needs root;
//! without it each test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
use weft_seal::PrivateKey;
use weft_trial::{Trial, TrialConfig};
use weft_vswitch::Status;
use weft_vswitch::config::Encryption;
use weft_vswitch::control::{Answer, Request, send_request};
use weft_wire::{U24, VxlanHeader, VxlanNext};

const LIMIT: Duration = Duration::from_secs(30);
const MARKER: &[u8] = b"what nobody but the tenants shall read";
const PORT: u16 = 5005;

/// Returns a trial; `None` if it cannot be built, after reporting the reason.
fn trial(name: &str, change: impl FnOnce(&mut TrialConfig)) -> Option<Trial> {
    if weft_testkit::lab_is_missing(&format!("encryption, {name}"), &[]) {
        return None;
    }
    let mut config = TrialConfig::named(format!("ve-{name}"));
    config.host.threads = 2;
    change(&mut config);
    Some(Trial::up(&config).unwrap())
}

/// Restarts a host with this encryption.
fn restart(trial: &mut Trial, host: usize, encryption: Encryption) {
    trial.stop(host);
    trial.config(host).host.encryption = encryption;
    trial.start(host).unwrap();
}

fn status(trial: &Trial, host: usize) -> Status {
    match send_request(&trial.control(host), &Request::Status).unwrap() {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn dropped(trial: &Trial, host: usize, cause: &str) -> u64 {
    let status = status(trial, host);
    let ports = status.ports.iter().map(|port| &port.dropped);
    ports.chain([&status.dropped]).filter_map(|dropped| dropped.get(cause)).sum()
}

fn bind(trial: &Trial, host: usize) -> UdpSocket {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    let socket = weft_lab::enter(&trial.namespace("red", host), bind).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Returns `true` if red's datagrams from host 0 to itself on host 1, and to its broadcast address, arrive
/// within `limit`. Those of earlier calls, which may still be under way, do not count.
fn is_received(trial: &Trial, limit: Duration) -> bool {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let (sender, receiver) = (bind(trial, 0), bind(trial, 1));
    for to in [Trial::address(1), Ipv4Addr::new(192, 168, 7, 255)] {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let datagram = [MARKER, &serial].concat();
        let began = Instant::now();
        while !has_arrived(&receiver, &datagram) {
            if began.elapsed() >= limit {
                return false;
            }
            // The send fails if a queue is full or does not exist yet.
            let _ = sender.send_to(&datagram, SocketAddr::from((to, PORT)));
            weft_testkit::pause();
        }
    }
    true
}

/// Reads what has arrived. Returns `true` if this datagram has.
fn has_arrived(receiver: &UdpSocket, datagram: &[u8]) -> bool {
    let mut bytes = [0; 100];
    while let Ok(length) = receiver.recv(&mut bytes) {
        assert_eq!(&bytes[..MARKER.len()], MARKER);
        if &bytes[..length] == datagram {
            return true;
        }
    }
    false
}

/// A socket that receives the frames of all interfaces of a host's namespace (packet(7)).
struct Sniffer(OwnedFd);

impl Sniffer {
    fn of(trial: &Trial, node: &str) -> Self {
        // ETH_P_ALL of linux/if_ether.h, in network order.
        const ALL: u16 = 3_u16.to_be();
        let protocol = std::num::NonZeroU32::new(ALL.into()).map(Protocol::from_raw);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = || socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol);
        Self(trial.lab.enter(node, open).unwrap().unwrap())
    }

    /// Returns the number of frames received, and the number of those that contain the tenants' data.
    fn frames(&self) -> (usize, usize) {
        let (mut frames, mut open, mut bytes) = (0, 0, vec![0; 1 << 17]);
        while let Ok(len) = rustix::io::read(&self.0, &mut bytes[..]) {
            frames += 1;
            open += usize::from(bytes[..len].windows(MARKER.len()).any(|part| part == MARKER));
        }
        (frames, open)
    }
}

/// Writes a key to a file that only its owner may read. Returns the file's path.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weft-ve-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn nothing_of_a_tenant_is_seen_between_hosts_by_default() {
    for (name, reliable) in [("conn", true), ("plain", false)] {
        let Some(trial) = trial(name, |config| config.network.reliable = reliable) else { return };
        let sniffer = Sniffer::of(&trial, "h0");
        assert!(is_received(&trial, LIMIT), "{:?}", status(&trial, 0));
        let (frames, open) = sniffer.frames();
        // Two datagrams at least, each in a frame of its own.
        assert!(frames >= 2 && open == 0, "{open} of {frames} frames show it");
        for host in 0..2 {
            let status = status(&trial, host);
            let (sealed, clear) = status.encryption.connections;
            assert!(sealed > 0 && clear == 0, "{:?}", status.encryption);
            assert_eq!(status.encryption.mode, "preferred");
            assert!(status.pairs.iter().all(|pair| pair.sealed), "{:?}", status.pairs);
        }
        // `is_received` sends without a pause, so the queue between two threads may be full.
        let mut dropped = status(&trial, 1).dropped;
        dropped.remove("not_handed_over");
        assert_eq!(dropped, [].into());
    }
}

#[test]
fn hosts_that_do_not_encrypt_show_everything() {
    let off = |config: &mut TrialConfig| config.host.encryption = Encryption::of_mode("off");
    let Some(mut trial) = trial("off", off) else { return };
    let sniffer = Sniffer::of(&trial, "h0");
    assert!(is_received(&trial, LIMIT));
    assert!(sniffer.frames().1 > 0, "the sniffer does not work");
    // A host that prefers encryption exchanges unencrypted packets with it, in both directions.
    for host in 0..2 {
        restart(&mut trial, host, Encryption::default());
        assert!(is_received(&trial, LIMIT), "{:?}", status(&trial, host));
        restart(&mut trial, host, Encryption::of_mode("off"));
    }
    // A host that requires encryption does not, and counts the refusals.
    for host in 0..2 {
        restart(&mut trial, host, Encryption::of_mode("required"));
        assert!(!is_received(&trial, Duration::from_secs(3)));
        let counters = status(&trial, host).encryption.counters;
        let refused = dropped(&trial, host, "in_clear") + counters["refused_clear"];
        assert!(refused > 0, "{counters:?}");
        restart(&mut trial, host, Encryption::of_mode("off"));
    }
}

#[test]
fn hosts_are_known_by_their_keys() {
    let Some(mut trial) = trial("keys", |_| ()) else { return };
    let keys = [1, 2, 3].map(|number| PrivateKey::new([number; 32]));
    let public = keys.each_ref().map(|key| format!("{}\n", key.public()));
    let peers = file("peers", &public[..2].concat());
    let identities = [0, 1, 2].map(|host| file(&format!("key{host}"), &keys[host].to_hex()));
    let encryption = |key: usize| Encryption {
        identity: Some(identities[key].clone()),
        peers: Some(peers.clone()),
        ..Encryption::default()
    };
    (0..2).for_each(|host| restart(&mut trial, host, encryption(host)));
    let sniffer = Sniffer::of(&trial, "h1");
    assert!(is_received(&trial, LIMIT), "{:?}", status(&trial, 0));
    assert_eq!(sniffer.frames().1, 0);
    let known = status(&trial, 0).encryption;
    assert_eq!((&*known.mode, known.authenticates), ("required", true));
    assert_eq!(known.identity, public[0].trim());
    // A host with another key is refused until the file contains it.
    restart(&mut trial, 0, encryption(2));
    assert!(!is_received(&trial, Duration::from_secs(3)));
    assert!(status(&trial, 1).encryption.counters["refused_exchanges"] > 0);
    std::fs::write(&peers, public.concat()).unwrap();
    for host in 0..2 {
        let reload = Request::Reload {
            config: Box::new(trial.config(host).clone()),
            discard_changes: false,
        };
        assert!(matches!(send_request(&trial.control(host), &reload), Ok(Answer::Reloaded(_))));
    }
    assert!(is_received(&trial, LIMIT), "{:?}", status(&trial, 0));
    // The connections of hosts that are removed from the file are closed.
    std::fs::write(&peers, &public[1]).unwrap();
    let reload =
        Request::Reload { config: Box::new(trial.config(1).clone()), discard_changes: false };
    assert!(matches!(send_request(&trial.control(1), &reload), Ok(Answer::Reloaded(_))));
    assert!(!is_received(&trial, Duration::from_secs(3)));
    identities.iter().chain([&peers]).for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn a_frame_in_the_clear_that_claims_to_be_from_a_host_that_encrypts_is_refused() {
    for reliable in [true, false] {
        let name = if reliable { "forged" } else { "forgep" };
        let Some(mut trial) = trial(name, |config| config.network.reliable = reliable) else {
            return;
        };
        assert!(is_received(&trial, LIMIT));
        let to = trial.config(1).host.socket();
        let mut datagram = vec![0; VxlanHeader::LEN];
        VxlanHeader { vni: U24::truncate(100), next: VxlanNext::Frame }.emit(&mut datagram);
        // The frame is a broadcast from an unknown address, with a protocol that is not ARP.
        datagram.extend([0xff; 6].iter().chain(&[2, 0, 0, 0, 0, 9, 0x88, 0xb5]).chain(&[7; 46]));
        let forge = || UdpSocket::bind("0.0.0.0:0").unwrap();
        let socket = trial.lab.enter("h0", forge).unwrap();
        let began = Instant::now();
        while dropped(&trial, 1, "in_clear") == 0 {
            assert!(began.elapsed() < LIMIT, "{:?}", status(&trial, 1));
            socket.send_to(&datagram, to).unwrap();
        }
        let known = &status(&trial, 1).networks[0].addresses;
        assert!(known.keys().all(|mac| mac.to_string() != "02:00:00:00:00:09"), "{known:?}");
    }
}
