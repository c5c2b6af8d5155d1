//! Tests of a daemon in a thread, with clients that follow the library's protocol or break it.
#![allow(clippy::disallowed_methods, reason = "these tests wait for a daemon in real time")]

mod clients;
mod fuse;
mod guests;
mod hostile;
mod many;
mod stalling;
mod unserved;

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_rnic::{
    Access, Attributes, CompletionQueue, Context, Data, Operation, ProtectionDomain,
    QueuePairNumber, QueuePairRequest, Remote, SendRequest, Service, Sge, State, Status,
};

use super::quotas::Quotas;
use super::{Daemon, DaemonSettings, ServeError, Stopper};
use crate::admin::Admin;
use crate::attach::{
    Amounts, Answer, CallError, Caller, Consumer, Notice, Page, Posted, Probe, Producer, Request,
    Signal, Socket, Work, decode, encode,
};
use crate::engine::command::{Command, Reply};
use crate::engine::{Region, address_of};

/// A daemon that ends with the test.
struct Running {
    path: PathBuf,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    fn start() -> Self {
        Self::start_with(DaemonSettings::default(), |_| ())
    }

    fn start_with(settings: DaemonSettings, change: impl FnOnce(&mut Daemon)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-daemon-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut daemon = Daemon::open(&path, settings).unwrap();
        change(&mut daemon);
        let stopper = daemon.stopper();
        Self { path, stopper, thread: Some(std::thread::spawn(|| daemon.run(|| ()))) }
    }

    fn admin(&self) -> Admin {
        Admin::connect(Some(&self.path)).unwrap()
    }

    fn make(&self, name: &str) {
        self.admin().create(name, None, Amounts::default()).unwrap();
    }

    fn attach(&self, name: &str) -> Guest {
        Guest::attach(Caller::connect(&self.path).unwrap(), name).unwrap()
    }

    fn used(&self, name: &str) -> Amounts {
        self.admin().show(name).unwrap().used
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.expect("the daemon lives").unwrap();
        }
    }
}

/// A client that can break the protocol.
struct Guest {
    caller: Caller,
    page: Page,
    signal: Signal,
    work: Producer,
    notices: Consumer,
}

impl Guest {
    fn attach(caller: Caller, name: &str) -> Result<Self, CallError> {
        let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
        let value = Box::new(0x0123_4567_89ab_cdef_u64);
        let address = (&raw const *value).expose_provenance() as u64;
        let probe = Probe { address, value: *value };
        Self::attach_with(caller, name, memory.as_fd(), probe)
    }

    /// Attaches with memory that may be another process's.
    fn attach_with(
        mut caller: Caller,
        name: &str,
        memory: BorrowedFd<'_>,
        probe: Probe,
    ) -> Result<Self, CallError> {
        let request = Request::attach(name, probe);
        let (answer, descriptors) = caller.call(&request, &[memory])?;
        assert_eq!(answer, Answer::Attached);
        let [page, signal] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        let (page, signal) = (Page::open(page).unwrap(), Signal::open(signal));
        let (work, notices) = (Producer::new(Page::WORK), Consumer::new(Page::NOTICES));
        Ok(Self { caller, page, signal, work, notices })
    }

    fn command(&mut self, command: Command) -> Result<Reply, i32> {
        match self.caller.call(&Request::Command(command), &[]) {
            Ok((Answer::Reply(reply), _)) => Ok(reply),
            Err(CallError::Refused { errno, .. }) => Err(errno),
            other => panic!("{command:?} comes to {other:?}"),
        }
    }

    fn number(&mut self, command: Command) -> u32 {
        self.command(command).unwrap().number().unwrap()
    }

    /// Makes one of each object.
    fn make_objects(&mut self) -> TestObjects {
        let context = Context(self.number(Command::OpenContext));
        let domain = ProtectionDomain(self.number(Command::AllocateDomain(context)));
        let cq = CompletionQueue(self.number(Command::CreateCq(context, 64)));
        let memory = Box::new([const { AtomicU8::new(0) }; 4096]);
        let address = memory.as_ptr().expose_provenance() as u64;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = Region { address, length: 4096, iova: address, access };
        let key = self.number(Command::Register(domain, region));
        let request = QueuePairRequest {
            domain,
            service: Service::ReliableConnected,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            max_send: 16,
            max_receive: 16,
            max_send_sge: 4,
            max_receive_sge: 4,
            max_inline: 256,
            signal_all: true,
        };
        let qp = QueuePairNumber(self.number(Command::CreateQp(request)));
        TestObjects { context, domain, cq, key, request, qp, memory }
    }

    /// Connects two queue pairs of its own over the loopback interface.
    fn connect(&mut self, context: Context, a: QueuePairNumber, b: QueuePairNumber) {
        let describe = Request::Describe { name: "a".into() };
        let Ok((Answer::Description(found), _)) = self.caller.call(&describe, &[]) else {
            panic!("there is no description");
        };
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let row = found.addresses.iter().position(|row| row.ip == loopback).unwrap();
        let row = u32::try_from(row).unwrap();
        self.command(Command::Route(context, loopback, row)).unwrap();
        for (qp, peer) in [(a, b), (b, a)] {
            let to_init = Attributes {
                state: Some(State::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
                ..Attributes::default()
            };
            let to_receive = Attributes {
                state: Some(State::ReadyToReceive),
                destination: Some(address_of(loopback, peer.0)),
                dest_qp: Some(peer.0),
                path_mtu: Some(1024),
                rq_psn: Some(0),
                max_dest_rd_atomic: Some(1),
                min_rnr_timer: Some(12),
                ..Attributes::default()
            };
            let to_send = Attributes {
                state: Some(State::ReadyToSend),
                timeout: Some(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                sq_psn: Some(0),
                max_rd_atomic: Some(1),
                ..Attributes::default()
            };
            for attributes in [to_init, to_receive, to_send] {
                self.command(Command::ModifyQp(qp, attributes)).unwrap();
            }
        }
    }

    /// Writes eight bytes of its region to a remote address with a key.
    fn write(&mut self, own: &TestObjects, to: Remote) {
        let sges = [Sge { address: own.address(), length: 8, lkey: own.key }];
        let request = SendRequest::new(1, Operation::Write(to), Data::Gather(&sges));
        self.post(&Work::Send(own.qp, Posted::numbered(1, &request)));
    }

    /// Returns the status of the next completion.
    fn completed(&mut self) -> Status {
        let (mut record, mut status) = (Vec::new(), None);
        until("a completion", || {
            if self.notices.pop(&self.page, &mut record).unwrap()
                && let Some(Notice::Completion(_, completion)) = decode(&record)
            {
                status = Some(completion.status);
            }
            status.is_some()
        });
        status.unwrap()
    }

    /// Returns `true` if the daemon has ended this client.
    fn is_ended(&mut self) -> bool {
        let call = self.caller.call(&Request::List { after: String::new() }, &[]);
        matches!(call, Err(CallError::Gone(_)))
    }

    fn post(&mut self, work: &Work<'_>) {
        let mut record = Vec::new();
        encode(work, &mut record);
        assert!(self.work.push(&self.page, &record).unwrap());
        self.signal.give();
    }
}

struct TestObjects {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    key: u32,
    request: QueuePairRequest,
    qp: QueuePairNumber,
    memory: Box<[AtomicU8; 4096]>,
}

impl TestObjects {
    fn address(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }
}

fn until(event: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "{event} never came");
        std::thread::yield_now();
    }
}
