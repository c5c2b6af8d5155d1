//! The properties of a daemon with a client that sends any bytes, writes any bytes into its rings and leaves, while
//! another user's client stays. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::cell::RefCell;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use weft_ring::Memory;
use weft_rnic::{
    Access, AtomicOperation, Attributes, CompletionQueue, Context, Data, Operation,
    ProtectionDomain, QueuePairNumber, QueuePairRequest, ReceiveRequest, Remote, SendRequest,
    Service, Sge, State,
};

use super::devices::Change;
use super::receive::take_memory;
use super::{Client, ClientId, Daemon, DaemonSettings};
use crate::attach::{
    Amounts, Answer, Awaited, Page, Posted, Probe, Producer, Refusal, Request, Socket, Work,
    decode, encode,
};
use crate::engine::command::{Command, Reply};
use crate::engine::{Region, address_of};
use crate::inputs::Script;
use crate::interfaces::Address;

pub(crate) mod process;

use process::Process;

/// A descriptor that is not a process's memory.
static OTHER: LazyLock<std::io::Result<File>> = LazyLock::new(|| File::open("/dev/null"));

/// The correct client's user and the hostile one's: neither is root.
const GOOD: u32 = 1_000_007;
const HOSTILE: u32 = 1_000_008;

/// Limits of the hostile user's device.
const LIMITS: Amounts = Amounts {
    processes: 2,
    domains: 4,
    regions: 6,
    completion_queues: 4,
    shared_receive_queues: 2,
    queue_pairs: 4,
};

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

thread_local! {
    /// Opening a daemon takes long: it serves one script after another, and each must leave nothing behind.
    static SCENE: RefCell<Option<Scene>> = const { RefCell::new(None) };
}

/// Plays a script against a daemon. Returns `true` if the hostile client was still attached when it ended.
///
/// # Panics
/// If the daemon panics, if the other user's client sees any effect, or if any object of the hostile client outlives
/// it.
pub fn daemon(bytes: &[u8]) -> bool {
    SCENE.with_borrow_mut(|scene| {
        // After a panic the scene is not used again.
        let mut taken = scene.take().unwrap_or_else(Scene::open);
        let stayed = taken.play(bytes);
        *scene = Some(taken);
        stayed
    })
}

/// Reads any bytes as the file that keeps the devices. Returns `true` if they are one.
///
/// # Panics
/// If the file that is written from its devices has others.
pub fn state(bytes: &[u8]) -> bool {
    super::kept::check_text(bytes)
}

/// A client's own objects.
#[derive(Clone, Copy)]
struct Objects {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    key: u32,
    qps: [QueuePairNumber; 2],
}

struct Scene {
    daemon: Daemon,
    process: Process,
    /// The client that stays, its memory, and its objects.
    good: ClientId,
    own: Box<[u8; 64]>,
    objects: Objects,
    _socket: Socket,
}

impl Scene {
    fn open() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let process = Process::start();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-daemon-played-{}-{number}.sock", std::process::id());
        // All traffic stays on this host.
        let addresses = vec![Address { ip: LOOPBACK, interface: 1, mtu: 65_536 }];
        let path = std::env::temp_dir().join(name);
        let mut settings = DaemonSettings::default();
        settings.set("paths", "4").expect("a number of paths");
        let mut daemon = Daemon::open_at(&path, settings, addresses).expect("there are ports");
        let devices = [("good", GOOD), ("hostile", HOSTILE)];
        for (name, owner) in devices {
            create(&mut daemon, name, owner);
        }
        let own = Box::new([0x5a; 64]);
        let memory = File::options().read(true).write(true).open("/proc/self/mem");
        let memory = memory.expect("a process has memory");
        let address = own.as_ptr().expose_provenance() as u64;
        let probe = Probe { address, value: u64::from_ne_bytes([0x5a; 8]) };
        let (good, socket) = connect(&mut daemon, GOOD);
        let attach = Request::attach("good", probe);
        let memory = take_memory(Some(&attach), vec![memory.into()]);
        let attached = daemon.act(good, attach, memory);
        attached.expect("its memory is its own");
        let objects = make(&mut daemon, good, address, 64).expect("there is room");
        Self { daemon, process, good, own, objects, _socket: socket }
    }

    fn play(&mut self, bytes: &[u8]) -> bool {
        let mut script = Script::new(bytes);
        let mut hostile = Hostile::connect(&mut self.daemon);
        let begin = script.below(4);
        if begin > 0 {
            hostile.attach(&mut self.daemon, &mut self.process);
            hostile.objects = (begin > 1)
                .then(|| make(&mut self.daemon, hostile.id, self.process.address(), 4096))
                .flatten();
        }
        if begin > 2
            && let Some(objects) = hostile.objects
        {
            join(&mut self.daemon, hostile.id, &objects);
        }
        while let Some(step) = script.byte()
            && hostile.play(step, &mut script, &mut self.daemon, &self.objects)
        {
            self.check(hostile.id);
        }
        let stayed = self.daemon.clients.get(&hostile.id).is_some_and(|it| it.tenant.is_some());
        self.daemon.end_client(hostile.id, None);
        self.daemon.turn(true);
        self.clean(hostile.id);
        stayed
    }

    /// Asserts the invariants that hold at any time.
    fn check(&mut self, hostile: ClientId) {
        let used = self.daemon.used_by(HOSTILE);
        let parts = [
            (used.processes, 1),
            (used.domains, LIMITS.domains),
            (used.regions, LIMITS.regions),
            (used.completion_queues, LIMITS.completion_queues),
            (used.shared_receive_queues, LIMITS.shared_receive_queues),
            (used.queue_pairs, LIMITS.queue_pairs),
        ];
        assert!(parts.iter().all(|(used, limit)| used <= limit), "{used:?} of {LIMITS:?}");
        let tenant = self.daemon.clients.get(&hostile).and_then(|it| it.tenant.as_ref());
        assert!(
            tenant.is_none_or(|tenant| tenant.device != "good"),
            "the device belongs to another user"
        );
    }

    /// Asserts the invariants after the hostile client has gone. Removes its devices, so that the next script finds
    /// none.
    fn clean(&mut self, hostile: ClientId) {
        let daemon = &mut self.daemon;
        assert_eq!(daemon.used_by(HOSTILE), Amounts::NONE);
        assert!(daemon.contexts.values().all(|&id| id == self.good), "{:?}", daemon.contexts);
        assert!(!daemon.clients.contains_key(&hostile) && !daemon.undelivered.contains(&hostile));
        assert_eq!(daemon.clients.len(), 1);
        let query = Request::Command(Command::QueryQp(self.objects.qps[0]));
        let answer = daemon.act(self.good, query, Ok(None));
        assert!(
            matches!(answer, Ok((Answer::Reply(Reply::QueuePair(State::Reset, _)), None))),
            "{answer:?}"
        );
        assert_eq!(*self.own, [0x5a; 64], "no client writes to another user's memory");
        assert_eq!(daemon.devices.count_of(GOOD), 1);
        let devices = &mut daemon.devices;
        let names: Vec<String> = devices.after(HOSTILE, "", false).map(str::to_owned).collect();
        for name in names {
            devices.apply(&Change::Delete { names: (&name).into() });
        }
        create(daemon, "hostile", HOSTILE);
    }
}

fn create(daemon: &mut Daemon, name: &str, owner: u32) {
    let limits = if owner == HOSTILE { LIMITS } else { Amounts::default() };
    let (devices, quotas) = (&mut daemon.devices, &daemon.quotas);
    let change = devices.check_creation(owner, name.into(), None, limits.into(), quotas);
    devices.apply(&change.expect("it is new"));
}

/// Connects a new client of this user, and returns its end of the socket.
fn connect(daemon: &mut Daemon, user: u32) -> (ClientId, Socket) {
    let (socket, other) = Socket::pair().expect("there are descriptors");
    let id = ClientId(daemon.next_client);
    daemon.next_client += 1;
    daemon.clients.insert(id, Client { socket: Arc::new(socket), user, process: 1, tenant: None });
    (id, other)
}

fn command(daemon: &mut Daemon, id: ClientId, command: Command) -> Option<Reply> {
    match daemon.act(id, Request::Command(command), Ok(None)) {
        Ok((Answer::Reply(reply), None)) => Some(reply),
        _ => None,
    }
}

fn number(daemon: &mut Daemon, id: ClientId, request: Command) -> Option<u32> {
    command(daemon, id, request)?.number().ok()
}

/// Makes one of each object, and two queue pairs.
fn make(daemon: &mut Daemon, id: ClientId, address: u64, length: u64) -> Option<Objects> {
    let context = Context(number(daemon, id, Command::OpenContext)?);
    let domain = ProtectionDomain(number(daemon, id, Command::AllocateDomain(context))?);
    let cq = CompletionQueue(number(daemon, id, Command::CreateCq(context, 64))?);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let region = Region { address, length, iova: address, access };
    let key = number(daemon, id, Command::Register(domain, region))?;
    let request = Command::CreateQp(request(domain, cq));
    let qps = [0; 2].map(|_| number(daemon, id, request).map(QueuePairNumber));
    let [Some(one), Some(other)] = qps else { return None };
    Some(Objects { context, domain, cq, key, qps: [one, other] })
}

const fn request(domain: ProtectionDomain, cq: CompletionQueue) -> QueuePairRequest {
    QueuePairRequest {
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
    }
}

/// Connects a client's queue pairs with each other.
fn join(daemon: &mut Daemon, id: ClientId, objects: &Objects) {
    command(daemon, id, Command::Route(objects.context, LOOPBACK, 0));
    let [one, other] = objects.qps;
    for (qp, peer) in [(one, other), (other, one)] {
        for step in 0..3 {
            command(daemon, id, Command::ModifyQp(qp, attributes(step, peer)));
        }
    }
}

/// Returns the attributes that a queue pair needs for each step to ready.
fn attributes(step: usize, peer: QueuePairNumber) -> Attributes {
    match step {
        0 => Attributes {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
            ..Attributes::default()
        },
        1 => Attributes {
            state: Some(State::ReadyToReceive),
            destination: Some(address_of(LOOPBACK, peer.0)),
            dest_qp: Some(peer.0),
            path_mtu: Some(1024),
            rq_psn: Some(0),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..Attributes::default()
        },
        2 => Attributes {
            state: Some(State::ReadyToSend),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            sq_psn: Some(0),
            max_rd_atomic: Some(1),
            ..Attributes::default()
        },
        3 => Attributes { state: Some(State::Error), ..Attributes::default() },
        _ => Attributes { state: Some(State::Reset), ..Attributes::default() },
    }
}

/// The client that a script controls.
struct Hostile {
    id: ClientId,
    socket: Socket,
    work: Producer,
    objects: Option<Objects>,
    bytes: Vec<u8>,
}

impl Hostile {
    fn connect(daemon: &mut Daemon) -> Self {
        let (id, socket) = connect(daemon, HOSTILE);
        Self { id, socket, work: Producer::new(Page::WORK), objects: None, bytes: Vec::new() }
    }

    fn attach(&self, daemon: &mut Daemon, process: &mut Process) {
        let probe = process.probe();
        let request = Request::attach("hostile", probe);
        let memory = take_memory(Some(&request), vec![process.memory()]);
        let attached = daemon.act(self.id, request, memory);
        attached.expect("its memory is its own");
    }

    /// Does one step. Returns `false` if the daemon ended the client, or it has left.
    fn play(
        &mut self,
        step: u8,
        script: &mut Script<'_>,
        daemon: &mut Daemon,
        others: &Objects,
    ) -> bool {
        match step % 8 {
            0 => {
                let bytes = script.piece();
                return self.exchange(daemon, bytes, script.below(3));
            }
            1 | 2 => {
                encode(&self.request(script, others), &mut self.bytes);
                let changed = self.changed(script);
                return self.exchange(daemon, &changed, 0);
            }
            3 => {
                let record = script.piece();
                self.post(daemon, record);
            }
            4 | 5 => {
                let own = self.objects.unwrap_or(*others);
                post(script, &own, others, &mut self.bytes);
                let changed = self.changed(script);
                self.post(daemon, &changed);
            }
            6 => {
                let word = [0, 64, 128, 192, 256, 320, 384][script.below(7)];
                let value = if script.below(2) == 0 { script.word() } else { script.half().into() };
                if let Some(page) = page(daemon, self.id) {
                    page.word(word).store(value, Ordering::Release);
                }
            }
            _ => {
                daemon.turn(script.below(2) == 0);
            }
        }
        daemon.clients.contains_key(&self.id)
    }

    /// Returns the current bytes, some of them changed.
    fn changed(&mut self, script: &mut Script<'_>) -> Vec<u8> {
        let mut bytes = core::mem::take(&mut self.bytes);
        for _ in 0..script.below(256).saturating_sub(252) {
            let (at, value) = (script.below(256), script.byte().unwrap_or(0));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes
    }

    /// Sends a message and reads the answer, through the daemon's normal path.
    fn exchange(&self, daemon: &mut Daemon, bytes: &[u8], descriptors: usize) -> bool {
        let with: Vec<_> = OTHER.as_ref().map(AsFd::as_fd).into_iter().take(descriptors).collect();
        // An empty message has the effect of closing.
        let _ = self.socket.send(bytes, &with, true);
        if !daemon.handle_message(self.id) {
            daemon.end_client(self.id, None);
            return false;
        }
        let mut answer = Vec::new();
        if let Ok(Some(_)) = self.socket.receive(&mut answer, true, true) {
            let answer = decode::<Result<Answer, Refusal>>(&answer).expect("it can be read");
            if let Ok(Answer::Devices(devices)) = answer {
                assert!(devices.iter().all(|it| it.owner == HOSTILE), "others' are not listed");
            } else if let Ok(Answer::States(devices)) = answer {
                assert!(devices.iter().all(|it| it.owner == HOSTILE), "others' are not listed");
            }
        }
        true
    }

    fn post(&mut self, daemon: &Daemon, record: &[u8]) {
        if let Some(page) = page(daemon, self.id) {
            let _ = self.work.push(page, record);
        }
    }

    fn request(&self, script: &mut Script<'_>, others: &Objects) -> Request {
        let own = self.objects.unwrap_or(*others);
        let Objects { context, domain, cq, key, qps } = own;
        let qp = qps[script.below(2)];
        let number = script.word();
        let command = match script.below(24) {
            0 => Command::OpenContext,
            1 => Command::CloseContext(context),
            2 => Command::AllocateDomain(context),
            3 => Command::DeallocateDomain(domain),
            4 => Command::CreateCq(context, number),
            5 => Command::ResizeCq(cq, number),
            6 => Command::DestroyCq(cq),
            7 => Command::CreateSrq { domain, requests: number, pieces: script.word() },
            8 => Command::CreateQp(request(domain, cq)),
            9 => Command::DestroyQp(qp),
            10 => Command::QueryQp(qp),
            11 => Command::ModifyQp(qp, attributes(script.below(5), qps[script.below(2)])),
            12 => Command::Deregister(key),
            13 => Command::Route(context, LOOPBACK, number),
            14 => Command::CreateCq(others.context, 1),
            15 => Command::Deregister(others.key),
            16 => Command::DestroyQp(others.qps[0]),
            17 => Command::CloseContext(others.context),
            18 => {
                let (address, length) = (u64::from(number) << script.below(32), script.word());
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                let region = Region { address, length: length.into(), iova: 0, access };
                Command::Register(domain, region)
            }
            19 => return Request::List { after: String::new() },
            20 => return Request::Show { name: name(script) },
            21 => return Request::Delete { name: name(script), force: script.below(2) == 0 },
            22 => {
                let owner = (script.below(2) == 0).then_some(GOOD);
                return Request::Create { name: name(script), owner, limits: LIMITS };
            }
            _ => return Request::Describe { name: name(script) },
        };
        Request::Command(command)
    }
}

fn name(script: &mut Script<'_>) -> String {
    ["hostile", "good", "new", "newer"][script.below(4)].into()
}

fn page(daemon: &Daemon, id: ClientId) -> Option<&Page> {
    Some(&daemon.clients.get(&id)?.tenant.as_ref()?.page)
}

/// Encodes a work request as a library would post it, for own or others' objects.
fn post(script: &mut Script<'_>, own: &Objects, others: &Objects, out: &mut Vec<u8>) {
    let choice = script.byte().unwrap_or(0);
    let of = |bit: u8| if choice >> bit & 1 == 0 { own } else { others };
    let length = u32::from(script.half());
    let address = process::ADDRESS.load(Ordering::Relaxed) + u64::from(script.half());
    let sge = Sge { address, length, lkey: of(0).key };
    let sges = vec![sge; script.below(6)];
    let qp =
        if choice >> 2 & 3 == 3 { others.qps[0] } else { own.qps[usize::from(choice >> 4 & 1)] };
    if choice >= 192 {
        let request = ReceiveRequest { wr_id: 1, sges: &sges };
        return encode(&Work::Receive(qp, Awaited::numbered(1, &request)), out);
    }
    let remote = Remote { address: address + u64::from(script.half()), rkey: of(1).key };
    let operation = match script.below(8) {
        0 => Operation::Send,
        1 => Operation::SendWithImmediate(7),
        2 => Operation::SendWithInvalidate(of(1).key),
        3 => Operation::Write(remote),
        4 => Operation::WriteWithImmediate(remote, 7),
        5 => Operation::Read(remote),
        6 => Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } },
        _ => Operation::LocalInvalidate(of(1).key),
    };
    let inline = script.below(2) == 0;
    let data = if inline { Data::Inline(&[9; 64]) } else { Data::Gather(&sges) };
    let request = SendRequest::new(1, operation, data);
    encode(&Work::Send(qp, Posted::numbered(1, &request)), out);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::inputs::{corpus, survive};

    /// Number of rings that the client fills in all.
    const RINGS: u32 = 64;

    /// A queue pair in error accepts every receive request and flushes it, so its ring never fills up.
    #[test]
    fn a_client_that_posts_while_the_daemon_takes_its_work_keeps_it_for_one_ring() {
        let mut scene = Scene::open();
        let daemon = &mut scene.daemon;
        let mut hostile = Hostile::connect(daemon);
        hostile.attach(daemon, &mut scene.process);
        let objects = make(daemon, hostile.id, scene.process.address(), 4096).unwrap();
        let [qp, other] = objects.qps;
        for step in [0, 3] {
            command(daemon, hostile.id, Command::ModifyQp(qp, attributes(step, other))).unwrap();
        }
        let request = ReceiveRequest { wr_id: 1, sges: &[] };
        let mut record = Vec::new();
        encode(&Work::Receive(qp, Awaited::numbered(1, &request)), &mut record);
        let file = page(daemon, hostile.id).unwrap().file().try_clone_to_owned().unwrap();
        let shared = Page::open(file).unwrap();
        let poster = std::thread::spawn(move || {
            while hostile.work.tail() < RINGS * Page::RING {
                if !hostile.work.push(&shared, &record).unwrap() {
                    core::hint::spin_loop();
                }
            }
        });
        let taken = |daemon: &Daemon| {
            let head = page(daemon, hostile.id).unwrap().word(Page::WORK.head);
            head.load(Ordering::Relaxed)
        };
        let mut message = Vec::new();
        encode(&Request::Command(Command::QueryQp(qp)), &mut message);
        let send = || hostile.socket.send(&message, &[], true).unwrap();
        (0..4).for_each(|_| send());
        let (mut most, mut answer) = (0, Vec::new());
        while !poster.is_finished() {
            send();
            let before = taken(daemon);
            assert!(daemon.handle_message(hostile.id));
            most = most.max(taken(daemon) - before);
            assert!(hostile.socket.receive(&mut answer, true, true).unwrap().is_some());
        }
        poster.join().unwrap();
        // A record's length is in the ring too, and counts less than the record.
        assert!(most < 2 * Page::RING, "{} rings for one message", most / Page::RING);
    }

    /// Whatever bytes are in the file that keeps the devices, the daemon starts or names a line.
    #[test]
    fn any_file_of_devices_is_read_or_refused() {
        let text =
            std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/state/devices.state"));
        let valid = survive(&[text.unwrap()], 3_000, state);
        assert!(valid > 30, "only {valid} were valid");
    }

    #[test]
    fn a_hostile_client_affects_no_other_and_leaves_no_objects() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/daemon.corpus");
        let stayed = survive(&corpus(&file), 3_000, daemon);
        assert!(stayed > 300, "only {stayed} stayed: the scripts are too wild");
    }
}
