//! An RDMA NIC in software: verbs objects and their semantics (IBTA volume 1, chapters 9 to 11) over a multipath
//! transport. It owns no clock, no socket, no thread, and no memory but its queues.
//!
//! [`Device`] is the entry point. Its owner creates objects (contexts, protection domains, regions, completion queues,
//! queue pairs) and posts work requests; it passes in packets (`handle_packet`) and time (`handle_timeout`), and drains
//! packets, completions, events and the next deadline (`poll_transmit`, `poll_cq`, `poll_event`, `poll_timeout`). The
//! owner keeps the payload: through [`Memory`] the device requests copies between places, after it has checked key,
//! bounds, rights and domain.
//!
//! A message passes these files:
//!
//! | step | out | in |
//! | --- | --- | --- |
//! | work request | `queue_pair/send_queue.rs` | `receive_queue.rs`, `completion.rs` |
//! | execution in order | `device/begin.rs`, `requester.rs` | `device/responder.rs`, `queue_pair/inbox.rs` |
//! | key, address → owner, address | `memory/emtt.rs` | `memory/emtt.rs` |
//! | pinning of a guest's memory | `memory/pvdma.rs`, `memory/guest.rs` | the same |
//! | message ↔ packets | `device/transport.rs`, then `weft-transport` | the same |
//!
//! The crate does not choose paths or detect losses (`weft-transport` does), reads no memory, and has no file descriptors or
//! C structures. The design is in `docs/design/rnic.md`.
//!
//! # Example
//!
//! An RDMA WRITE between two devices, over a network that is a function call:
//!
//! ```
//! use std::net::SocketAddr;
//! use weft_rnic::*;
//! use weft_transport::{Arrival, EndpointConfig, Secret, TransportConfig};
//! use weft_units::{Duration, Instant, Seed};
//!
//! /// A host's memory, and the payload of the packet that is being handled.
//! struct Host(Vec<u8>, Vec<u8>);
//!
//! impl Host {
//!     fn at(&mut self, place: Place) -> &mut [u8] {
//!         &mut self.0[place.address as usize..][..place.len as usize]
//!     }
//! }
//!
//! impl Memory for Host {
//!     fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost> {
//!         let bytes = self.1[from.into()..][..place.len as usize].to_vec();
//!         self.at(place).copy_from_slice(&bytes);
//!         Ok(())
//!     }
//!     fn write(&mut self, place: Place, bytes: &[u8]) {
//!         self.at(place).copy_from_slice(bytes);
//!     }
//!     // This network keeps packets in order, and the example has no atomics.
//!     fn hold(&mut self, _: Held) -> Result<(), PayloadLost> { unreachable!() }
//!     fn place_held(&mut self, _: Held, _: Place, _: u16) { unreachable!() }
//!     fn release(&mut self, _: Held) { unreachable!() }
//!     fn atomic(&mut self, _: Place, _: AtomicOperation) -> u64 { unreachable!() }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let at: [SocketAddr; 2] = ["10.0.0.1:4791".parse()?, "10.0.0.2:4791".parse()?];
//! let mut now = Instant::EPOCH;
//! let mut hosts = [Host(b"how do you do?".to_vec(), vec![]), Host(vec![0; 14], vec![])];
//! let (mut devices, mut ends) = (Vec::new(), Vec::new());
//! for seed in [Seed(1), Seed(2)] {
//!     let config = EndpointConfig {
//!         transport: TransportConfig::stellar(),
//!         receive_port: 4791,
//!         thread_id: 0,
//!         accept: true,
//!         max_connections: 16,
//!     };
//!     let mut device = Device::new(Limits::default(), config, seed, Secret::from_seed(seed))?;
//!     let context = device.open()?;
//!     let (domain, cq) = (device.allocate_domain(context)?, device.create_cq(context, 16)?);
//!     let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//!     let owner = Owner::Host(0);
//!     let region = RegionRequest { owner, address: 0, length: 14, iova: 0x1000, access };
//!     let key = device.register(domain, &region)?;
//!     let qp = device.create_qp(&QueuePairRequest {
//!         domain,
//!         service: Service::ReliableConnected,
//!         send_cq: cq,
//!         receive_cq: cq,
//!         srq: None,
//!         max_send: 16,
//!         max_receive: 16,
//!         max_send_sge: 1,
//!         max_receive_sge: 1,
//!         max_inline: 0,
//!         signal_all: true,
//!     })?;
//!     devices.push(device);
//!     ends.push((qp, cq, key));
//! }
//! for (this, peer) in [(0, 1), (1, 0)] {
//!     let to_init = Attributes {
//!         state: Some(State::Init),
//!         pkey_index: Some(0),
//!         port: Some(1),
//!         access: Some(Access::REMOTE_WRITE),
//!         ..Attributes::default()
//!     };
//!     let to_receive = Attributes {
//!         state: Some(State::ReadyToReceive),
//!         destination: Some(at[peer]),
//!         dest_qp: Some(ends[peer].0.0),
//!         path_mtu: Some(4096),
//!         rq_psn: Some(0),
//!         max_dest_rd_atomic: Some(1),
//!         min_rnr_timer: Some(12),
//!         ..Attributes::default()
//!     };
//!     let to_send = Attributes {
//!         state: Some(State::ReadyToSend),
//!         timeout: Some(14),
//!         retry_count: Some(7),
//!         rnr_retry: Some(7),
//!         sq_psn: Some(0),
//!         max_rd_atomic: Some(1),
//!         ..Attributes::default()
//!     };
//!     for attributes in [to_init, to_receive, to_send] {
//!         devices[this].modify_qp(now, ends[this].0, &attributes)?;
//!     }
//! }
//!
//! let operation = Operation::Write(Remote { address: 0x1000, rkey: ends[1].2 });
//! let sges = [Sge { address: 0x1000, length: 14, lkey: ends[0].2 }];
//! devices[0].post_send(now, ends[0].0, &SendRequest::new(1, operation, Data::Gather(&sges)))?;
//! let completion = loop {
//!     now += Duration::from_micros(1);
//!     for from in 0..2 {
//!         let mut sent = Vec::new();
//!         while devices[from].poll_transmit(now, |transmit, source| {
//!             let mut payload = Vec::new();
//!             if let Source::Memory(places) = source {
//!                 places.iter().for_each(|&place| payload.extend_from_slice(hosts[from].at(place)));
//!             }
//!             sent.push((*transmit, payload));
//!         }) {}
//!         for (transmit, payload) in sent {
//!             let arrival = Arrival {
//!                 from: at[from],
//!                 received_at: now,
//!                 congestion_experienced: false,
//!                 hops: 1,
//!             };
//!             let Transmit { packet, rdma, payload_len, .. } = transmit;
//!             let to = &mut hosts[1 - from];
//!             to.1 = payload;
//!             let (packet, rdma, acknowledged) = (&packet, rdma.as_ref(), None);
//!             let received = ReceivedPacket { packet, rdma, payload_len, acknowledged };
//!             devices[1 - from].handle_packet(now, &arrival, received, to);
//!         }
//!         devices[from].handle_timeout(now);
//!     }
//!     if let Some(completion) = devices[0].poll_cq(ends[0].1)? {
//!         break completion;
//!     }
//! };
//! assert_eq!(completion.status, Status::Success);
//! assert_eq!(hosts[1].0, b"how do you do?");
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod completion;
mod device;
mod drawn;
mod error;
mod event;
mod ids;
mod lease;
mod limits;
mod memory;
mod numbers;
mod queue_pair;
mod receive_queue;
#[cfg(any(test, feature = "swarm"))]
pub mod swarm;
mod table;
#[cfg(test)]
mod tests;
mod work;

pub use completion::{
    Arm, Completion, Completions, Extra, Pushed, Source as DatagramSource, Status, WorkKind,
};
pub use device::{
    Connection, Device, Handle, LeasedAccess, ReceivedPacket, Source, Transmit, VirtualDevice,
};
pub use error::{Object, VerbsError};
pub use event::Event;
pub use ids::{CompletionQueue, Context, ProtectionDomain, QueuePairNumber, SharedReceiveQueue};
pub use lease::{Lease, LeaseEvent, LeaseId, Reach};
pub use limits::Limits;
pub use memory::{
    Access, AccessError, AddressType, BLOCK_BYTES, Bind, Block, DmaError, DmaUser, Doorbell,
    DoorbellSpace, GuestSpace, Held, MapError, Mapped, Meaning, Memory, Owner, PAGE_BYTES,
    PayloadLost, Pinning, Place, Pvdma, RegionRequest, Right, WindowKind,
};
pub use queue_pair::{Attributes, Marking, QueuePairRequest, Service, State};
pub use weft_transport::Arrival;
pub use weft_wire::{AtomicKind, AtomicOperation};
pub use work::{Data, Datagram, Operation, ReceiveRequest, Remote, SendRequest, Sge};
