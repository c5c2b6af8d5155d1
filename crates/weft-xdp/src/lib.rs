//! UDP datagrams over AF_XDP, past the kernel's network stack: this crate owns the sockets and buffers of an interface's
//! queues, a program that steers the datagrams of one address and port to them, and the headers of sent frames, whose
//! next hops come from the kernel's routes and neighbours (`docs/design/af-xdp.md`). It never knows what is in a datagram.
//!
//! [`open`] returns a [`Sender`] and a [`Receiver`], or the [`Refusal`] for which the caller stays with the kernel's
//! sockets. The caller also keeps a UDP socket on the same port: it receives what the program passes on, and sends what
//! [`Sender::frame`] leaves to it, which makes the kernel resolve the neighbour.
#![deny(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

mod frame;
mod neighbours;
mod netlink;
mod program;
mod queue;
mod receiver;
mod refusal;
#[expect(unsafe_code, reason = "shared memory has no safe form")]
mod ring;
mod sender;
#[expect(unsafe_code, reason = "AF_XDP and bpf(2) have no safe form")]
mod sys;

pub use receiver::{Metadata, Receiver};
pub use refusal::Refusal;
pub use sender::{Frame, Sender, SenderCounters};

use neighbours::Neighbours;
use netlink::{Interface, Netlink};
use queue::{Queue, Region, Rings};
use receiver::ReceiveQueue;

/// Maximum number of queues that get a socket, each with 4 to 8 MB of pinned buffers. Packets of further queues reach the
/// kernel's sockets.
const MAX_QUEUES: u32 = 16;

/// Attaches to the interface that has `local`'s address, and takes over the datagrams to `local` that arrive there. Sent
/// packets have this TTL or hop limit.
///
/// # Errors
/// See [`Refusal`]. Then nothing has changed.
pub fn open(local: SocketAddr, hop_limit: u8) -> Result<(Sender, Receiver), Refusal> {
    if local.ip().is_unspecified() {
        return Err(Refusal::Unspecified(local.ip()));
    }
    let mut netlink = Netlink::open().map_err(Refusal::to("open a netlink socket"))?;
    let interface = netlink.interface_of(local.ip())?;
    let queues = interface.queues.clamp(1, MAX_QUEUES);
    let map = sys::make_map(queues).map_err(Refusal::to("make a map of BPF"))?;
    let program = sys::load(&program::steer(local, map.as_raw_fd()))
        .map_err(Refusal::to("load a program of XDP"))?;
    let link = sys::attach(program.as_fd(), interface.index)
        .map_err(Refusal::to_on("attach a program of XDP", &interface.name))?;
    let (first, rings) = open_queue(&interface, 0, map.as_fd())?;
    let [sent, received] = Region::split(&first);
    let Rings { fill, rx, tx, completion } = rings;
    let mut receiving = vec![ReceiveQueue { region: received, fill, rx, used: Vec::new() }];
    for index in 1..queues {
        let (queue, Rings { fill, rx, .. }) = match open_queue(&interface, index, map.as_fd()) {
            Ok(opened) => opened,
            // A driver may have fewer queues than it has room for.
            Err(refusal) if refusal.is_missing_queue() => break,
            Err(refusal) => {
                eprintln!(
                    "weft: the kernel's sockets carry packets of {}'s queues from {index} on, not AF_XDP: {refusal}",
                    interface.name
                );
                break;
            }
        };
        let [_, region] = Region::split(&queue);
        receiving.push(ReceiveQueue { region, fill, rx, used: Vec::new() });
    }
    let neighbours = Neighbours::open(local.ip(), interface, netlink)
        .map_err(Refusal::to("watch its tables"))?;
    let sender = Sender::new(sent, tx, completion, neighbours, local.ip(), hop_limit);
    Ok((sender, Receiver::new(link, receiving)))
}

/// Opens a queue's socket, and enters it in the program's map.
fn open_queue(
    interface: &Interface,
    index: u32,
    map: BorrowedFd<'_>,
) -> Result<(Arc<Queue>, Rings), Refusal> {
    let (queue, rings) = Queue::open(interface, index)?;
    sys::set_map(map, index, queue.socket()).map_err(Refusal::to("steer packets to a socket"))?;
    Ok((Arc::new(queue), rings))
}
