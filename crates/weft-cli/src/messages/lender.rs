//! Registered memory that long messages are sent from: their bytes mean nothing but for the head.

use std::collections::BTreeMap;

use weft_xrdma::{Block, Node, Payload, Slice};

use super::protocol::{HEAD, echo};

/// What is copied: longer messages are lent.
const COPIED: usize = 4096;

/// Memory to lend, by what its head says.
#[derive(Debug, Default)]
pub(crate) struct Lender {
    /// The longest of a head last: those before may be lent still.
    blocks: BTreeMap<u32, Vec<Block>>,
    copied: Vec<u8>,
}

impl Lender {
    /// The body of a message of this length whose head asks for an answer of that one. `None` without memory.
    pub(crate) fn body(&mut self, node: &mut Node, len: u32, answer: u32) -> Option<Payload<'_>> {
        let bytes = len as usize;
        if bytes <= COPIED {
            self.copied.resize(COPIED, 0);
            echo(&mut self.copied[..bytes], answer);
            return Some(Payload::Copy(&self.copied[..bytes]));
        }
        let blocks = self.blocks.entry(answer).or_default();
        if blocks.last().is_none_or(|block| block.slice().len < len) {
            let block = node.context().allocate(len.next_power_of_two()).ok()?;
            echo(&mut node.context().bytes_mut(&block)[..HEAD], answer);
            blocks.push(block);
        }
        let block = blocks.last()?;
        Some(Payload::Lent(Slice { len, ..block.slice() }))
    }
}
