//! The faults of a front end.

use std::io;

use rustix::io::Errno;
use vm_memory::GuestRegionCollectionError;

/// The fault of a front end. Its text continues a sentence that begins with the port and "the front end".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontEndFault {
    /// It closed the connection.
    #[error("is gone: {0}")]
    Gone(#[source] io::Error),
    /// It does not receive answers.
    #[error("does not take its answers: {0}")]
    Answers(#[source] io::Error),
    /// A request ends before its fields.
    #[error("sends a request that is too short")]
    TooShort,
    /// The request is none of those offered.
    #[error("makes a request that was not offered ({0})")]
    NotOffered(String),
    /// The request's number is unknown.
    #[error("makes the unknown request {0}")]
    UnknownRequest(u32),
    /// A feature is none of those offered.
    #[error("sets features that were not offered ({0:#x})")]
    Features(u64),
    /// The queue does not exist.
    #[error(
        "names queue {index} of {count}: give the guest fewer queues, or the port more \
         (`queue-pairs`)"
    )]
    NoQueue {
        /// The queue's number.
        index: u64,
        /// Number of queues.
        count: usize,
    },
    /// A running queue may not be changed.
    #[error("changes a queue that is running")]
    Running,
    /// The number of descriptors of a ring is invalid.
    #[error("a ring of {0} descriptors")]
    RingSize(u32),
    /// The index of a ring's next descriptor is invalid.
    #[error("sets a base of {0}")]
    Base(u32),
    /// A queue without kicks would have to be polled.
    #[error("offers no descriptor for kicks, which requires polling")]
    NoKicks,
    /// The descriptor for kicks cannot be watched.
    #[error("offers a descriptor for kicks of no use: {0}")]
    Kicks(#[source] io::Error),
    /// A descriptor is missing.
    #[error("sends no descriptor where there should be one")]
    NoDescriptor,
    /// A descriptor is no eventfd.
    #[error("sends a descriptor that is no eventfd")]
    NoEventfd,
    /// An eventfd cannot be made nonblocking.
    #[error("sends an eventfd of no use: {0}")]
    Eventfd(#[source] Errno),
    /// The memory that it shares is invalid.
    #[error(transparent)]
    Memory(#[from] MemoryFault),
}

/// The faults of the memory that a front end shares.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryFault {
    /// A memory region has no file.
    #[error("adds memory without a descriptor")]
    NoDescriptor,
    /// The numbers of regions and of files in the table differ.
    #[error("describes {regions} memory regions with {descriptors} descriptors")]
    Descriptors {
        /// Number of regions.
        regions: usize,
        /// Number of descriptors.
        descriptors: usize,
    },
    /// There are too many regions.
    #[error(
        "shares more than {0} memory regions: give it fewer, or the port more (`memory-regions`)"
    )]
    TooMany(usize),
    /// Accesses to the file could block.
    #[error(
        "shares memory in a file that is neither a memfd nor on tmpfs or hugetlbfs: use QEMU's \
         memory-backend-memfd, or a path in /dev/shm or /dev/hugepages"
    )]
    Kind,
    /// The file's length is not known.
    #[error("memory file: {0}")]
    File(#[source] io::Error),
    /// The region is not within its file.
    #[error("{len} bytes at {offset} of a memory file of {size}")]
    OutsideFile {
        /// The region's length, bytes.
        len: u64,
        /// The region's offset in the file.
        offset: u64,
        /// The file's length, bytes.
        size: u64,
    },
    /// The region cannot be mapped.
    #[error("map: {0}")]
    Map(#[source] vhost::vhost_user::Error),
    /// The dirty log cannot be mapped.
    #[error("map the dirty log: {0}")]
    Log(String),
    /// The region's last address exceeds 64 bits.
    #[error("region overflows")]
    Overflow,
    /// The region overlaps another one.
    #[error(transparent)]
    Regions(#[from] GuestRegionCollectionError),
    /// The region to be removed is unknown.
    #[error("no such memory region")]
    NoRegion,
    /// A region's file became shorter.
    #[error("took memory away that it had shared")]
    Withdrawn,
}
