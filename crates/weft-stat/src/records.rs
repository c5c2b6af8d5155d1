//! The records of a file. A record only ever grows at its end: readers take the words they know.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::field::{Field, FieldRow, LayoutError};
use crate::values::{Address, Latencies, Text};

/// Words of one kind, side by side in a table.
pub trait Record: Sized {
    /// Its number in the file's directory.
    const TABLE: usize;
    /// Its name.
    const NAME: &'static str;
    /// Words that one has.
    const WORDS: usize;
    /// Its fields, in their order.
    const FIELDS: &'static [FieldRow];

    /// Appends its words.
    fn put(&self, words: &mut Vec<u64>);

    /// Reads it from as many words or more.
    ///
    /// # Errors
    /// They are no such record.
    fn take(words: &[u64]) -> Result<Self, LayoutError>;
}

/// Declares numbers that stand for words.
macro_rules! codes {
    ($(#[doc = $about:literal])+ $name:ident, $what:literal: $($(#[doc = $of:literal])+ $variant:ident = $code:literal, $text:literal;)+) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u64)]
        pub enum $name {
            #[default]
            $($(#[doc = $of])+ #[serde(rename = $text)] $variant = $code,)+
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text,)+ })
            }
        }

        impl Field for $name {
            const WORDS: usize = 1;

            fn put(&self, words: &mut Vec<u64>) {
                words.push(*self as u64);
            }

            fn take(words: &[u64]) -> Result<Self, LayoutError> {
                match words[0] {
                    $($code => Ok(Self::$variant),)+
                    got => Err(LayoutError::Code { what: $what, got }),
                }
            }
        }
    };
}

/// Declares a record: its table, and each field once.
macro_rules! record {
    ($(#[doc = $about:literal])+ $name:ident = $table:literal, $text:literal; $($(#[doc = $of:literal])+ $field:ident: $kind:ty,)+) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[doc = $of])+ pub $field: $kind,)+
        }

        impl Record for $name {
            const TABLE: usize = $table;
            const NAME: &'static str = $text;
            const WORDS: usize = 0 $(+ <$kind as Field>::WORDS)+;
            const FIELDS: &'static [FieldRow] = &[$(FieldRow {
                name: stringify!($field),
                words: <$kind as Field>::WORDS,
                about: concat!($($of),+).trim_ascii_start(),
            },)+];

            fn put(&self, words: &mut Vec<u64>) {
                $(self.$field.put(words);)+
            }

            fn take(words: &[u64]) -> Result<Self, LayoutError> {
                let mut rest = words;
                Ok(Self { $($field: next(&mut rest)?,)+ })
            }
        }
    };
}

/// Takes a field off the front of a record's words.
fn next<T: Field>(words: &mut &[u64]) -> Result<T, LayoutError> {
    let (own, rest) = words.split_at(T::WORDS);
    *words = rest;
    T::take(own)
}

codes! {
    /// What a file is about.
    Kind, "kind of file":
    /// A messaging node: a thread's context and its channels.
    Node = 0, "node";
    /// An RDMA device of ours, in a program or a daemon.
    Device = 1, "device";
}

codes! {
    /// How far a channel is.
    ChannelState, "channel state":
    /// The peer has not answered.
    Offered = 0, "offered";
    /// The peer's first frame is awaited.
    Connected = 1, "connected";
    /// Both ends may send.
    Open = 2, "open";
    /// This end closed it, and sends what waits.
    Closing = 3, "closing";
    /// The peer closed it.
    PeerClosed = 4, "peer-closed";
}

codes! {
    /// What carries a channel's frames, or a connection's packets.
    Carrier, "carrier":
    /// A queue pair.
    Rdma = 0, "rdma";
    /// A TCP stream.
    Stream = 1, "tcp";
    /// The network, over its paths.
    Network = 2, "network";
    /// The memory of this host.
    SameHost = 3, "same-host";
}

codes! {
    /// What happened.
    EventKind, "kind of event":
    /// A channel opened.
    Opened = 0, "opened";
    /// A channel ended; the text says why.
    Closed = 1, "closed";
    /// A channel's frames leave by another carrier; the text says which.
    Switched = 2, "switched";
    /// A call took longer than `slow_threshold`; the number says how long, ns.
    SlowCall = 3, "slow-call";
    /// The program did not poll for longer than `polling_warn`; the number says how long, ns.
    SlowPoll = 4, "slow-poll";
    /// A parameter was changed from outside; the text says which, and to what.
    Changed = 5, "changed";
    /// A program began; the collector says so.
    Began = 6, "began";
    /// A program ended as it should; the collector says so.
    Ended = 7, "ended";
    /// A program died with its node open; the collector says so.
    Died = 8, "died";
    /// A host does not answer the collector.
    Silent = 9, "silent";
    /// A host answers the collector again.
    Answers = 10, "answers";
}

record! {
    /// Whose file it is.
    ProgramRecord = 0, "program";
    /// What the file is about: 0 a messaging node, 1 a device
    kind: Kind,
    /// Process number, in its own namespace of them
    pid: u64,
    /// When the node or device was made, ns since boot
    started_at: u64,
    /// When the file was written last, ns since boot
    published_at: u64,
    /// Name of the program
    name: Text<8>,
    /// Name of the RDMA device
    device: Text<4>,
    /// Address that peers reach it by
    address: Address,
    /// Where it takes channels: addresses and ports, a comma between
    listens: Text<12>,
    /// Channels, or connections, that it has; the table may hold fewer
    entries: u64,
    /// Events that there were; the table has the last of them
    events: u64,
}

record! {
    /// A messaging context.
    ContextRecord = 1, "context";
    /// Bytes of registered memory
    memory_registered: u64,
    /// Bytes of them in use
    memory_used: u64,
    /// Bytes that it may register
    memory_limit: u64,
    /// Queue pairs kept for the next channels
    qps_cached: u64,
    /// Queue pairs made
    qps_created: u64,
    /// Queue pairs taken from the cache
    qps_reused: u64,
    /// Channels that were begun
    channels_begun: u64,
    /// Channels that ended
    channels_closed: u64,
    /// Polls that came later than `polling_warn`
    slow_polls: u64,
    /// Calls that took longer than `slow_threshold`
    slow_calls: u64,
    /// Messages that a filter rule struck
    filtered: u64,
}

record! {
    /// A device of ours: packets of all its connections over the network.
    DeviceRecord = 2, "device";
    /// Data packets sent, repeats included
    data_sent: u64,
    /// Data packets received
    data_received: u64,
    /// Packets sent again because they were overtaken
    fast_retransmits: u64,
    /// Packets sent again because a timeout passed
    timeout_retransmits: u64,
    /// Packets sent again to ask for an ACK
    tail_loss_probes: u64,
    /// Packets sent again that had arrived
    spurious_retransmits: u64,
    /// Packets that came before one with a lower number
    out_of_order: u64,
    /// Congestion marks heard of
    ecn_marks_heard: u64,
    /// Times a path went down
    paths_down: u64,
    /// Times a path came back
    paths_up: u64,
    /// Packets refused
    refused: u64,
    /// Profile, path policy, congestion control and paths of its connections
    transport: Text<8>,
    /// Connections over the network that are encrypted
    encrypted: u64,
    /// Connections over the network that are not
    in_the_clear: u64,
    /// Packets encrypted
    sealed: u64,
    /// Packets opened
    opened: u64,
    /// Packets that were not opened: forged, changed, received before, or in the clear where that may not be
    not_opened: u64,
    /// Connections that were refused for want of encryption or of the right key
    not_admitted: u64,
}

record! {
    /// A channel.
    ChannelRecord = 3, "channel";
    /// Number that the node knows it by; no other has it later
    id: u64,
    /// Address of the peer's device
    peer: Address,
    /// Number of its queue pair
    qp: u64,
    /// Number of the peer's
    peer_qp: u64,
    /// How far it is: 0 offered, 1 connected, 2 open, 3 closing, 4 closed by the peer
    state: ChannelState,
    /// What carries its frames: 0 the queue pair, 1 a TCP stream
    carrier: Carrier,
    /// Frames under way
    in_flight: u64,
    /// Frames that may be: the window
    depth: u64,
    /// Messages that wait for the window
    backlog: u64,
    /// Large messages that are being read
    fetching: u64,
    /// Calls that wait for their answer
    asked: u64,
    /// Bytes of registered memory that it holds for receiving
    memory: u64,
    /// How far the peer's clock is ahead, ns; the least number where traced calls have not told
    clock_offset: Option<i64>,
    /// Messages sent
    sent: u64,
    /// Bytes of their bodies
    sent_bytes: u64,
    /// Messages received
    received: u64,
    /// Bytes of their bodies
    received_bytes: u64,
    /// Of both, those too long for a frame
    large: u64,
    /// ACK frames sent
    acks: u64,
    /// NOPs sent
    nops: u64,
    /// Keepalive probes sent
    probes: u64,
    /// Changes of the sending carrier
    switches: u64,
    /// Frames sent again by another carrier
    repeats: u64,
    /// Receive requests that were late for want of memory
    starved: u64,
    /// Time that its answered calls took together, ns
    call_time: u64,
    /// Answered calls by how long they took: up to 1024 ns, then two buckets to a doubling
    calls: Latencies,
}

record! {
    /// A connection of a device of ours.
    ConnectionRecord = 4, "connection";
    /// Number that the device knows it by
    id: u64,
    /// Queue pair that it is of, where it is known
    qp: Option<u64>,
    /// Address of the peer
    peer: Address,
    /// What carries it: 2 the network, 3 the memory of this host
    carrier: Carrier,
    /// Data packets sent over the network, repeats included
    sent: u64,
    /// Data packets sent again
    retransmits: u64,
    /// Bytes sent and not acknowledged
    in_flight: u64,
    /// Paths that packets may take
    paths: u64,
    /// Of them, those that work as far as known
    paths_up: u64,
    /// Shortest smoothed round trip of a path, ns, where one was measured
    rtt_least: Option<u64>,
    /// Longest
    rtt_most: Option<u64>,
    /// 1 where it goes over the network and is encrypted
    encrypted: u64,
}

record! {
    /// A path of a connection. Only connections that are in use remember their paths.
    PathRecord = 5, "path";
    /// The connection
    connection: u64,
    /// Its number
    path: u64,
    /// Smoothed round trip, ns, where it was measured
    rtt: Option<u64>,
    /// Bytes under way on it
    in_flight: u64,
    /// Packets that were lost on it since the connection woke
    lost: u64,
    /// Whether it works, as far as known
    up: u64,
}

record! {
    /// Something that happened lately.
    EventRecord = 6, "event";
    /// Counts up from 1 in a file
    number: u64,
    /// When, ns since boot
    at: u64,
    /// What: 0 opened, 1 closed, 2 switched, 3 slow call, 4 slow poll, 5 parameter changed
    kind: EventKind,
    /// Channel that it is about, or 0
    channel: u64,
    /// Its peer
    peer: Address,
    /// How long it took, ns, where that is what it is about
    took: u64,
    /// In words
    text: Text<16>,
}
