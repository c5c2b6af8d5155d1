//! The set-up of channels by address and port: listeners, connections, and greetings in progress.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::epoll::{self, EventFlags};
use socket2::{Domain, Protocol, Socket, Type};
use weft_msg::ChannelId;
use weft_units::{Duration, Instant};

use super::{Event, Node, NodeError, PendingGreeting, Source, Ticket, socket};
use crate::clock;
use crate::greeting::{Greeting, GreetingError, Progress, would_block};

/// The time limit of a greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause of listeners when the kernel has no descriptor for a new connection.
const LISTEN_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of greetings in progress; further incoming connections are closed. It is also a listener's backlog.
const MAX_GREETINGS: u16 = 4096;

impl Node {
    /// Accepts channels at an address; port 0 selects a free port. Returns the address with its port.
    ///
    /// # Errors
    /// The address is not this host's, or in use.
    pub fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, NodeError> {
        let doing = format!("listening at {at}");
        let listener = listener(at).map_err(socket(&doing))?;
        let local = listener.local_addr().map_err(socket(&doing))?;
        let index = self.listeners.len() as u64;
        self.watch(&listener, Source::Listener, index, EventFlags::IN)?;
        self.listeners.push(listener);
        let comma = if self.listens.is_empty() { "" } else { "," };
        self.listens += &format!("{comma}{local}");
        self.request_show();
        Ok(local)
    }

    /// Starts to open a channel; `Connected` or `ConnectFailed` follows.
    ///
    /// # Errors
    /// The device is full, or the kernel has no socket.
    pub fn connect(&mut self, to: SocketAddr) -> Result<Ticket, NodeError> {
        let now = clock::now();
        let doing = format!("connecting to {to}");
        let (channel, offer) = self.context.offer(now)?;
        let started = start_connecting(to).map_err(socket(&doing));
        let connection = started.inspect_err(|_| self.context.abort(now, channel))?;
        let greeting =
            Greeting::client(connection, &offer, self.options.streams, now + GREETING_TIMEOUT);
        let number = self.take_number();
        let ticket = Ticket(number);
        let flags = EventFlags::IN | EventFlags::OUT;
        let watched = self.watch(&greeting.socket, Source::Greeting, number, flags);
        watched.inspect_err(|_| self.context.abort(now, channel))?;
        let pending = PendingGreeting { greeting, peer: to, client: Some((ticket, channel)) };
        self.greetings.insert(number, pending);
        Ok(ticket)
    }

    /// Opens a channel and waits until it is open.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect), and the error of `ConnectFailed`.
    pub fn connect_and_wait(&mut self, to: SocketAddr) -> Result<ChannelId, NodeError> {
        let wanted = self.connect(to)?;
        let outcome = |node: &mut Self| {
            let ours = |event: &Event| match event {
                Event::Connected { ticket, .. } | Event::ConnectFailed { ticket, .. } => {
                    *ticket == wanted
                }
                Event::AcceptFailed { .. } | Event::Channel(_) => false,
            };
            let at = node.events.iter().position(ours)?;
            match node.events.remove(at)? {
                Event::Connected { channel, .. } => Some(Ok(channel)),
                Event::ConnectFailed { error, .. } => Some(Err(error)),
                Event::AcceptFailed { .. } | Event::Channel(_) => None,
            }
        };
        self.wait_for(None, outcome).expect("a meeting is given up after a while")
    }

    /// Accepts the connections that wait at a listener.
    pub(super) fn accept_connections(&mut self, index: usize) {
        loop {
            let (connection, peer) = match self.listeners[index].accept() {
                Ok(accepted) => accepted,
                Err(error) if would_block(&error) => return,
                // The client closed the connection again.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return self.pause_listeners(error),
            };
            if self.greetings.len() >= usize::from(MAX_GREETINGS)
                || connection.set_nonblocking(true).is_err()
            {
                continue;
            }
            let greeting = Greeting::server(connection, clock::now() + GREETING_TIMEOUT);
            let number = self.take_number();
            if self.watch(&greeting.socket, Source::Greeting, number, EventFlags::IN).is_ok() {
                self.greetings.insert(number, PendingGreeting { greeting, peer, client: None });
            }
        }
    }

    /// Pauses the listeners because the kernel has no descriptor or memory: a listener that is ready and cannot be
    /// served would keep the node awake.
    fn pause_listeners(&mut self, error: std::io::Error) {
        let doing = "taking a connection (is the limit of open files too low? `ulimit -n`)".into();
        self.events.push_back(Event::AcceptFailed { error: NodeError::Socket { doing, error } });
        self.listen_again_at = Some(clock::now() + LISTEN_PAUSE);
        self.watch_listeners(EventFlags::empty());
    }

    /// Resumes the listeners when their pause is over.
    pub(super) fn resume_listeners(&mut self) {
        if self.listen_again_at.is_some_and(|at| at <= clock::now()) {
            self.listen_again_at = None;
            self.watch_listeners(EventFlags::IN);
        }
    }

    /// Changes the events of the listeners that epoll reports.
    fn watch_listeners(&self, flags: EventFlags) {
        for (index, listener) in (0..).zip(&self.listeners) {
            // The socket was added before, so the change needs no memory and cannot fail.
            let _ = epoll::modify(&self.epoll, listener, Source::Listener.data(index), flags);
        }
    }

    /// Continues a greeting whose connection is readable or writable.
    pub(super) fn continue_greeting(&mut self, number: u64) {
        let Some(pending) = self.greetings.get_mut(&number) else { return };
        let progress = pending.greeting.write().and_then(|()| pending.greeting.read());
        match progress {
            Ok(Progress::Waiting) => self.update_interest(number),
            Ok(Progress::Complete { offer, stream }) => {
                if let Err(why) = self.complete_greeting(number, &offer, stream) {
                    self.fail_greeting(number, why);
                }
            }
            Err(error) => {
                let Some(pending) = self.greetings.get(&number) else { return };
                let why = greeting_error(pending.peer, &error);
                self.fail_greeting(number, why);
            }
        }
    }

    /// Registers with epoll only the readiness that the greeting waits for.
    fn update_interest(&self, number: u64) {
        let Some(pending) = self.greetings.get(&number) else { return };
        let out = pending.greeting.wants_to_write();
        let flags = EventFlags::IN | if out { EventFlags::OUT } else { EventFlags::empty() };
        let data = Source::Greeting.data(number);
        // The socket was added before, so the change needs no memory and cannot fail.
        let _ = epoll::modify(&self.epoll, &pending.greeting.socket, data, flags);
    }

    /// Connects the channel with the peer's offer.
    fn complete_greeting(
        &mut self,
        number: u64,
        offer: &weft_wire::ChannelOffer,
        stream: bool,
    ) -> Result<(), NodeError> {
        let now = clock::now();
        let Some(pending) = self.greetings.get_mut(&number) else { return Ok(()) };
        let peer = pending.peer;
        let channel = match pending.client {
            Some((ticket, channel)) => {
                self.context.establish(now, channel, offer)?;
                self.events.push_back(Event::Connected { ticket, channel });
                channel
            }
            None if stream && self.requires_encryption => return Err(NodeError::ClearStream),
            None => {
                let (channel, answer) = self.context.accept(now, offer)?;
                if let Err(error) = pending.greeting.reply(&answer) {
                    self.context.abort(now, channel);
                    return Err(greeting_error(peer, &error));
                }
                channel
            }
        };
        let Some(pending) = self.greetings.remove(&number) else { return Ok(()) };
        let connection = pending.greeting.socket;
        let _ = epoll::delete(&self.epoll, &connection);
        if stream {
            self.attach_stream(channel, connection)?;
        }
        Ok(())
    }

    /// Ends a greeting that failed.
    fn fail_greeting(&mut self, number: u64, error: NodeError) {
        let Some(pending) = self.greetings.remove(&number) else { return };
        let _ = epoll::delete(&self.epoll, &pending.greeting.socket);
        if let Some((ticket, channel)) = pending.client {
            self.context.abort(clock::now(), channel);
            self.events.push_back(Event::ConnectFailed { ticket, error });
        } else {
            self.events.push_back(Event::AcceptFailed { error });
        }
    }

    /// Returns the earliest deadline of the greetings: that of the oldest, because all have the same time limit.
    pub(super) fn greeting_deadline(&self) -> Option<Instant> {
        self.greetings.first_key_value().map(|(_, pending)| pending.greeting.until)
    }

    /// Ends greetings whose time limit has passed.
    pub(super) fn expire_greetings(&mut self) {
        let now = clock::now();
        while let Some((&number, pending)) = self.greetings.first_key_value()
            && pending.greeting.until <= now
        {
            let why = format!("no answer in {GREETING_TIMEOUT}");
            let kind = ErrorKind::TimedOut;
            let error = NodeError::Peer { peer: pending.peer, kind, why };
            self.fail_greeting(number, error);
        }
    }
}

/// Returns a non-blocking listener.
fn listener(at: SocketAddr) -> std::io::Result<TcpListener> {
    let kind = Type::STREAM.nonblocking();
    let listener = Socket::new(Domain::for_address(at), kind, Some(Protocol::TCP))?;
    listener.set_reuse_address(true)?;
    listener.bind(&at.into())?;
    // A client whose connection does not fit in the backlog retries after one second.
    listener.listen(MAX_GREETINGS.into())?;
    Ok(listener.into())
}

/// Starts to connect a non-blocking socket; it becomes writable when it is connected or has failed.
fn start_connecting(to: SocketAddr) -> std::io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking();
    let connection = Socket::new(Domain::for_address(to), kind, Some(Protocol::TCP))?;
    match connection.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) || would_block(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(connection.into())
}

/// Converts an error of a greeting to that of a node.
fn greeting_error(peer: SocketAddr, error: &GreetingError) -> NodeError {
    let kind = match error {
        GreetingError::Io(error) => error.kind(),
        GreetingError::Closed => ErrorKind::ConnectionReset,
        GreetingError::Parse(_) | GreetingError::Kind(_) => ErrorKind::InvalidData,
    };
    let why = match kind {
        ErrorKind::ConnectionRefused => "nobody listens there".into(),
        _ => error.to_string(),
    };
    NodeError::Peer { peer, kind, why }
}
