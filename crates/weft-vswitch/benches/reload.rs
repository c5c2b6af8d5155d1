//! The time of `weft vpc reload` with many routes: the file read and checked as the command does, then sent over the
//! control socket and applied. The first reload sets all routes, the second changes nothing, the third changes one of a
//! hundred. Needs no privileges. The processor's time of both, command and daemon, tells the cost where a busy machine
//! makes them wait.
//!
//! `cargo bench -p weft-vswitch --bench reload -- [routes]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use std::{env, fs, thread};

use weft_vswitch::config::Config;
use weft_vswitch::control::{Answer, Request, send_request};
use weft_vswitch::{Daemon, Reloaded};

/// Returns a configuration of which half of the routes are machines' and half are prefixes'.
fn text(control: &Path, port: u16, routes: u32, via: impl Fn(u32) -> u8) -> String {
    let mut text = format!(
        "[host]\naddress = '127.0.0.1'\nport = {port}\ncontrol = '{}'\n[[network]]\nvni = 100\n",
        control.display()
    );
    for number in 0..routes {
        let ([_, a, b, c], last) = (number.to_be_bytes(), via(number));
        if number % 2 == 0 {
            let mac = format!("02:00:00:{a:02x}:{b:02x}:{c:02x}");
            let row =
                format!("mac = '{mac}'\npeer = '10.8.0.{last}'\naddresses = ['11.{a}.{b}.{c}']");
            writeln!(text, "[[route]]\nvni = 100\n{row}").expect("a string");
        } else {
            let row = format!("to = '10.{a}.{b}.{c}/32'\nvia = '10.8.0.{last}'");
            writeln!(text, "[[route]]\nvni = 100\n{row}").expect("a string");
        }
    }
    text
}

/// Returns the processor time of this process, seconds.
fn processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Reloads a file and prints the times.
fn reload(label: &str, file: &Path) -> Reloaded {
    let (began, used) = (Instant::now(), processor());
    let config = Config::read(file).expect("a valid file");
    let read = began.elapsed();
    let control = config.host.control.clone();
    let answer = send_request(
        &control,
        &Request::Reload { config: Box::new(config), discard_changes: false },
    );
    let all = began.elapsed();
    let Answer::Reloaded(done) = answer.expect("the daemon answers") else {
        panic!("the reload was refused");
    };
    let (read, sent, all) = (read.as_secs_f64(), (all - read).as_secs_f64(), all.as_secs_f64());
    let (set, removed, used) = (done.routes_set, done.routes_removed, processor() - used);
    println!("{label:28} {set:8} {removed:8} {read:8.3} {sent:8.3} {all:8.3} {used:10.3}");
    done
}

fn main() {
    let routes = env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(100_000);
    let path =
        |end: &str| env::temp_dir().join(format!("weft-reload-{}.{end}", std::process::id()));
    let (control, file) = (path("sock"), path("toml"));
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("loopback");
    let write = |routes, via: fn(u32) -> u8| {
        fs::write(&file, text(&control, free.port(), routes, via)).expect("room in /tmp");
    };
    write(0, |_| 1);
    let mut daemon = Daemon::open(Config::read(&file).expect("valid")).expect("it opens");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let running = thread::spawn(move || daemon.run(|| stopped.load(Ordering::Relaxed), |_| ()));

    let titles = ["set", "removed", "read", "applied", "all", "processor"];
    let [set, removed, read, applied, all, used] = titles;
    println!("{:28} {set:>8} {removed:>8} {read:>8} {applied:>8} {all:>8} {used:>10}", "seconds");
    write(routes, |_| 1);
    let all = routes as usize;
    assert_eq!(reload("all routes are new", &file).routes_set, all);
    assert_eq!(reload("nothing changed", &file), Reloaded::default());
    write(routes, |number| if number % 100 == 0 { 2 } else { 1 });
    assert_eq!(reload("one of a hundred changed", &file).routes_set, all.div_ceil(100));
    write(routes, |_| 3);
    assert_eq!(reload("all routes changed", &file).routes_set, all);
    write(0, |_| 1);
    assert_eq!(reload("all routes are gone", &file).routes_removed, all);

    stop.store(true, Ordering::Relaxed);
    running.join().expect("the daemon ends").expect("without an error");
    fs::remove_file(&file).expect("it was there");
}
