//! Fuzz tests with damaged and malicious sFlow: no panic, and every accepted value can be written again.

use weft_units::{Rng, Seed};
use weft_wire::sflow::{
    DatagramWriter, ETHERNET, FlowSample, IfCounters, Interface, QueueMarks, RawHeader, Source,
};

mod properties;

/// Number of damaged datagrams.
const INPUTS: u64 = 200_000;

/// Returns a datagram of up to four flow and counter samples.
fn datagram(rng: &mut Rng) -> Vec<u8> {
    let mut buffer = [0; 1400];
    let mut writer = DatagramWriter::new(&mut buffer, [10, 0, 0, 1].into(), 0, 7, 1000);
    let header: Vec<u8> = (0..rng.index(129)).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    for sequence in 0..=u32::try_from(rng.below(4)).unwrap() {
        let source = Source::interface(sequence + 1);
        let added = if rng.chance(1, 3) {
            let marks = rng.chance(1, 2).then_some(QueueMarks { marked: sequence });
            writer.counters(sequence, source, &IfCounters::default(), marks)
        } else {
            writer.flow(&FlowSample {
                sequence,
                source,
                rate: 16,
                pool: 99,
                drops: 0,
                input: Interface::Index(3),
                output: Interface::Unknown,
                header: Some(RawHeader {
                    protocol: ETHERNET,
                    frame_len: 1514,
                    stripped: 0,
                    bytes: &header,
                }),
            })
        };
        assert!(added, "four samples fit");
    }
    let length = writer.finish();
    buffer[..length].to_vec()
}

/// Makes one random change.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    match rng.below(4) {
        0 => bytes.truncate(rng.index(bytes.len() + 1)),
        1 => bytes.extend_from_slice(&rng.next_u64().to_le_bytes()),
        // A word with all bits set or clear, as a length or count.
        2 if bytes.len() >= 4 => {
            let word = rng.index(bytes.len() / 4) * 4;
            bytes[word..word + 4].fill(if rng.chance(1, 2) { 0xff } else { 0 });
        }
        _ if !bytes.is_empty() => {
            let bit = rng.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        _ => {}
    }
}

#[test]
fn no_damaged_datagram_violates_a_property() {
    let (mut accepted, mut refused) = (0, 0);
    for index in 0..INPUTS {
        let mut rng = Seed(6343).child("sflow", index).rng();
        let mut bytes = datagram(&mut rng);
        (0..=rng.below(3)).for_each(|_| damage(&mut bytes, &mut rng));
        let outcome = std::panic::catch_unwind(|| properties::sflow(&bytes));
        match outcome.unwrap_or_else(|_| panic!("input {index}: {bytes:02x?}")) {
            Ok(()) => accepted += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        accepted > INPUTS / 20 && refused > INPUTS / 20,
        "{accepted} accepted, {refused} refused"
    );
}
