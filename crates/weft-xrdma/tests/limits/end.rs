//! The other end: this program as a second process, which accepts channels and executes commands, for tests and
//! benches. The process may run on another host ([`HOST`]).

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use weft_xrdma::{CallRole, ChannelId, Event, Message, Node, Payload};

use crate::LIBRARY;

/// The environment variable with the other end's parameters.
pub(crate) const ROLE: &str = "WEFT_OTHER_END";

/// The environment variable with the address of a host that starts the process; without it, this host does.
pub(crate) const HOST: &str = "WEFT_OTHER_HOST";
/// The environment variable with the address at which the process accepts channels; by default the loopback's.
pub(crate) const ADDRESS: &str = "WEFT_OTHER_END_ADDRESS";

/// A process that accepts channels.
pub(crate) struct End {
    process: Process,
    pub(crate) at: SocketAddr,
}

/// The process of another end.
enum Process {
    Here(Child),
    /// The connection to the other host, which kills the process when it ends.
    There(TcpStream),
}

impl End {
    /// Starts the process, with parameters such as `qp_cache=0`.
    pub(crate) fn start(parameters: &[&str]) -> Self {
        let (process, output): (_, Box<dyn std::io::Read>) = match std::env::var(HOST) {
            Ok(host) => {
                let mut connection = TcpStream::connect(host).expect("it listens");
                writeln!(connection, "{}", parameters.join(" ")).expect("it reads");
                let output = connection.try_clone().expect("a descriptor");
                (Process::There(connection), Box::new(output))
            }
            Err(_) => {
                let mut command = command(&parameters.join(" "));
                command.env("LD_LIBRARY_PATH", &*LIBRARY);
                let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
                let output = child.stdout.take().expect("piped");
                (Process::Here(child), Box::new(output))
            }
        };
        let lines = BufReader::new(output).lines();
        let at = lines.map_while(Result::ok).find_map(|line| line.parse().ok());
        Self { process, at: at.expect("it says where") }
    }

    /// Kills the process without notice to its peers.
    #[allow(dead_code, reason = "benches kill nobody")]
    pub(crate) fn kill(self) {
        drop(self);
    }
}

/// Returns `true` if the process of another end runs on another host, and this host's libibverbs is used.
pub(crate) fn is_elsewhere() -> bool {
    std::env::var_os(HOST).is_some()
}

/// Returns a number of repetitions: a tenth where the other host is a guest, whose emulated processor is slow.
#[allow(dead_code, reason = "benches have one host")]
pub(crate) fn repetitions(count: usize) -> usize {
    if is_elsewhere() { count / 10 } else { count }
}

/// Returns the command that starts this program as another end.
pub(crate) fn command(parameters: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    // Run only the test that is the other end. With one thread, as on one processor, its first line would begin with its
    // name.
    command.args(["--ignored", "--exact", "other_end", "--nocapture", "--test-threads=2"]);
    command.env(ROLE, parameters);
    command
}

impl Drop for End {
    fn drop(&mut self) {
        match &mut self.process {
            Process::Here(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            // The other host closes its end when the process is gone.
            Process::There(connection) => {
                let _ = connection.shutdown(std::net::Shutdown::Write);
                let _ = std::io::copy(connection, &mut std::io::sink());
            }
        }
    }
}

/// Returns a node with options such as `qp_cache=0`.
pub(crate) fn node(options: &[impl AsRef<str>]) -> Node {
    let words: Vec<_> = options.iter().map(AsRef::as_ref).collect();
    Node::new(words.join(" ").parse().expect("NAME=VALUE")).expect("a device")
}

/// The counters and the memory of the other end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vitals {
    pub(crate) channels: u64,
    /// Number of one-way messages received.
    pub(crate) came: u64,
    /// Number of channels that it could not accept, and of pauses in which it accepted none.
    pub(crate) refused: u64,
    /// Registered memory now, and its maximum since the last request, bytes.
    pub(crate) registered: u64,
    pub(crate) most: u64,
    /// Resident memory of the process, bytes.
    pub(crate) resident: u64,
}

impl Vitals {
    fn read(text: &str) -> Self {
        let numbers: Vec<u64> =
            text.split(' ').map(|word| word.parse().expect("numbers")).collect();
        let [channels, came, refused, registered, most, resident] = numbers[..] else {
            panic!("six numbers: {text}")
        };
        Self { channels, came, refused, registered, most, resident }
    }

    fn text(self) -> String {
        let Self { channels, came, refused, registered, most, resident } = self;
        format!("{channels} {came} {refused} {registered} {most} {resident}")
    }

    fn of(node: &mut Node) -> Self {
        let channels = node.context().channels().count() as u64;
        let registered = node.context().memory().registered;
        Self { channels, registered, resident: resident(), ..Self::default() }
    }
}

/// Returns the resident memory of this process in bytes; 0 if it has no descriptor left to read it.
pub(crate) fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Accepts channels until it is killed. Requests that begin with `!` are answered with its vitals: `!NAME=VALUE`
/// sets a parameter, `!stop=MS` stops polling for that time, `!files=N` limits open files. Others are echoed.
pub(crate) fn serve(parameters: &str) {
    let mut node = node(&parameters.split_whitespace().collect::<Vec<_>>());
    let address = std::env::var(ADDRESS).ok().and_then(|address| address.parse().ok());
    let at = (address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0).into();
    let at = node.listen(at).expect("a port");
    println!("{at}");
    let (mut came, mut refused, mut most) = (0, 0, 0);
    loop {
        node.wait(None);
        while let Some(event) = node.poll_event() {
            refused += u64::from(matches!(event, Event::AcceptFailed { .. }));
            let Event::Channel(weft_msg::Event::Message { channel, message }) = event else {
                continue;
            };
            most = most.max(node.context().memory().registered);
            match message.call {
                CallRole::Request(id) if node.context().body(&message).first() != Some(&b'!') => {
                    let (now, body) = (node.now(), node.context().body(&message).to_vec());
                    let _ = node.context().respond(now, channel, id, Payload::Copy(&body));
                }
                CallRole::Request(id) => {
                    let wanted = text(&mut node, &message);
                    let vitals = Vitals { came, refused, most, ..Vitals::of(&mut node) };
                    most = 0;
                    let (now, answer) = (node.now(), vitals.text());
                    // A client that is gone needs no response.
                    let answer = Payload::Copy(answer.as_bytes());
                    let _ = node.context().respond(now, channel, id, answer);
                    execute(&mut node, &wanted[1..]);
                }
                CallRole::OneWay | CallRole::Response(_) => came += 1,
            }
            let now = node.now();
            node.context().release(now, message);
        }
    }
}

/// Executes a command of [`serve`].
fn execute(node: &mut Node, wanted: &str) {
    match wanted.split_once('=') {
        Some(("stop", millis)) => {
            let millis = millis.parse().expect("a number");
            #[expect(clippy::disallowed_methods, reason = "it is to look away")]
            std::thread::sleep(std::time::Duration::from_millis(millis));
        }
        Some(("files", files)) => {
            let files = files.parse().expect("a number");
            let limit = libc::rlimit { rlim_cur: files, rlim_max: files };
            // SAFETY: the limit lives until the call returns.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        }
        Some((name, value)) => node.context().set(name, value).expect("an on-line parameter"),
        None => {}
    }
}

/// Sends the other end a command. Returns its vitals.
pub(crate) fn ask(node: &mut Node, control: ChannelId, what: &str) -> Vitals {
    let request = format!("!{what}");
    let answer = node.call(control, Payload::Copy(request.as_bytes()), None).expect("it answers");
    let vitals = Vitals::read(&text(node, &answer));
    let now = node.now();
    node.context().release(now, answer);
    vitals
}

fn text(node: &mut Node, message: &Message) -> String {
    String::from_utf8_lossy(node.context().body(message)).into_owned()
}

/// Opens channels, and waits until all are open. On a busy machine a guest takes longer than the time limit of a greeting for
/// twenty.
pub(crate) fn connect(node: &mut Node, end: &End, count: usize) -> Vec<ChannelId> {
    let at_once = if is_elsewhere() { 4 } else { count };
    let (mut started, mut channels) = (0, Vec::new());
    while channels.len() < count {
        while started < count.min(channels.len() + at_once) {
            node.connect(end.at).expect("there is room");
            started += 1;
        }
        node.wait(None);
        while let Some(event) = node.poll_event() {
            match event {
                Event::Connected { channel, .. } => channels.push(channel),
                Event::ConnectFailed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    channels
}

/// Closes channels, and waits until all are gone.
pub(crate) fn close(node: &mut Node, channels: &[ChannelId]) {
    let now = node.now();
    channels.iter().for_each(|&channel| node.context().close(now, channel));
    let mut left = channels.len();
    while left > 0 {
        node.wait(None);
        while let Some(event) = node.poll_event() {
            left -= usize::from(matches!(event, Event::Channel(weft_msg::Event::Closed { .. })));
        }
    }
}
