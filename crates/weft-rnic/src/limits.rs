//! The limits of a device, which programs can query.

/// Limits of one device (`struct ibv_device_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of open contexts: processes and virtual devices.
    pub contexts: u32,
    /// Number of protection domains.
    pub protection_domains: u32,
    /// Number of memory regions and windows together.
    pub keys: u32,
    /// Largest memory region, bytes.
    pub region_bytes: u64,
    /// Number of completion queues.
    pub completion_queues: u32,
    /// Largest capacity of a completion queue.
    pub completions: u32,
    /// Number of shared receive queues.
    pub shared_receive_queues: u32,
    /// Number of queue pairs.
    pub queue_pairs: u32,
    /// Work requests in one queue.
    pub work_requests: u32,
    /// Scatter/gather entries of one work request.
    pub scatter_gather: u32,
    /// Bytes of inline data of one work request.
    pub inline_bytes: u32,
    /// READs and atomics in flight on one queue pair, in each direction.
    pub reads: u8,
    /// Longest message, bytes.
    pub message_bytes: u32,
    /// Longest datagram, bytes: the port's MTU.
    pub datagram_bytes: u32,
    /// Bytes of packets held until earlier packets arrive, of all peers together: payload, 256 bytes for each packet,
    /// and the entries of datagrams that have begun.
    pub held_bytes: u64,
    /// The same limit for one peer's address. The default is enough for a reordering window of full packets.
    pub held_bytes_per_peer: u64,
}

impl Default for Limits {
    /// Returns the limits of a large hardware device. Memory is allocated only for objects that exist.
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
