//! One thread's X-RDMA: a context on a device, and the sockets around it. The data path is [`Node::poll`], which
//! makes no system calls; sockets are polled at intervals, and when the node sleeps.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::epoll;
use weft_msg::{ChannelId, Config, ConfigError, Context, OfferError, Verbs};
use weft_units::{Duration, Instant, Seed};

use crate::clock;
use crate::device::{DeviceOptions, IbVerbs};
use crate::greeting::Greeting;
use crate::library::VerbsLibraryError;

mod meet;
mod show;
mod streams;
mod wait;

use show::NodeRecord;
pub use show::Show;
pub use wait::CallError;

/// The settings of a node.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The device and its settings.
    pub device: DeviceOptions,
    /// Parameters of the context.
    pub config: Config,
    /// `true` to keep the TCP connection of each channel that this node opens, to carry it when RDMA cannot. Streams are
    /// not encrypted.
    pub streams: bool,
    /// The time to busy-poll after the last event before sleeping ([`Node::wait`]); 50 us by default.
    pub spin: Option<Duration>,
    /// The record of the node for `weft stat` and `weft adm`, if it has one.
    pub show: Show,
}

/// The identifier of a channel that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// Returns the ticket's number, unique in the node, for owners that cannot store the ticket itself.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The events of a node.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A channel of [`connect`](Node::connect) is open.
    Connected {
        /// The ticket of that call.
        ticket: Ticket,
        /// The channel.
        channel: ChannelId,
    },
    /// A channel of [`connect`](Node::connect) could not be opened.
    ConnectFailed {
        /// The ticket of that call.
        ticket: Ticket,
        /// The reason.
        error: NodeError,
    },
    /// A peer's channel could not be opened, or the node cannot accept any for a while.
    AcceptFailed {
        /// The reason.
        error: NodeError,
    },
    /// An event of a channel.
    Channel(weft_msg::Event),
}

/// The errors of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no RDMA device.
    #[error(transparent)]
    Verbs(#[from] VerbsLibraryError),
    /// A parameter is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The peer's offer is invalid, or the device has no resources left.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// A socket operation failed.
    #[error("{doing}: {error}")]
    Socket {
        /// The operation.
        doing: String,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The peer did not answer, or violated the protocol.
    #[error("{peer}: {why}")]
    Peer {
        /// The peer.
        peer: SocketAddr,
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The description of the failure.
        why: String,
    },
    /// A stream is wanted where encryption is required.
    #[error(
        "streams carry messages in the clear, and this end requires encryption: open the channel without `streams`, or set \
         WEFT_ENCRYPTION=preferred"
    )]
    ClearStream,
}

/// A context on a device, and the sockets around it.
#[derive(Debug)]
pub struct Node {
    context: Context<IbVerbs>,
    options: Options,
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    /// The time to poll listeners again, after the kernel had no descriptor for a new connection.
    listen_again_at: Option<Instant>,
    /// The listeners' addresses, for readers of the record.
    listens: String,
    greetings: BTreeMap<u64, PendingGreeting>,
    streams: BTreeMap<ChannelId, ChannelStream>,
    /// Channels with a stream, by the stream's number in epoll.
    stream_numbers: BTreeMap<u64, ChannelId>,
    /// Channels that had no room for more bytes of their stream.
    full_streams: Vec<ChannelId>,
    /// The time at which a stream last carried bytes.
    streams_active_at: Option<Instant>,
    /// The buffer for streams' bytes; empty as long as no stream was attached.
    chunk: Vec<u8>,
    events: VecDeque<Event>,
    next_number: u64,
    sockets_polled_at: Instant,
    polled_at: Instant,
    /// The time of the last event, from which `spin` counts.
    last_active: Instant,
    /// `true` if the next completion makes the device's descriptor readable.
    armed: bool,
    /// `true` if the last poll left work for the next.
    work_pending: bool,
    /// `true` if the environment requires encryption; no channel has a stream then.
    requires_encryption: bool,
    /// The record for `weft stat`; `None` if the node has none.
    record: Option<NodeRecord>,
}

/// A greeting in progress; a client has a channel for it already.
#[derive(Debug)]
struct PendingGreeting {
    greeting: Greeting,
    peer: SocketAddr,
    client: Option<(Ticket, ChannelId)>,
}

/// A channel's stream, and bytes that the kernel has not accepted yet.
#[derive(Debug)]
struct ChannelStream {
    socket: TcpStream,
    number: u64,
    /// The events that epoll reports.
    interest: epoll::EventFlags,
    unwritten: Vec<u8>,
}

/// The kinds of epoll events, in the high bits of their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Source {
    Device = 0,
    Listener = 1,
    Greeting = 2,
    Stream = 3,
    Control = 4,
}

/// The position of a source in the data of an epoll event; the bits below it are a number.
const SOURCE_SHIFT: u32 = 60;

impl Source {
    const fn data(self, number: u64) -> epoll::EventData {
        epoll::EventData::new_u64((self as u64) << SOURCE_SHIFT | number)
    }
}

/// The interval between polls of the sockets while the node is busy.
const SOCKET_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The same interval while a stream carries messages: less than their round trip, more than a system call.
const STREAM_POLL_INTERVAL: Duration = Duration::from_micros(20);

impl Node {
    /// Opens a device and creates a context on it.
    ///
    /// # Errors
    /// RDMA is not available, a parameter is out of range, the kernel has no descriptor left, or the options have streams
    /// where encryption is required.
    pub fn new(options: Options) -> Result<Self, NodeError> {
        options.config.check()?;
        let requires_encryption = streams::encryption_is_required(|name| std::env::var_os(name));
        if options.streams && requires_encryption {
            return Err(NodeError::ClearStream);
        }
        let completions = 1 << 16;
        let device = IbVerbs::open(&options.device, completions)?;
        let [seed, high, low] = [random()?, random()?, random()?];
        let secret = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        let context = Context::new(options.config.clone(), device, Seed(seed), secret)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(socket("epoll"))?;
        let now = clock::now();
        let record = NodeRecord::open(&options.show, now);
        let mut node = Self {
            context,
            options,
            epoll,
            listeners: Vec::new(),
            listen_again_at: None,
            listens: String::new(),
            greetings: BTreeMap::new(),
            streams: BTreeMap::new(),
            stream_numbers: BTreeMap::new(),
            full_streams: Vec::new(),
            streams_active_at: None,
            chunk: Vec::new(),
            events: VecDeque::new(),
            next_number: 1,
            sockets_polled_at: now,
            polled_at: now,
            last_active: now,
            armed: false,
            work_pending: false,
            requires_encryption,
            record,
        };
        node.watch(node.context.verbs().events(), Source::Device, 0, epoll::EventFlags::IN)?;
        node.watch_control()?;
        node.show();
        Ok(node)
    }

    /// Returns the context, for everything except connecting and waiting.
    pub const fn context(&mut self) -> &mut Context<IbVerbs> {
        &mut self.context
    }

    /// Returns the current time, which the context's calls need.
    pub fn now(&self) -> Instant {
        clock::now()
    }

    /// Returns the time of the last [`poll`](Self::poll). For an owner that responds to its events at once it replaces
    /// [`now`](Self::now), which reads the clock.
    pub const fn polled_at(&self) -> Instant {
        self.polled_at
    }

    /// Returns the address by which peers reach this node's device.
    pub fn address(&self) -> std::net::IpAddr {
        self.context.verbs().gid().to_canonical()
    }

    /// Returns the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            return self.context.poll_event().map(Event::Channel);
        }
        self.events.pop_front()
    }

    /// Makes progress until there is an event for the owner. It then returns, so that the owner can release memory
    /// before the node uses more.
    pub fn poll(&mut self) {
        let now = clock::now();
        self.polled_at = now;
        if core::mem::take(&mut self.work_pending) {
            self.context.service(now);
        }
        loop {
            let more = self.context.ingest(now);
            if more {
                self.last_active = now;
            }
            if self.context.has_event() {
                // The owner responds first, because its peer waits for the response.
                self.work_pending = true;
                break;
            }
            self.context.service(now);
            if !more {
                break;
            }
        }
        self.serve_pending_streams();
        let since = now.since(self.sockets_polled_at);
        if since >= SOCKET_POLL_INTERVAL
            || since >= STREAM_POLL_INTERVAL && self.has_active_stream()
        {
            self.poll_sockets(Duration::ZERO);
        }
    }

    /// Returns the descriptor for a program's own event loop (`get_event_fd`). Sleep on it only after
    /// [`arm`](Self::arm) has returned a duration, and no longer than that.
    pub fn event_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Processes pending work after [`event_fd`](Self::event_fd) became readable, or time passed (`process_event`).
    pub fn process_event(&mut self) {
        self.poll_sockets(Duration::ZERO);
        self.poll();
    }

    /// Adds a descriptor to epoll.
    fn watch(
        &self,
        descriptor: impl AsFd,
        source: Source,
        number: u64,
        flags: epoll::EventFlags,
    ) -> Result<(), NodeError> {
        epoll::add(&self.epoll, descriptor, source.data(number), flags).map_err(socket("epoll"))
    }

    /// Returns an unused number for a greeting or a stream.
    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

/// The descriptor that [`Node::event_fd`] returns, for the node's lifetime.
impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn socket<E: Into<io::Error>>(doing: &str) -> impl FnOnce(E) -> NodeError {
    let doing = doing.to_owned();
    move |error| NodeError::Socket { doing, error: error.into() }
}

fn random() -> Result<u64, NodeError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(socket("reading randomness"))?;
    Ok(u64::from_ne_bytes(bytes))
}
