//! Both ends of a ping-pong of messages, without copies and without sleep, as on bare verbs.

use std::error::Error;

use weft_xrdma::{
    Block, CallRole, ChannelId, Config, Event, Message, Node, Options, Payload, Slice,
};

type Outcome = Result<(), Box<dyn Error>>;

/// The variants of an end, by the name it is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A message each way.
    Messages,
    /// A request and its response.
    Calls,
    /// A request and its response, each traced.
    Traced,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Messages, Self::Calls, Self::Traced];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Calls => "calls",
            Self::Traced => "traced",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Maximum length of a message, bytes.
const MAX_MESSAGE: u32 = 16 << 20;

/// Runs an end: `answer PORT`, or `MODE ADDRESS:PORT SIZE COUNT`; or both: `alone MODE SIZE COUNT`.
pub(crate) fn run(words: &[String]) -> Outcome {
    match words {
        [first, port] if first == "answer" => answer(port.parse()?),
        [first, mode, size, count] if first == "alone" => {
            let mode = Mode::named(mode).ok_or("which mode?")?;
            alone(mode, size.parse()?, count.parse()?)
        }
        [mode, at, size, count] => {
            let mode = Mode::named(mode).ok_or("which mode?")?;
            ask(mode, at, size.parse()?, count.parse()?)
        }
        _ => Err("what?".into()),
    }
}

/// Returns the next message, or `None` when a channel ends.
fn receive(node: &mut Node) -> Option<(ChannelId, Message)> {
    loop {
        node.poll();
        while let Some(event) = node.poll_event() {
            match event {
                Event::Channel(weft_msg::Event::Message { channel, message }) => {
                    return Some((channel, message));
                }
                Event::Channel(weft_msg::Event::Closed { .. }) => return None,
                _ => {}
            }
        }
    }
}

/// The constant bytes of every message, in normal and in registered memory.
struct Body {
    bytes: [u8; MAX_COPIED],
    block: Block,
}

/// Maximum length in bytes that is copied: up to here a copy costs less than a second element of the gather list.
const MAX_COPIED: usize = 256;

impl Body {
    fn new(node: &mut Node, longest: u32) -> Result<Self, Box<dyn Error>> {
        let block = node.context().allocate(longest.max(1))?;
        node.context().bytes_mut(&block).fill(7);
        Ok(Self { bytes: [7; MAX_COPIED], block })
    }

    fn of(&self, len: u32) -> Payload<'_> {
        let bytes = self.bytes.get(..len as usize);
        let lent = || Payload::Lent(Slice { len, ..self.block.slice() });
        bytes.map_or_else(lent, Payload::Copy)
    }
}

fn answer(port: u16) -> Outcome {
    let mut node = Node::new(Options::default())?;
    let body = Body::new(&mut node, MAX_MESSAGE)?;
    node.listen(([0, 0, 0, 0], port).into())?;
    while let Some((channel, message)) = receive(&mut node) {
        let body = body.of(message.len());
        let now = node.polled_at();
        match message.call {
            CallRole::Request(id) => node.context().respond(now, channel, id, body)?,
            _ => node.context().send(now, channel, body)?,
        };
        node.context().release(now, message);
    }
    Ok(())
}

fn ask(mode: Mode, at: &str, size: u32, count: usize) -> Outcome {
    let trace_every = u32::from(mode == Mode::Traced);
    let config = Config { trace_every, ..Config::default() };
    let mut node = Node::new(Options { config, ..Options::default() })?;
    let channel = node.connect_and_wait(at.parse()?)?;
    let body = Body::new(&mut node, size)?;
    let body = body.of(size);
    let mut took = Vec::with_capacity(count);
    let mut now = node.now();
    let mut before = None::<Message>;
    for _ in 0..count {
        match mode {
            Mode::Messages => node.context().send(now, channel, body)?,
            Mode::Calls | Mode::Traced => node.context().request(now, channel, body)?,
        };
        // As on bare verbs, the memory of the last message is returned after the next is sent.
        before.into_iter().for_each(|message| node.context().release(now, message));
        let (_, message) = receive(&mut node).ok_or("the channel ended")?;
        let len = message.len();
        before = Some(message);
        let sent_at = std::mem::replace(&mut now, node.now());
        took.push(now.since(sent_at));
        if len != size {
            return Err(format!("{len} bytes came back for {size}").into());
        }
    }
    before.into_iter().for_each(|message| node.context().release(now, message));
    took.sort_unstable();
    let median = took[count / 2].as_nanos() as f64 / 2e3;
    println!("{count} times {size} bytes there and back: median {median:.3}");
    node.context().close(now, channel);
    while receive(&mut node).is_some() {}
    Ok(())
}

/// Plays with both ends in this thread: neither waits for the other, so no instruction is spent on waiting.
fn alone(mode: Mode, size: u32, count: usize) -> Outcome {
    let trace_every = u32::from(mode == Mode::Traced);
    let config = Config { trace_every, ..Config::default() };
    let mut server = Node::new(Options { config: config.clone(), ..Options::default() })?;
    let mut client = Node::new(Options { config, ..Options::default() })?;
    let at = server.listen(([127, 0, 0, 1], 0).into())?;
    client.connect(at)?;
    let channel = loop {
        server.process_event();
        client.process_event();
        if let Some(Event::Connected { channel, .. }) = client.poll_event() {
            break channel;
        }
    };
    let body = Body::new(&mut client, size)?;
    let back = Body::new(&mut server, size)?;
    for _ in 0..count {
        round_trip(mode, &mut client, channel, body.of(size), &mut server, back.of(size))?;
    }
    Ok(())
}

/// Sends a message there and one back. Its instructions are counted.
#[inline(never)]
fn round_trip(
    mode: Mode,
    client: &mut Node,
    channel: ChannelId,
    body: Payload<'_>,
    server: &mut Node,
    back: Payload<'_>,
) -> Outcome {
    let now = client.now();
    match mode {
        Mode::Messages => client.context().send(now, channel, body)?,
        Mode::Calls | Mode::Traced => client.context().request(now, channel, body)?,
    };
    let (from, message) = receive(server).ok_or("the channel ended")?;
    let now = server.polled_at();
    match message.call {
        CallRole::Request(id) => server.context().respond(now, from, id, back)?,
        _ => server.context().send(now, from, back)?,
    };
    server.context().release(now, message);
    let (_, message) = receive(client).ok_or("the channel ended")?;
    client.context().release(now, message);
    Ok(())
}
