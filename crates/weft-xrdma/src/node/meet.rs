//! Channels by address and port.

use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::epoll::{self, EventFlags};
use socket2::{Domain, Protocol, Socket, Type};
use weft_msg::ChannelId;
use weft_units::Duration;

use super::{Event, Meeting, Node, NodeError, Source, Ticket, socket};
use crate::clock;
use crate::greeting::{Greeting, GreetingError, Progress, would_block};

/// How long two ends may take to meet.
const PATIENCE: Duration = Duration::from_secs(5);
/// Meetings at a time that were begun by others: more must be an enemy, or a storm that passes.
const MOST: usize = 4096;

impl Node {
    /// Takes channels at an address; port 0 is any. Says which it became.
    ///
    /// # Errors
    /// The address is not this host's, or in use.
    pub fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, NodeError> {
        let doing = format!("listening at {at}");
        let listener = TcpListener::bind(at).map_err(socket(&doing))?;
        listener.set_nonblocking(true).map_err(socket(&doing))?;
        let became = listener.local_addr().map_err(socket(&doing))?;
        let index = self.listeners.len() as u64;
        self.watch(&listener, Source::Listener, index, EventFlags::IN)?;
        self.listeners.push(listener);
        Ok(became)
    }

    /// Begins a channel; `Connected` or `ConnectFailed` follows.
    ///
    /// # Errors
    /// The device has no room, or the kernel no socket.
    pub fn connect(&mut self, to: SocketAddr) -> Result<Ticket, NodeError> {
        let now = clock::now();
        let doing = format!("connecting to {to}");
        let (channel, offer) = self.context.offer(now)?;
        let made = begin(to).map_err(socket(&doing));
        let connection = made.inspect_err(|_| self.context.abort(now, channel))?;
        let greeting = Greeting::ask(connection, &offer, self.options.streams, now + PATIENCE);
        let number = self.number();
        let ticket = Ticket(number);
        self.watch(&greeting.socket, Source::Greeting, number, EventFlags::IN | EventFlags::OUT)?;
        let meeting = Meeting { greeting, peer: to, client: Some((ticket, channel)) };
        self.greetings.insert(number, meeting);
        Ok(ticket)
    }

    /// Begins a channel and waits until it is there.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and what `ConnectFailed` would say.
    pub fn connect_and_wait(&mut self, to: SocketAddr) -> Result<ChannelId, NodeError> {
        let wanted = self.connect(to)?;
        let met = |node: &mut Self| {
            let ours = |event: &Event| match event {
                Event::Connected { ticket, .. } | Event::ConnectFailed { ticket, .. } => {
                    *ticket == wanted
                }
                Event::Channel(_) => false,
            };
            let at = node.events.iter().position(ours)?;
            match node.events.remove(at)? {
                Event::Connected { channel, .. } => Some(Ok(channel)),
                Event::ConnectFailed { error, .. } => Some(Err(error)),
                Event::Channel(_) => None,
            }
        };
        self.wait_for(None, met).expect("a meeting is given up after a while")
    }

    /// Somebody wants a channel.
    pub(super) fn take_connections(&mut self, index: usize) {
        loop {
            // The next look at the sockets will tell whether an error passes.
            let Ok((connection, peer)) = self.listeners[index].accept() else { return };
            if self.greetings.len() >= MOST || connection.set_nonblocking(true).is_err() {
                continue;
            }
            let greeting = Greeting::answer(connection, clock::now() + PATIENCE);
            let number = self.number();
            if self.watch(&greeting.socket, Source::Greeting, number, EventFlags::IN).is_ok() {
                self.greetings.insert(number, Meeting { greeting, peer, client: None });
            }
        }
    }

    /// A meeting's connection can be read or written.
    pub(super) fn go_on(&mut self, number: u64) {
        let Some(meeting) = self.greetings.get_mut(&number) else { return };
        let progress = meeting.greeting.write().and_then(|()| meeting.greeting.read());
        match progress {
            Ok(Progress::Waiting) => self.want(number),
            Ok(Progress::Met { offer, stream }) => {
                if let Err(why) = self.met(number, &offer, stream) {
                    self.part(number, why);
                }
            }
            Err(error) => {
                let Some(meeting) = self.greetings.get(&number) else { return };
                let why = NodeError::Peer { peer: meeting.peer, why: describe(&error) };
                self.part(number, why);
            }
        }
    }

    /// Has epoll tell of what the meeting waits for, and no more.
    fn want(&self, number: u64) {
        let Some(meeting) = self.greetings.get(&number) else { return };
        let out = meeting.greeting.wants_to_write();
        let flags = EventFlags::IN | if out { EventFlags::OUT } else { EventFlags::empty() };
        let data =
            epoll::EventData::new_u64((Source::Greeting as u64) << super::SOURCE_SHIFT | number);
        // It was added; that cannot fail for want of anything.
        let _ = epoll::modify(&self.epoll, &meeting.greeting.socket, data, flags);
    }

    /// The peer's offer is here.
    fn met(
        &mut self,
        number: u64,
        offer: &weft_wire::ChannelOffer,
        stream: bool,
    ) -> Result<(), NodeError> {
        let now = clock::now();
        let Some(meeting) = self.greetings.get_mut(&number) else { return Ok(()) };
        let peer = meeting.peer;
        let channel = match meeting.client {
            Some((ticket, channel)) => {
                self.context.establish(now, channel, offer)?;
                self.events.push_back(Event::Connected { ticket, channel });
                channel
            }
            None => {
                let (channel, answer) = self.context.accept(now, offer)?;
                if let Err(error) = meeting.greeting.reply(&answer) {
                    self.context.abort(now, channel);
                    return Err(NodeError::Peer { peer, why: describe(&error) });
                }
                channel
            }
        };
        let Some(meeting) = self.greetings.remove(&number) else { return Ok(()) };
        let connection = meeting.greeting.socket;
        let _ = epoll::delete(&self.epoll, &connection);
        if stream {
            self.carry(channel, connection)?;
        }
        Ok(())
    }

    /// Two ends did not meet.
    fn part(&mut self, number: u64, error: NodeError) {
        let Some(meeting) = self.greetings.remove(&number) else { return };
        let _ = epoll::delete(&self.epoll, &meeting.greeting.socket);
        if let Some((ticket, channel)) = meeting.client {
            self.context.abort(clock::now(), channel);
            self.events.push_back(Event::ConnectFailed { ticket, error });
        }
    }

    /// Gives up meetings that take too long.
    pub(super) fn expire_meetings(&mut self) {
        let now = clock::now();
        let late = |meeting: &Meeting| meeting.greeting.until <= now;
        let late: Vec<u64> = self
            .greetings
            .iter()
            .filter(|(_, meeting)| late(meeting))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            let Some(meeting) = self.greetings.get(&number) else { continue };
            let why = format!("no answer in {PATIENCE}");
            let error = NodeError::Peer { peer: meeting.peer, why };
            self.part(number, error);
        }
    }
}

fn begin(to: SocketAddr) -> std::io::Result<TcpStream> {
    let connection = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    connection.set_nonblocking(true)?;
    connection.set_tcp_nodelay(true)?;
    match connection.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) || would_block(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(connection.into())
}

fn describe(error: &GreetingError) -> String {
    match error {
        GreetingError::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "nobody listens there".into()
        }
        other => other.to_string(),
    }
}
