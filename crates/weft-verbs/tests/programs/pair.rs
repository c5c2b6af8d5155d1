//! Programs that run in pairs: one listens on a port, the other connects to it.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::library::program;

/// The place of the two ends, which starts programs there.
pub(crate) trait Stage {
    /// Returns the address for the second end to connect to.
    fn server(&self) -> String;
    /// Starts a program on the first or the second end.
    fn start(&self, second: bool, command: &mut Command) -> Child;
}

/// A stage with both ends on this host.
pub(crate) struct OneHost;

impl Stage for OneHost {
    fn server(&self) -> String {
        "127.0.0.1".into()
    }

    fn start(&self, _second: bool, command: &mut Command) -> Child {
        command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error} (apt-get install coreutils)"))
    }
}

/// The output of both ends.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) server: String,
    pub(crate) client: String,
}

/// Runs both ends of a program, which gets its port with `-p`; both must succeed and print no errors.
pub(crate) fn run(stage: &impl Stage, words: &str) -> Printed {
    alone(|| both_ends(stage, words))
}

/// Runs `act` while no other test of this file runs programs: two processors carry one pair of them well, and several
/// starve each other.
pub(crate) fn alone<T>(act: impl FnOnce() -> T) -> T {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    act()
}

fn both_ends(stage: &impl Stage, words: &str) -> Printed {
    let port = next_port();
    let port_word = port.to_string();
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.extend(["-p", &port_word]);
    let mut server = start(stage, false, &words);
    until_listening(&mut server, port);
    let address = stage.server();
    words.push(&address);
    let client = finish(start(stage, true, &words));
    let server = finish(server);
    // The end that fails first is often the other one.
    let both = || format!("client: {}\nserver: {}", client.1, server.1);
    assert!(client.0 && server.0, "{words:?} failed\n{}", both());
    Printed { server: server.1, client: client.1 }
}

/// Returns a port that no other test uses, below the kernel's ephemeral ports.
pub(crate) fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 24_000 + u16::try_from(std::process::id() % 64).unwrap() * 64;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        // Other programs of tests that run now may start from the same port.
        let is_free = |_| UdpSocket::bind(("0.0.0.0", port)).is_ok();
        if TcpListener::bind(("0.0.0.0", port)).is_ok_and(is_free) {
            return port;
        }
    }
}

pub(crate) fn start(stage: &impl Stage, second: bool, words: &[&str]) -> Child {
    let mut command = program(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    stage.start(second, &mut command)
}

/// Waits until the program listens; fails if it ends before.
pub(crate) fn until_listening(program: &mut Child, port: u16) {
    let listens = format!(":{port:04X} ");
    // The connection manager's ports are UDP ports; a listening UDP socket is one that is not connected.
    let tables = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")]
        .map(|(table, state)| (format!("/proc/{}/net/{table}", program.id()), state));
    let is_listening = || {
        tables.iter().any(|(table, state)| {
            let sockets = std::fs::read_to_string(table).unwrap_or_default();
            sockets.lines().any(|socket| {
                let mut fields = socket.split_whitespace();
                let local = fields.nth(1).unwrap_or_default();
                format!("{local} ").ends_with(&listens) && fields.nth(1) == Some(state)
            })
        })
    };
    while !is_listening() {
        if program.try_wait().unwrap().is_some() {
            return;
        }
        weft_testkit::pause();
    }
}

/// Returns `true` if a program succeeded, and all its output. A program that hung was ended and may have printed
/// nothing, so the output includes the kind of failure.
pub(crate) fn finish(mut program: Child) -> (bool, String) {
    let output = output(&mut program);
    let status = program.wait().unwrap();
    match status.code() {
        Some(0) => (true, output),
        Some(124) => (false, format!("{output}[hung for half a minute]")),
        _ => (false, format!("{output}[{status}]")),
    }
}

/// Returns all output of a program until its end.
pub(crate) fn output(program: &mut Child) -> String {
    let mut output = Vec::new();
    program.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    program.stderr.take().unwrap().read_to_end(&mut output).unwrap();
    String::from_utf8_lossy(&output).into_owned()
}
