//! One attached process: its memory, the rings it shares with the daemon, its objects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weft_rnic::{CompletionQueue, Context, Device, Event, Owner, Status, WorkKind};

use super::devices::sum;
use super::events::failure_of;
use crate::attach::{
    Amounts, Consumer, Corrupt, DeviceCounters, Notice, Page, Posted, Probe, Producer, Signal,
    encode,
};
use crate::engine::owner_of;

/// An attached process.
#[derive(Debug)]
pub(super) struct Tenant {
    /// The device's name.
    pub(super) device: String,
    /// A descriptor of its `/proc/self/mem`.
    memory: OwnedFd,
    pub(super) page: Page,
    pub(super) signal: Arc<Signal>,
    pub(super) work: Consumer,
    notices: Producer,
    /// Its contexts, each a virtual device, and what is in them.
    pub(super) contexts: BTreeMap<Context, Contents>,
    /// The device's limit of messages a second.
    pub(super) messages_per_second: Option<u32>,
    pub(super) counters: DeviceCounters,
    /// The completion queues with undelivered completions.
    ready: BTreeSet<CompletionQueue>,
    /// The undelivered events.
    events: VecDeque<Event>,
}

/// The contents of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) objects: Amounts,
    /// Registered memory, bytes.
    pub(super) memory: u64,
}

impl Contents {
    pub(super) const NONE: Self = Self { objects: Amounts::NONE, memory: 0 };
}

/// The memory that a client attaches with.
#[derive(Debug)]
pub(super) struct Provided {
    /// A descriptor of its `/proc/self/mem`.
    pub(super) memory: OwnedFd,
    /// The rings, if they are in memory of the client's.
    pub(super) rings: Option<Page>,
}

/// The free space that the ring must have before a record is written, bytes.
const MAX_RECORD: usize = 256;

/// The maximum number of undelivered events. A process that does not take them is ended.
const MAX_EVENTS: usize = 1 << 16;

impl Tenant {
    /// Creates a tenant. Returns the other end of its signal for the process too; the shared memory's file is
    /// [`Self::page`]'s.
    ///
    /// # Errors
    /// There is no more memory, or no more descriptors.
    pub(super) fn new(
        device: String,
        messages_per_second: Option<u32>,
        provided: Provided,
    ) -> io::Result<(Self, Signal)> {
        let [signal, other] = Signal::pair()?;
        let Provided { memory, rings } = provided;
        let tenant = Self {
            device,
            memory,
            page: rings.map_or_else(Page::create, Ok)?,
            signal: Arc::new(signal),
            work: Consumer::new(Page::WORK),
            notices: Producer::new(Page::NOTICES),
            contexts: BTreeMap::new(),
            messages_per_second,
            counters: DeviceCounters::default(),
            ready: BTreeSet::new(),
            events: VecDeque::new(),
        };
        Ok((tenant, other))
    }

    /// Returns the owner of its regions' memory.
    pub(super) fn owner(&self) -> Owner {
        owner_of(self.memory.as_fd())
    }

    /// Returns the amounts of its objects.
    pub(super) fn used(&self) -> Amounts {
        let one = Amounts { processes: 1, ..Amounts::NONE };
        self.contexts.values().map(|contents| contents.objects).fold(one, sum)
    }

    /// Returns its registered memory, bytes.
    pub(super) fn memory(&self) -> u64 {
        self.contexts.values().map(|contents| contents.memory).sum()
    }

    /// Counts a send request.
    pub(super) fn count_posted(&mut self, request: &Posted<'_>) {
        self.counters.requests_posted += 1;
        self.counters.bytes_posted += request.bytes();
    }

    /// Records that a completion queue has undelivered completions.
    pub(super) fn mark_ready(&mut self, cq: CompletionQueue) {
        self.ready.insert(cq);
    }

    /// Queues an event.
    ///
    /// # Errors
    /// The maximum number of events is undelivered.
    pub(super) fn on_event(&mut self, event: Event) -> Result<(), Corrupt> {
        if self.events.len() >= MAX_EVENTS {
            return Err(Corrupt);
        }
        self.events.push_back(event);
        Ok(())
    }

    /// Returns `true` if there are undelivered completions or events.
    pub(super) fn has_undelivered(&self) -> bool {
        !self.ready.is_empty() || !self.events.is_empty()
    }

    /// Delivers what fits in the ring: completions first, as events follow from them. Returns `true` if it delivered
    /// anything, and appends the cause of each failed request to `failures`, but for those that were flushed.
    ///
    /// # Errors
    /// The ring's indices are invalid.
    pub(super) fn deliver(
        &mut self,
        device: &mut Device,
        record: &mut Vec<u8>,
        failures: &mut Vec<&'static str>,
    ) -> Result<bool, Corrupt> {
        let (mut delivered, mut urgent) = (false, false);
        while let Some(&cq) = self.ready.first() {
            if !self.notices.has_room(&self.page, MAX_RECORD)? {
                break;
            }
            // An overrun queue has no completions either: its event reports it.
            match device.poll_cq(cq) {
                Ok(Some(completion)) => {
                    let is_success = completion.status == Status::Success;
                    let receives = [WorkKind::Receive, WorkKind::ReceiveWriteWithImmediate];
                    if !is_success {
                        self.counters.requests_failed += 1;
                        failures.extend(failure_of(completion.status));
                    } else if receives.contains(&completion.kind) {
                        self.counters.messages_received += 1;
                        self.counters.bytes_received += u64::from(completion.length);
                    }
                    encode(&Notice::Completion(cq, completion), record);
                    delivered |= self.notices.push(&self.page, record)?;
                }
                Ok(None) | Err(_) => drop(self.ready.pop_first()),
            }
        }
        while let Some(&event) = self.events.front() {
            if !self.ready.is_empty() || !self.notices.has_room(&self.page, MAX_RECORD)? {
                break;
            }
            encode(&Notice::Event(event), record);
            urgent |= self.notices.push(&self.page, record)?;
            self.events.pop_front();
        }
        if urgent || delivered && self.page.wants_signal(Page::PROCESS_WAITS) {
            self.signal.give();
        }
        Ok(delivered || urgent)
    }
}

/// Returns `true` if a descriptor is a process's memory: no other file is allowed, because the daemon's own rights
/// apply to every call on it.
fn is_memory(file: BorrowedFd<'_>) -> bool {
    const PROC: rustix::fs::FsWord = 0x9fa0;
    let of_proc = rustix::fs::fstatfs(file).is_ok_and(|about| about.f_type == PROC);
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(path) = std::fs::read_link(link) else { return false };
    let mut parts = path.iter().rev();
    let name = parts.next().is_some_and(|name| name == "mem");
    let number = parts.next().and_then(|part| part.to_str());
    let of_process = number.is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    of_proc && name && of_process
}

/// The reason that a descriptor is not accepted as a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MemoryError {
    /// It is another file.
    #[error("the descriptor in the message is not /proc/self/mem")]
    OtherFile,
    /// The memory cannot be read, or it is that of another process.
    #[error("this process's memory cannot be read through its /proc/self/mem")]
    Unreadable,
    /// The memory cannot be written.
    #[error("this process's memory cannot be written through its /proc/self/mem")]
    Unwritable,
    /// The memory for the rings may change its size, or is too short or too long.
    #[error(
        "the rings' file is no memfd of at most 64 MiB that is sealed against shrinking and growing, or has no room for \
         them"
    )]
    Rings,
}

/// Checks that a descriptor is the memory of the attaching process, and readable and writable.
///
/// # Errors
/// See [`MemoryError`].
pub(super) fn check_memory(file: BorrowedFd<'_>, probe: Probe) -> Result<(), MemoryError> {
    if !is_memory(file) {
        return Err(MemoryError::OtherFile);
    }
    let mut value = [0; 8];
    let reached = rustix::io::pread(file, &mut value, probe.address);
    if reached != Ok(value.len()) || u64::from_ne_bytes(value) != probe.value {
        return Err(MemoryError::Unreadable);
    }
    match rustix::io::pwrite(file, &value, probe.address) {
        Ok(8) => Ok(()),
        _ => Err(MemoryError::Unwritable),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_the_memory_of_the_attaching_process_is_accepted() {
        let value = Box::new(0x1234_5678_u64);
        let address = (&raw const *value).expose_provenance() as u64;
        let probe = Probe { address, value: *value };
        let options = || File::options().read(true).write(true).clone();
        let own = options().open("/proc/self/mem").unwrap();
        assert_eq!(check_memory(own.as_fd(), probe), Ok(()));
        assert!(check_memory(own.as_fd(), Probe { value: 1, ..probe }).is_err());
        assert!(check_memory(own.as_fd(), Probe { address: 8, ..probe }).is_err());
        let read_only = File::open("/proc/self/mem").unwrap();
        assert_eq!(check_memory(read_only.as_fd(), probe), Err(MemoryError::Unwritable));
        for other in ["/proc/self/status", "/dev/null", "/proc/self/maps"] {
            let file = File::open(other).unwrap();
            assert!(check_memory(file.as_fd(), probe).is_err(), "{other}");
        }
        let folder = std::env::temp_dir().join(format!("weft-mem-{}/1", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let fake = File::create(folder.join("mem")).unwrap();
        assert!(!is_memory(fake.as_fd()), "the name alone is not enough");
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
