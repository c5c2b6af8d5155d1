//! A ping-pong of messages. One end: `ping_pong 7000`. The other: `ping_pong 10.0.0.1:7000 [SIZE [COUNT]]`.

use std::error::Error;

use weft_xrdma::{CallRole, Event, Node, Options, Payload};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut node = Node::new(Options::default())?;
    let Some(at) = words.first() else { return Err("a port, or an address and port".into()) };
    let Ok(port) = at.parse::<u16>() else {
        let size = words.get(1).map_or(Ok(64), |word| word.parse())?;
        let count = words.get(2).map_or(Ok(10_000), |word| word.parse())?;
        return ping(&mut node, at, size, count);
    };
    println!("answering at {}", node.listen(([0, 0, 0, 0], port).into())?);
    loop {
        node.wait(None);
        while let Some(event) = node.poll_event() {
            let Event::Channel(weft_msg::Event::Message { channel, message }) = event else {
                continue;
            };
            let CallRole::Request(id) = message.call else { continue };
            let (now, body) = (node.now(), node.context().body(&message).to_vec());
            node.context().respond(now, channel, id, Payload::Copy(&body))?;
            node.context().release(now, message);
        }
    }
}

fn ping(node: &mut Node, at: &str, size: usize, count: u32) -> Result<(), Box<dyn Error>> {
    let channel = node.connect_and_wait(at.parse()?)?;
    let (body, start) = (vec![7; size], node.now());
    for _ in 0..count {
        let message = node.call(channel, Payload::Copy(&body), None)?;
        assert_eq!(node.context().body(&message), body);
        let now = node.now();
        node.context().release(now, message);
    }
    let each = node.now().since(start) / (2 * u64::from(count));
    println!("{count} times {size} bytes there and back: {each} one way");
    Ok(())
}
