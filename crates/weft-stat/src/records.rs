//! The records of a file. A record only grows at its end: readers decode the words that they know.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::field::{Field, FieldRow, LayoutError};
use crate::values::{Address, Latencies, Text};

/// A record of one kind. The records of a kind are consecutive in a table.
pub trait Record: Sized {
    /// The number of its table in the directory.
    const TABLE: usize;
    /// The name of the record.
    const NAME: &'static str;
    /// Number of words.
    const WORDS: usize;
    /// The fields, in order.
    const FIELDS: &'static [FieldRow];

    /// Appends the words of the record.
    fn put(&self, words: &mut Vec<u64>);

    /// Decodes a record from at least [`WORDS`](Self::WORDS) words.
    ///
    /// # Errors
    /// Returns an error if the words do not encode such a record.
    fn take(words: &[u64]) -> Result<Self, LayoutError>;
}

/// Declares an enum of numeric codes.
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

/// Declares a record with its table and its fields.
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

/// Decodes a field from the front of a record's words.
fn next<T: Field>(words: &mut &[u64]) -> Result<T, LayoutError> {
    let (own, rest) = words.split_at(T::WORDS);
    *words = rest;
    T::take(own)
}

codes! {
    /// The subject of a file.
    Kind, "kind of file":
    /// A messaging node: a thread's context and its channels.
    Node = 0, "node";
    /// A Weft RDMA device, in a program or a daemon.
    Device = 1, "device";
}

codes! {
    /// The state of a channel.
    ChannelState, "channel state":
    /// The peer has not answered the offer.
    Offered = 0, "offered";
    /// The peer's first frame has not arrived.
    Connected = 1, "connected";
    /// Both ends may send.
    Open = 2, "open";
    /// This end closed the channel and sends its backlog.
    Closing = 3, "closing";
    /// The peer closed the channel.
    PeerClosed = 4, "peer-closed";
}

codes! {
    /// The carrier of a channel's frames or of a connection's packets.
    Carrier, "carrier":
    /// A queue pair.
    Rdma = 0, "rdma";
    /// A TCP stream.
    Stream = 1, "tcp";
    /// The network, over several paths.
    Network = 2, "network";
    /// The memory of this host.
    SameHost = 3, "same-host";
}

codes! {
    /// The kind of an event.
    EventKind, "kind of event":
    /// A channel opened.
    Opened = 0, "opened";
    /// A channel ended; the text gives the reason.
    Closed = 1, "closed";
    /// A channel changed the carrier of its frames; the text names the new one.
    Switched = 2, "switched";
    /// A call took longer than `slow_threshold`; the number is its duration in nanoseconds.
    SlowCall = 3, "slow-call";
    /// The program did not poll for longer than `polling_warn`; the number is the time in nanoseconds.
    SlowPoll = 4, "slow-poll";
    /// A parameter was changed by a command; the text gives its name and value.
    Changed = 5, "changed";
    /// A program began (reported by the collector).
    Began = 6, "began";
    /// A program ended in order (reported by the collector).
    Ended = 7, "ended";
    /// A program died with its node open (reported by the collector).
    Died = 8, "died";
    /// A host does not answer the collector.
    Silent = 9, "silent";
    /// A host answers the collector again.
    Answers = 10, "answers";
    /// An operation of the program's messaging took longer than `slow_threshold`; the text names it.
    SlowSegment = 11, "slow-segment";
}

record! {
    /// The program of a file.
    ProgramRecord = 0, "program";
    /// Subject of the file: 0 a messaging node, 1 a device
    kind: Kind,
    /// Process ID, in the program's own PID namespace
    pid: u64,
    /// Time at which the node or device was created, ns since boot
    started_at: u64,
    /// Time of the last update of the file, ns since boot
    published_at: u64,
    /// Name of the program
    name: Text<8>,
    /// Name of the RDMA device
    device: Text<4>,
    /// Address at which peers reach it
    address: Address,
    /// Addresses and ports at which it accepts channels, separated by commas
    listens: Text<12>,
    /// Number of its channels or connections; the table may hold fewer
    entries: u64,
    /// Number of events since the start; the table holds the latest
    events: u64,
}

record! {
    /// A messaging context.
    ContextRecord = 1, "context";
    /// Bytes of registered memory
    memory_registered: u64,
    /// Bytes of it that are in use
    memory_used: u64,
    /// Maximum bytes that it may register
    memory_limit: u64,
    /// Queue pairs in the cache for later channels
    qps_cached: u64,
    /// Queue pairs created
    qps_created: u64,
    /// Queue pairs taken from the cache
    qps_reused: u64,
    /// Channels begun
    channels_begun: u64,
    /// Channels ended
    channels_closed: u64,
    /// Polls later than `polling_warn`
    slow_polls: u64,
    /// Calls longer than `slow_threshold`
    slow_calls: u64,
    /// Messages that matched a filter rule
    filtered: u64,
    /// Bytes of SENDs that may be in flight: N, which follows the network
    sends_limit: u64,
    /// Bytes of SENDs in flight
    sends_in_flight: u64,
    /// Bytes of READs that may be in flight
    reads_limit: u64,
    /// Bytes of READs in flight
    reads_in_flight: u64,
    /// Operations of the program's messaging, such as the registration of memory, longer than `slow_threshold`
    slow_segments: u64,
    /// Total transfer time of traced requests, ns
    request_time: u64,
    /// Total time of traced calls at the peers, ns
    peer_time: u64,
    /// Total transfer time of traced responses, ns
    response_time: u64,
    /// Traced requests by transfer time, in the buckets of a channel's calls
    requests: Latencies,
    /// Traced calls by their time at the peer
    peers: Latencies,
    /// Traced responses by transfer time
    responses: Latencies,
}

record! {
    /// A Weft device: the packets of all its connections over the network.
    DeviceRecord = 2, "device";
    /// Data packets sent, retransmissions included
    data_sent: u64,
    /// Data packets received
    data_received: u64,
    /// Packets retransmitted by fast retransmission
    fast_retransmits: u64,
    /// Packets retransmitted after a timeout
    timeout_retransmits: u64,
    /// Packets retransmitted as tail loss probes
    tail_loss_probes: u64,
    /// Packets retransmitted although the original had arrived
    spurious_retransmits: u64,
    /// Packets received before one with a lower number
    out_of_order: u64,
    /// Congestion marks that peers reported
    ecn_marks_reported: u64,
    /// Number of times that a path went down
    paths_down: u64,
    /// Number of times that a path came back
    paths_up: u64,
    /// Packets refused
    refused: u64,
    /// Profile, path policy, congestion control and paths of its connections
    transport: Text<8>,
    /// Encrypted connections over the network
    encrypted: u64,
    /// Unencrypted connections over the network
    in_the_clear: u64,
    /// Packets encrypted
    sealed: u64,
    /// Packets decrypted
    opened: u64,
    /// Packets that were not decrypted: forged, changed, replayed, or unencrypted against the policy
    not_opened: u64,
    /// Connections refused because they lacked encryption or the right key
    not_admitted: u64,
    /// Requests executed in memory of another process of the host that this one has mapped
    mapped_requests: u64,
    /// Requests executed in memory of another process of the host by a system call
    requests_by_call: u64,
}

record! {
    /// A channel.
    ChannelRecord = 3, "channel";
    /// Number of the channel in its node; it is never reused
    id: u64,
    /// Address of the peer's device
    peer: Address,
    /// Number of this end's queue pair
    qp: u64,
    /// Number of the peer's queue pair
    peer_qp: u64,
    /// State: 0 offered, 1 connected, 2 open, 3 closing, 4 closed by the peer
    state: ChannelState,
    /// Carrier of its frames: 0 the queue pair, 1 a TCP stream
    carrier: Carrier,
    /// Frames in flight
    in_flight: u64,
    /// Maximum frames in flight: the window
    depth: u64,
    /// Messages that wait for the window
    backlog: u64,
    /// Large messages that are being fetched
    fetching: u64,
    /// Calls without a response yet
    asked: u64,
    /// Bytes of registered memory that it holds for receiving
    memory: u64,
    /// Lead of the peer's clock, ns; the least number if no traced call has measured it in the last 100 s
    clock_offset: Option<i64>,
    /// Messages sent
    sent: u64,
    /// Bytes of their bodies
    sent_bytes: u64,
    /// Messages received
    received: u64,
    /// Bytes of their bodies
    received_bytes: u64,
    /// Messages sent and received that were too long for a frame
    large: u64,
    /// ACK frames sent
    acks: u64,
    /// NOPs sent
    nops: u64,
    /// Keepalive probes sent
    probes: u64,
    /// Changes of the sending carrier
    switches: u64,
    /// Frames retransmitted by another carrier
    frames_retransmitted: u64,
    /// Receive requests delayed by lack of memory
    starved: u64,
    /// Total duration of answered calls, ns
    call_time: u64,
    /// Answered calls by duration: up to 1024 ns, then two buckets per doubling
    calls: Latencies,
    /// Age of the measurement of the peer's clock, ns, if there is one
    clock_age: Option<u64>,
    /// Greatest error of `clock_offset`, ns, if known
    clock_error: Option<u64>,
    /// Smoothed round trip of its queue pair, ns, if measured
    round_trip: Option<u64>,
}

record! {
    /// A connection of a Weft device.
    ConnectionRecord = 4, "connection";
    /// Number of the connection in its device
    id: u64,
    /// Number of its queue pair, if known
    qp: Option<u64>,
    /// Address of the peer
    peer: Address,
    /// Carrier: 2 the network, 3 the memory of this host
    carrier: Carrier,
    /// Data packets sent over the network, retransmissions included
    sent: u64,
    /// Data packets retransmitted
    retransmits: u64,
    /// Bytes in flight
    in_flight: u64,
    /// Number of paths
    paths: u64,
    /// Number of paths that are up, as far as known
    paths_up: u64,
    /// Smallest smoothed round-trip time of a path, ns, if measured
    rtt_min: Option<u64>,
    /// Largest smoothed round-trip time of a path, ns, if measured
    rtt_max: Option<u64>,
    /// 1 if it uses the network and is encrypted
    encrypted: u64,
}

record! {
    /// A path of a connection. Only active connections keep path state.
    PathRecord = 5, "path";
    /// Number of the connection
    connection: u64,
    /// Number of the path
    path: u64,
    /// Smoothed round-trip time, ns, if measured
    rtt: Option<u64>,
    /// Bytes in flight
    in_flight: u64,
    /// Packets lost since the connection last became active
    lost: u64,
    /// 1 if the path is up, as far as known
    up: u64,
}

record! {
    /// A recent event.
    EventRecord = 6, "event";
    /// Number of the event in its file, from 1
    number: u64,
    /// Time, ns since boot
    at: u64,
    /// Kind: 0 opened, 1 closed, 2 switched, 3 slow call, 4 slow poll, 5 parameter changed, 11 slow segment
    kind: EventKind,
    /// Channel of the event, or 0
    channel: u64,
    /// Peer of the channel
    peer: Address,
    /// Duration, ns, for slow calls, polls and segments
    took: u64,
    /// Description
    text: Text<16>,
}
