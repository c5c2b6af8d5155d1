//! The language of the programs that select the socket of a datagram.

/// An instruction of classic BPF (`struct sock_filter` of linux/filter.h). A program reads the UDP
/// payload and returns the index of a socket, in the order of their opening. If no socket has the
/// index, the kernel selects one by a hash of addresses and ports; a program that reads past the
/// payload's end returns zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions skipped if the condition is true.
    pub jt: u8,
    /// Instructions skipped if the condition is false.
    pub jf: u8,
    /// The constant operand.
    pub k: u32,
}
