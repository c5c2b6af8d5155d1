//! What a device can do; programs ask for it, and more is refused.

/// Limits of one device (`struct ibv_device_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Contexts open at a time: virtual devices, processes.
    pub contexts: u32,
    /// Protection domains.
    pub protection_domains: u32,
    /// Memory regions and windows together.
    pub keys: u32,
    /// Longest memory region, bytes.
    pub region_bytes: u64,
    /// Completion queues.
    pub completion_queues: u32,
    /// Entries of one completion queue.
    pub completions: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests that wait in one queue.
    pub work_requests: u32,
    /// Pieces of memory of one work request.
    pub scatter_gather: u32,
    /// Bytes that travel with a work request itself.
    pub inline_bytes: u32,
    /// READs and atomics under way on one queue pair, either direction.
    pub reads: u8,
    /// Longest message, bytes.
    pub message_bytes: u32,
    /// Longest datagram, bytes: the port's MTU.
    pub datagram_bytes: u32,
    /// Bytes of packets that wait for others before them, of all peers together: their payload, and 256 bytes for each.
    pub held_bytes: u64,
    /// The same from one peer's address. A reorder window of full packets fits into the default.
    pub held_bytes_per_peer: u64,
}

impl Default for Limits {
    /// Those of a large hardware device, where memory is only taken for what is used.
    fn default() -> Self {
        Self {
            contexts: 1 << 16,
            protection_domains: 1 << 17,
            keys: 1 << 20,
            region_bytes: 1 << 47,
            completion_queues: 1 << 17,
            completions: (1 << 22) - 1,
            shared_receive_queues: 1 << 16,
            queue_pairs: 1 << 16,
            work_requests: 1 << 15,
            scatter_gather: 30,
            inline_bytes: 1024,
            reads: 16,
            message_bytes: 1 << 30,
            datagram_bytes: 4096,
            held_bytes: 256 << 20,
            held_bytes_per_peer: 32 << 20,
        }
    }
}
