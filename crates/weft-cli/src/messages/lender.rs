//! Registered memory from which long messages are sent: only the bytes of their head have a meaning.

use std::collections::BTreeMap;

use weft_xrdma::{Block, Node, Payload, Slice};

use super::protocol::{HEAD, echo};

/// The longest message, bytes, that is copied; longer ones are sent from lent memory.
const MAX_COPIED: usize = 4096;

/// Memory that messages borrow. A buffer serves messages whose head asks for the same response length.
#[derive(Debug, Default)]
pub(crate) struct Lender {
    /// Buffers by the response length in their head, longest last: the shorter ones may still be lent.
    blocks: BTreeMap<u32, Vec<Block>>,
    /// The bytes of a message that is copied.
    copied: Vec<u8>,
}

impl Lender {
    /// Returns the body of a message of `len` bytes whose head asks for `answer` bytes; `None` without memory.
    pub(crate) fn body(&mut self, node: &mut Node, len: u32, response: u32) -> Option<Payload<'_>> {
        let bytes = len as usize;
        if bytes <= MAX_COPIED {
            self.copied.resize(MAX_COPIED, 0);
            echo(&mut self.copied[..bytes], response);
            return Some(Payload::Copy(&self.copied[..bytes]));
        }
        let blocks = self.blocks.entry(response).or_default();
        if blocks.last().is_none_or(|block| block.slice().len < len) {
            let block = node.context().allocate(len.next_power_of_two()).ok()?;
            echo(&mut node.context().bytes_mut(&block)[..HEAD], response);
            blocks.push(block);
        }
        let block = blocks.last()?;
        Some(Payload::Lent(Slice { len, ..block.slice() }))
    }
}
