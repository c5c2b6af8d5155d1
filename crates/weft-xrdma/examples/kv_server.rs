//! A shard of a key-value store: `kv_server 7000`. Clients distribute the keys over all shards that they know.
//!
//! A request is an operation (`s`, `g` or `d`), the key's length in a byte, the key, and a value to set. A
//! response is `+` and a value, or `-`.

use std::collections::BTreeMap;
use std::error::Error;

use weft_xrdma::{CallRole, Event, Node, Options, Payload};

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("a port")?.parse()?;
    let mut node = Node::new(Options::default())?;
    println!("serving at {}", node.listen(([0, 0, 0, 0], port).into())?);
    let mut store = BTreeMap::new();
    loop {
        node.wait(None);
        while let Some(event) = node.poll_event() {
            let Event::Channel(weft_msg::Event::Message { channel, message }) = event else {
                continue;
            };
            let now = node.now();
            let context = node.context();
            let answer = answer(&mut store, context.body(&message));
            if let CallRole::Request(id) = message.call {
                // A client that is gone needs no response.
                let _ = context.respond(now, channel, id, Payload::Copy(&answer));
            }
            context.release(now, message);
        }
    }
}

fn answer(store: &mut BTreeMap<Vec<u8>, Vec<u8>>, request: &[u8]) -> Vec<u8> {
    let found = match request {
        [operation, len, rest @ ..] if rest.len() >= usize::from(*len) => {
            let (key, value) = rest.split_at(usize::from(*len));
            match operation {
                b's' => store.insert(key.into(), value.into()).or(Some(Vec::new())),
                b'g' => store.get(key).cloned(),
                b'd' => store.remove(key),
                _ => None,
            }
        }
        _ => None,
    };
    found.map_or_else(|| b"-".to_vec(), |value| [b"+", value.as_slice()].concat())
}
