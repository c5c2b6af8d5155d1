//! Memory in which messages wait until they are whole.

use std::io;
use std::sync::Arc;

use crate::failure::Failure;
use crate::verbs::{Domain, Region};

/// A registered buffer of this library.
#[derive(Debug)]
pub(super) struct Staged {
    // It is deregistered before its memory is freed: fields are dropped in their order.
    region: Region,
    memory: Box<[u64]>,
}

impl Staged {
    pub(super) fn new(domain: &Arc<Domain>, len: usize) -> Result<Self, Failure> {
        let mut memory = vec![0_u64; len.div_ceil(8).max(1)].into_boxed_slice();
        let (start, len) = (memory.as_mut_ptr().cast(), memory.len() * 8);
        // SAFETY: the memory lives as long as the region, and does not move.
        let region = unsafe { Region::register(domain, start, len) };
        let region =
            region.map_err(|error: io::Error| Failure::system("registering memory", &error))?;
        Ok(Self { region, memory })
    }

    pub(super) fn start(&self) -> *const u8 {
        self.memory.as_ptr().cast()
    }

    /// Returns the address for work requests.
    pub(super) fn address(&self) -> u64 {
        self.start().expose_provenance() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len() * 8
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }
}

/// The buffers of a comm that no message uses.
#[derive(Debug, Default)]
pub(super) struct Pool(Vec<Staged>);

impl Pool {
    /// Returns a buffer of at least `len` bytes: the last that was freed, whose memory the caches have, or a new one.
    ///
    /// # Errors
    /// The device refuses more memory.
    pub(super) fn take(&mut self, domain: &Arc<Domain>, len: usize) -> Result<Staged, Failure> {
        match self.0.iter().rposition(|staged| staged.len() >= len) {
            Some(index) => Ok(self.0.remove(index)),
            None => Staged::new(domain, len),
        }
    }

    /// Takes a buffer back, if there is one.
    pub(super) fn give(&mut self, staged: Option<Staged>) {
        self.0.extend(staged);
    }
}
