//! A daemon's device without libibverbs, for benches and tests: a process has one device of the library's, and as many of these
//! as it has descriptors for. Requests and completions take the library's own way.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use weft_rnic::{
    Access, Attributes, CompletionQueue, Context, Data, Operation, ProtectionDomain,
    QueuePairNumber, QueuePairRequest, ReceiveRequest, Remote, SendRequest, Service, Sge, State,
    Status, WorkKind,
};

use super::attached::Attached;
use super::command::{Command, Reply};
use super::{Region, address_of};
use crate::attach::{Answer, CallError, Caller, Request};
use crate::errno::Errno;

/// Maximum number of requests in each queue of a client's queue pair.
const MAX_REQUESTS: u32 = 64;

/// An attached device with a region, a completion queue and a reliable connected queue pair.
#[derive(Debug)]
pub struct DeviceClient {
    attached: Attached,
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePairNumber,
    key: u32,
    memory: Box<[AtomicU8]>,
}

/// The numbers by which a peer reaches a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress {
    qp: QueuePairNumber,
    key: u32,
    address: u64,
}

impl ClientAddress {
    /// Returns the same queue pair with the memory and the key of another client.
    #[must_use]
    pub fn with_memory_of(self, other: &Self) -> Self {
        Self { qp: self.qp, ..*other }
    }
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number that the request had.
    pub number: u64,
    /// `true` for a receive request.
    pub receives: bool,
    /// `None` if it succeeded, or the status in words.
    pub failure: Option<&'static str>,
}

fn kernel(Errno(number): Errno) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Returns a request for a queue pair on these objects.
const fn request(domain: ProtectionDomain, cq: CompletionQueue) -> QueuePairRequest {
    QueuePairRequest {
        domain,
        service: Service::ReliableConnected,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        max_send: MAX_REQUESTS,
        max_receive: MAX_REQUESTS,
        max_send_sge: 1,
        max_receive_sge: 1,
        max_inline: 0,
        signal_all: true,
    }
}

impl DeviceClient {
    /// Attaches to the device `name` of the daemon at `socket`, with `bytes` bytes of registered memory, all zero.
    ///
    /// # Errors
    /// There is no daemon, or it refuses.
    pub fn open(socket: &Path, name: &str, bytes: usize) -> Result<Self, CallError> {
        let attached = Attached::attach_at(socket, name)?;
        let memory: Box<[AtomicU8]> = (0..bytes).map(|_| AtomicU8::new(0)).collect();
        let opened = Self::make_objects(&attached, &memory);
        let (context, domain, cq, qp, key) =
            opened.map_err(|errno| CallError::kernel("no objects", &kernel(errno)))?;
        Ok(Self { attached, context, domain, cq, qp, key, memory })
    }

    fn make_objects(
        attached: &Attached,
        memory: &[AtomicU8],
    ) -> Result<(Context, ProtectionDomain, CompletionQueue, QueuePairNumber, u32), Errno> {
        let number = |command| attached.control(&command)?.number();
        let context = Context(number(Command::OpenContext)?);
        let domain = ProtectionDomain(number(Command::AllocateDomain(context))?);
        let cq = CompletionQueue(number(Command::CreateCq(context, 4 * MAX_REQUESTS))?);
        let (address, length) = (memory.as_ptr().expose_provenance() as u64, memory.len() as u64);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = Region { address, length, iova: address, access };
        let key = number(Command::Register(domain, region))?;
        let qp = QueuePairNumber(number(Command::CreateQp(request(domain, cq)))?);
        Ok((context, domain, cq, qp, key))
    }

    /// Returns its address for a peer.
    pub fn address(&self) -> ClientAddress {
        let address = self.memory.as_ptr().expose_provenance() as u64;
        ClientAddress { qp: self.qp, key: self.key, address }
    }

    /// Returns the row of an address of the daemon's host.
    fn row_of(socket: &Path, name: &str, ip: IpAddr) -> Result<u32, CallError> {
        let describe = Request::Describe { name: name.into() };
        let (answer, _) = Caller::connect(socket)?.call(&describe, &[])?;
        let Answer::Description(found) = answer else { return Err(CallError::Nonsense) };
        let row = found.addresses.iter().position(|row| row.ip == ip);
        let none = || CallError::kernel("no such address", &io::ErrorKind::AddrNotAvailable.into());
        row.and_then(|row| u32::try_from(row).ok()).ok_or_else(none)
    }

    /// Connects the queue pair to a peer's on this host, over the loopback interface.
    ///
    /// # Errors
    /// The daemon refuses, or is connected already.
    pub fn connect(
        &self,
        socket: &Path,
        name: &str,
        peer: &ClientAddress,
    ) -> Result<(), CallError> {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let row = Self::row_of(socket, name, loopback)?;
        let connected = self.connect_over(loopback, row, peer.qp);
        connected.map_err(|errno| CallError::kernel("not connected", &kernel(errno)))
    }

    fn connect_over(&self, ip: IpAddr, row: u32, peer: QueuePairNumber) -> Result<(), Errno> {
        let to_init = Attributes {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::REMOTE_WRITE),
            ..Attributes::default()
        };
        let to_receive = Attributes {
            state: Some(State::ReadyToReceive),
            destination: Some(address_of(ip, peer.0)),
            dest_qp: Some(peer.0),
            path_mtu: Some(1024),
            rq_psn: Some(0),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..Attributes::default()
        };
        let to_send = Attributes {
            state: Some(State::ReadyToSend),
            // A second: thousands may connect at once.
            timeout: Some(18),
            retry_count: Some(7),
            rnr_retry: Some(7),
            sq_psn: Some(0),
            max_rd_atomic: Some(1),
            ..Attributes::default()
        };
        self.attached.control(&Command::Route(self.context, ip, row))?;
        for attributes in [to_init, to_receive, to_send] {
            self.attached.control(&Command::ModifyQp(self.qp, attributes))?;
        }
        Ok(())
    }

    /// Makes another queue pair in the place of the present one, which is destroyed.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn renew(&mut self) -> io::Result<()> {
        let (old, new) =
            (Command::DestroyQp(self.qp), Command::CreateQp(request(self.domain, self.cq)));
        self.attached.control(&old).map_err(kernel)?;
        let made = self.attached.control(&new).and_then(Reply::number).map_err(kernel)?;
        self.qp = QueuePairNumber(made);
        Ok(())
    }

    /// Sets every byte of its memory.
    pub fn fill(&self, byte: u8) {
        self.memory.iter().for_each(|at| at.store(byte, Ordering::Relaxed));
    }

    /// Returns a byte of its memory, which peers write.
    pub fn byte(&self, at: usize) -> u8 {
        self.memory[at].load(Ordering::Relaxed)
    }

    fn sge(&self, at: usize, len: u32) -> [Sge; 1] {
        let address = self.memory[at..].as_ptr().expose_provenance() as u64;
        [Sge { address, length: len, lkey: self.key }]
    }

    /// Posts a WRITE of `len` bytes from `from` in its memory to `to` in the peer's.
    ///
    /// # Errors
    /// The queue is full, or the device has ended.
    pub fn write(
        &self,
        number: u64,
        (from, len): (usize, u32),
        peer: &ClientAddress,
        to: u64,
    ) -> io::Result<()> {
        let remote = Remote { address: peer.address + to, rkey: peer.key };
        self.post(number, Operation::Write(remote), (from, len))
    }

    /// Posts a SEND of `len` bytes from `from` in its memory.
    ///
    /// # Errors
    /// The queue is full, or the device has ended.
    pub fn send(&self, number: u64, from: (usize, u32)) -> io::Result<()> {
        self.post(number, Operation::Send, from)
    }

    fn post(&self, number: u64, operation: Operation, (from, len): (usize, u32)) -> io::Result<()> {
        let sges = self.sge(from, len);
        let request = SendRequest::new(number, operation, Data::Gather(&sges));
        self.attached.post_sends(self.qp, |post| post(&request)).map_err(kernel)
    }

    /// Posts a receive request for `len` bytes at `at` in its memory.
    ///
    /// # Errors
    /// The queue is full, or the device has ended.
    pub fn receive(&self, wr_id: u64, (at, len): (usize, u32)) -> io::Result<()> {
        let sges = self.sge(at, len);
        self.attached.post_receive(self.qp, &ReceiveRequest { wr_id, sges: &sges }).map_err(kernel)
    }

    /// Passes its completed requests to `each`, at most `max`. Returns their number.
    ///
    /// # Errors
    /// The device has ended.
    pub fn poll(&self, max: usize, mut each: impl FnMut(Done)) -> io::Result<usize> {
        let polled = self.attached.poll_cq(self.cq, max, |completion| {
            let receives = [WorkKind::Receive, WorkKind::ReceiveWriteWithImmediate];
            each(Done {
                number: completion.wr_id,
                receives: receives.contains(&completion.kind),
                failure: match completion.status {
                    Status::Success => None,
                    Status::RemoteAccess => Some("remote access error"),
                    Status::WrFlush => Some("flushed"),
                    Status::RetryExceeded => Some("the peer does not answer"),
                    Status::RnrRetryExceeded => Some("the peer is not ready to receive"),
                    _ => Some("another error"),
                },
            });
        });
        polled.map_err(kernel)
    }

    /// Tries to use the objects of another client by their numbers. Returns the names of the attempts that succeeded.
    pub fn intrude(&self, victim: &ClientAddress) -> Vec<&'static str> {
        let state = Attributes { state: Some(State::Error), ..Attributes::default() };
        let attempts = [
            ("query its queue pair", Command::QueryQp(victim.qp)),
            ("end its queue pair", Command::ModifyQp(victim.qp, state)),
            ("destroy its queue pair", Command::DestroyQp(victim.qp)),
            ("deregister its memory", Command::Deregister(victim.key)),
            (
                "move its memory",
                Command::Reregister {
                    key: victim.key,
                    domain: Some(self.domain),
                    place: None,
                    access: None,
                },
            ),
        ];
        let succeeded =
            attempts.iter().filter(|(_, command)| self.attached.control(command).is_ok());
        succeeded.map(|(name, _)| *name).collect()
    }
}
