//! A client of the sharded key-value store: `kv_client HOST:PORT[,HOST:PORT...] set KEY VALUE | get KEY | del KEY`,
//! or any number of these commands on its input, one per line.

use std::error::Error;
use std::io::BufRead;

use weft_units::Duration;
use weft_xrdma::{ChannelId, Node, Options, Payload};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let shards = words.next().ok_or("the shards' addresses")?;
    let mut node = Node::new(Options::default())?;
    let connect = |at: &str| Ok(node.connect_and_wait(at.parse()?)?);
    let shards: Result<Vec<ChannelId>, Box<dyn Error>> = shards.split(',').map(connect).collect();
    let (shards, line) = (shards?, words.collect::<Vec<_>>().join(" "));
    if !line.is_empty() {
        return run(&mut node, &shards, &line);
    }
    for line in std::io::stdin().lock().lines() {
        run(&mut node, &shards, &line?)?;
    }
    Ok(())
}

fn run(node: &mut Node, shards: &[ChannelId], line: &str) -> Result<(), Box<dyn Error>> {
    let mut words = line.splitn(3, ' ');
    let (operation, key) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let head = [operation.bytes().next().unwrap_or(b'?'), u8::try_from(key.len())?];
    let request = [&head, key.as_bytes(), words.next().unwrap_or("").as_bytes()].concat();
    let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    let shard = shards[usize::try_from(hash % shards.len() as u64)?];
    let answer = node.call(shard, Payload::Copy(&request), Some(Duration::from_secs(5)))?;
    println!("{}", String::from_utf8_lossy(node.context().body(&answer)));
    let now = node.now();
    node.context().release(now, answer);
    Ok(())
}
