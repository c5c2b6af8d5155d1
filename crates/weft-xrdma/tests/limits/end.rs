//! The other end: this program as a second process, which accepts channels and executes commands, for tests and
//! benches.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use weft_xrdma::{CallRole, ChannelId, Config, Event, Message, Node, Options, Payload};

use crate::LIBRARY;

/// The environment variable with the other end's parameters.
pub(crate) const ROLE: &str = "WEFT_OTHER_END";

/// A process that accepts channels.
pub(crate) struct End {
    child: Child,
    pub(crate) at: SocketAddr,
}

impl End {
    /// Starts the process, with parameters such as `qp_cache=0`.
    pub(crate) fn start(parameters: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it has a path"));
        // Run only the test that is the other end.
        command.args(["--ignored", "--exact", "other_end", "--nocapture"]);
        command.env("LD_LIBRARY_PATH", &*LIBRARY).env(ROLE, parameters.join(" "));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let at = lines.map_while(Result::ok).find_map(|line| line.parse().ok());
        Self { child, at: at.expect("it says where") }
    }

    /// Kills the process without notice to its peers.
    #[allow(dead_code, reason = "benches kill nobody")]
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a node with parameters such as `qp_cache=0`.
pub(crate) fn node(parameters: &[impl AsRef<str>]) -> Node {
    let mut config = Config::default();
    for parameter in parameters {
        let (name, value) = parameter.as_ref().split_once('=').expect("NAME=VALUE");
        config.set(name, value).expect("a parameter");
    }
    Node::new(Options { config, ..Options::default() }).expect("a device")
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
    let at = node.listen(([127, 0, 0, 1], 0).into()).expect("a port");
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

/// Opens channels, and waits until all are open.
pub(crate) fn connect(node: &mut Node, end: &End, count: usize) -> Vec<ChannelId> {
    for _ in 0..count {
        node.connect(end.at).expect("there is room");
    }
    let mut channels = Vec::new();
    while channels.len() < count {
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
