//! A relay in front of a member of etcd, by which a test stops a controller at a step, or cuts it off.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The relay's rule for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It passes them on.
    Pass,
    /// It passes nothing on from the request on that writes a move.
    HoldRequest,
    /// It passes that request on, and no answer after it.
    HoldAnswer,
    /// It ends connections, and accepts none.
    Cut,
}

/// The part of a request, in the clear, by which one that writes a move is known.
const MOVE: &[u8] = b"/moves/";

#[derive(Debug)]
struct State {
    rule: AtomicU8,
    /// `true` once a request that writes a move has come.
    has_stopped: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl State {
    fn is(&self, rule: Rule) -> bool {
        self.rule.load(Ordering::SeqCst) == rule as u8
    }
}

/// A relay; its threads end with their connections.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    pub(super) fn start(member: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (rule, has_stopped) = (AtomicU8::new(Rule::Pass as u8), AtomicBool::new(false));
        let state = Arc::new(State { rule, has_stopped, connections: Mutex::default() });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(server) =
                    TcpStream::connect(member).ok().filter(|_| !shared.is(Rule::Cut))
                else {
                    continue;
                };
                let ends = [&client, &server].map(|it| it.try_clone().unwrap());
                shared.connections.lock().unwrap().extend(ends);
                let [up, down] = [&shared, &shared].map(Arc::clone);
                let [from_client, from_server] =
                    [&client, &server].map(|it| it.try_clone().unwrap());
                thread::spawn(move || pass(from_client, server, &up, true));
                thread::spawn(move || pass(from_server, client, &down, false));
            }
        });
        Self { address, state }
    }

    pub(super) fn set(&self, rule: Rule) {
        self.state.rule.store(rule as u8, Ordering::SeqCst);
        if rule == Rule::Cut {
            for connection in self.state.connections.lock().unwrap().drain(..) {
                // One that has ended needs no end.
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.state.has_stopped.load(Ordering::SeqCst)
    }
}

/// Passes bytes on until a connection ends.
fn pass(mut from: TcpStream, mut to: TcpStream, state: &State, is_request: bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let some = &bytes[..length];
        let holds = state.is(Rule::HoldRequest) || state.is(Rule::HoldAnswer);
        if holds && is_request && some.windows(MOVE.len()).any(|it| it == MOVE) {
            state.has_stopped.store(true, Ordering::SeqCst);
        }
        let has_stopped = state.has_stopped.load(Ordering::SeqCst);
        let is_held = match is_request {
            true => state.is(Rule::HoldRequest),
            false => state.is(Rule::HoldAnswer),
        };
        if !(has_stopped && is_held) && to.write_all(some).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
