//! Linux in QEMU with several pairs of queues, one for each of its processors: each processor fetches a file and sends
//! it back at the same time, over a lossy network.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use weft_ports::{Port, VhostConfig, VhostPort};
use weft_testkit::Files;

use crate::common::guest::Socket;
use crate::common::namespace::Namespace;
use crate::common::network::{noise, with_network};
use crate::common::wire::Impairments;
use crate::machine::{Device, Guest, accept, parts};
use crate::tap;

/// Returns the guest's script. Linux sends from the queue of the processor on which the sender runs.
fn script(queues: u8, address: &str) -> String {
    format!(
        "(sleep 200; poweroff -f) &\n\
         ip link set eth0 up; ip address add {address}.2/24 dev eth0\n\
         echo queues $(ls -d /sys/class/net/eth0/queues/tx-* | wc -l)\n\
         ping -c 3 -W 20 {address}.1 && echo step ping\n\
         for cpu in $(seq 0 {}); do\n\
         taskset -c $cpu sh -c 'wget -q -O - http://{address}.1:8000/file | nc {address}.1 8001' &\n\
         pids=\"$pids $!\"\n\
         done\n\
         wait $pids; echo step done\n\
         poweroff -f\n",
        queues - 1
    )
}

fn serve(file: &[u8], mut stream: TcpStream) {
    let len = stream.read(&mut [0; 4_096]).unwrap();
    assert!(len > 0);
    let header = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
    stream.write_all(header.as_bytes()).unwrap();
    stream.write_all(file).unwrap();
}

/// Runs a guest with this number of queues until it has sent a file back from each processor.
fn exchange(queues: u8) {
    let test = format!("a guest in QEMU with {queues} queues");
    let (qemu, busybox, kernel) = match parts() {
        Ok(parts) => parts,
        Err(missing) => return weft_testkit::skip(&test, &missing),
    };
    if weft_testkit::lab_is_missing(&test, &[]) {
        return;
    }
    let address = format!("10.77.{}", 10 + queues);
    let space = Namespace::new(&format!("wpmq{queues}"));
    let mut tap = tap(&space, &format!("{address}.1"));
    let socket = Socket::new(&format!("mq{queues}"));
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let initramfs = Socket::new(&format!("mq{queues}-initramfs"));
    let script = script(queues, &address);
    fs::write(&initramfs.0, kernel.initramfs(&busybox, &[], &Files::default(), &script)).unwrap();
    let file = noise(2 << 20);
    let listen = |port| space.enter(|| TcpListener::bind(format!("{address}.1:{port}")).unwrap());
    let [http, upload] = [8_000, 8_001].map(listen);
    let impairments = Impairments { loss: 5, reordering: 16 };
    let (console, wires) = with_network([&mut tap, &mut port], impairments, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..queues {
                    let stream = accept(&http);
                    scope.spawn(|| serve(&file, stream));
                }
            });
            let returned = scope.spawn(|| {
                let files = (0..queues).map(|_| {
                    let mut stream = accept(&upload);
                    scope.spawn(move || {
                        let mut back = vec![];
                        stream.read_to_end(&mut back).unwrap();
                        let _ = stream.shutdown(Shutdown::Both);
                        back
                    })
                });
                let files: Vec<_> = files.collect();
                files.into_iter().map(|file| file.join().unwrap()).collect::<Vec<_>>()
            });
            let device = Device { queues, ..Device::of("02:00:00:00:77:05") };
            let guest = Guest::boot((&qemu, &kernel), &initramfs.0, &socket.0, &device);
            let console = guest.console();
            let returned = returned.join().unwrap();
            assert!(returned.iter().all(|back| *back == file), "a file came back changed");
            console
        })
    });
    assert!(console.contains("step ping") && console.contains("step done"), "{console}");
    assert!(
        console.contains(&format!("queues {queues}\r")),
        "the guest has other queues: {console}"
    );
    let frames = port.frames_by_pair();
    println!("frames sent from and received in each pair of queues: {frames:?}");
    assert_eq!(frames.len(), usize::from(queues));
    assert!(frames.iter().all(|&(sent, received)| sent > 20 && received > 20), "{frames:?}");
    let counters = port.counters();
    assert_eq!((counters.bad_chain, counters.bad_frame, counters.bad_header), (0, 0, 0));
    let reports = wires.iter().flat_map(|wire| &wire.reports);
    assert!(
        reports.clone().all(|report| report.contains("is gone")),
        "{:?}",
        reports.collect::<Vec<_>>()
    );
    assert_eq!(port.holdings().taken, 0);
}

#[test]
fn a_linux_guest_with_two_queues_uses_both_and_keeps_every_byte() {
    exchange(2);
}

#[test]
fn a_linux_guest_with_four_queues_uses_all_and_keeps_every_byte() {
    exchange(4);
}
