//! Folders whose owner is an attacker: the reader is another user of the machine, often root.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use weft_stat::{Control, ControlError, Folder, Request, Setting, Snapshot, ask};

/// The user ID of the attacker.
const NOBODY: u32 = 65_534;

/// Maximum time of a step.
const LIMIT: Duration = Duration::from_secs(20);

/// A folder that the test removes.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-other-{}-{name}", std::process::id()));
        Folder::at(&path).prepare().unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the names of the files.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns `true` and records the skip if this process is not root.
fn is_unprivileged(test: &str) -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        weft_testkit::skip(test, "only root becomes another user");
    }
    !is_root
}

/// Makes this thread, and no other one, a thread of the attacker.
fn become_nobody() {
    let nobody = Uid::from_raw(NOBODY);
    set_thread_res_uid(nobody, nobody, nobody).unwrap();
}

/// Answers requests to a node until `ended`. Returns their number.
fn serve(
    control: &Control,
    ended: &AtomicBool,
    answer: impl Fn(Request) -> Result<Vec<Setting>, &'static str>,
) -> u32 {
    let mut requests = 0;
    while !ended.load(Ordering::Relaxed) {
        control.serve(|request| {
            requests += 1;
            answer(request)
        });
        weft_testkit::pause();
    }
    requests
}

/// Sets a flag when it is dropped, also by a panic, so that other threads of a test end.
struct EndGuard<'a>(&'a AtomicBool);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn status_file(path: &Path) {
    let snapshot = Snapshot {
        heartbeat: 1,
        life: weft_stat::ProgramState::Running,
        program: weft_stat::ProgramRecord::default(),
        context: None,
        device: None,
        channels: vec![],
        connections: vec![],
        paths: vec![],
        events: vec![],
    };
    fs::write(path, snapshot.to_bytes()).unwrap();
}

/// The attacker owns the folder: it can replace each name in it by a link at any time.
#[test]
fn a_request_creates_no_file_in_the_folder_of_another_user() {
    let scratch = Scratch::new("no-file");
    let is_root = !is_unprivileged("a node of another user");
    if is_root {
        chown(&scratch.0, Some(NOBODY), None).unwrap();
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndGuard(&ended);
        let (ready, is_ready) = mpsc::channel();
        let (scratch, ended) = (&scratch, &ended);
        scope.spawn(move || {
            if is_root {
                become_nobody();
            }
            let control = Control::beside(&scratch.join("1-0.node")).unwrap();
            ready.send(()).unwrap();
            serve(&control, ended, |_| {
                // The requester waits at this moment.
                let (name, about) = ("files".into(), scratch.names().join(" "));
                Ok(vec![Setting { name, value: String::new(), online: true, about }])
            });
        });
        is_ready.recv_timeout(LIMIT).unwrap();
        let [files] =
            ask(&scratch.join("1-0.control"), &Request::List).unwrap().try_into().unwrap();
        assert_eq!(files.about, "1-0.control");
    });
}

#[test]
fn a_request_follows_no_symbolic_link() {
    let (scratch, other) = (Scratch::new("request"), Scratch::new("victim"));
    let control = Control::beside(&other.join("1-0.node")).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndGuard(&ended);
        let victim = scope.spawn(|| serve(&control, &ended, |_| Ok(vec![])));
        let link = scratch.join("1-0.control");
        symlink(other.join("1-0.control"), &link).unwrap();
        let folder = scratch.join("folder");
        symlink(&other.0, &folder).unwrap();
        for path in [&link, &folder.join("1-0.control")] {
            let error = ask(path, &Request::List).unwrap_err();
            assert!(matches!(error, ControlError::Io { .. }), "{error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
        ended.store(true, Ordering::Relaxed);
        assert_eq!(victim.join().unwrap(), 0);
    });
}

#[test]
fn a_request_reaches_only_a_socket_of_the_folders_owner() {
    if is_unprivileged("a socket of another user") {
        return;
    }
    let scratch = Scratch::new("socket");
    let control = Control::beside(&scratch.join("1-0.node")).unwrap();
    let path = scratch.join("1-0.control");
    chown(&path, Some(NOBODY), None).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndGuard(&ended);
        scope.spawn(|| serve(&control, &ended, |_| Ok(vec![])));
        let error = ask(&path, &Request::List).unwrap_err();
        assert!(error.to_string().contains("user 65534"), "{error}");
        chown(&path, Some(0), None).unwrap();
        assert_eq!(ask(&path, &Request::List).unwrap(), vec![]);
    });
}

/// The attacker's node never reads its socket, whose queue is full.
#[test]
fn a_full_queue_does_not_block_a_requester() {
    let scratch = Scratch::new("queue");
    let _control = Control::beside(&scratch.join("1-0.node")).unwrap();
    let path = scratch.join("1-0.control");
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"list\n", &path).is_ok() {}
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(ask(&path, &Request::List)));
    let result = result.recv_timeout(LIMIT).expect("the requester is blocked");
    assert!(matches!(result, Err(ControlError::NoAnswer)), "{result:?}");
}

#[test]
fn a_request_that_a_node_drops_fails_at_once() {
    let scratch = Scratch::new("dropped");
    // A program that reads the request and ignores its reply socket.
    let node = UnixDatagram::bind(scratch.join("1-0.control")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| node.recv(&mut [0; 64]).unwrap());
        let error = ask(&scratch.join("1-0.control"), &Request::List).unwrap_err();
        assert!(matches!(error, ControlError::Closed { .. }), "{error:?}");
    });
}

#[test]
fn control_characters_of_a_response_do_not_reach_a_terminal() {
    let scratch = Scratch::new("response");
    let control = Control::beside(&scratch.join("1-0.node")).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndGuard(&ended);
        scope.spawn(|| {
            serve(&control, &ended, |request| match request {
                Request::List => {
                    let (name, value) = ("evil\x1b[2J".into(), "\u{9b}1".into());
                    Ok(vec![Setting { name, value, online: true, about: "a\tb".into() }])
                }
                Request::Set { .. } => Err("no\x1b[2J"),
            })
        });
        let path = scratch.join("1-0.control");
        let [it] = ask(&path, &Request::List).unwrap().try_into().unwrap();
        assert_eq!([it.name, it.value, it.about], ["evil[2J", "1", "ab"]);
        let set = Request::Set { name: "a".into(), value: "b".into() };
        assert_eq!(ask(&path, &set).unwrap_err().to_string(), "no[2J");
    });
}

#[test]
fn only_regular_files_of_the_folders_owner_are_status_files() {
    let (scratch, other) = (Scratch::new("kinds"), Scratch::new("kinds-victim"));
    status_file(&other.join("9-0.node"));
    symlink(other.join("9-0.node"), scratch.join("1-0.node")).unwrap();
    fs::create_dir(scratch.join("2-0.node")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, scratch.join("3-0.node"), pipe, mode, 0).unwrap();
    status_file(&scratch.join("4\x1b[2J.node"));
    status_file(&scratch.join("5-0.node"));
    let scan = || {
        let found = Folder::at(&scratch.0).scan().unwrap();
        found.into_iter().map(|it| it.name).collect::<Vec<_>>()
    };
    assert_eq!(scan(), ["5-0"]);
    if !is_unprivileged("a status file of another user") {
        chown(scratch.join("5-0.node"), Some(NOBODY), None).unwrap();
        assert!(scan().is_empty());
    }
}

/// The attacker replaces its folder by a link to another one after the reader has found a dead program there.
#[test]
fn files_are_removed_only_from_the_folder_in_which_they_were_found() {
    let (scratch, other) = (Scratch::new("swapped"), Scratch::new("swapped-victim"));
    let (folder, moved) = (scratch.join("folder"), scratch.join("moved"));
    Folder::at(&folder).prepare().unwrap();
    for path in [&folder, &other.0] {
        status_file(&path.join("1-0.node"));
        fs::write(path.join("1-0.control"), "").unwrap();
    }
    let found = Folder::at(&folder).scan().unwrap();
    fs::rename(&folder, &moved).unwrap();
    symlink(&other.0, &folder).unwrap();
    assert!(found[0].is_dead);
    found[0].clear();
    assert_eq!(other.names(), ["1-0.control", "1-0.node"]);
    assert_eq!(fs::read_dir(&moved).unwrap().count(), 0);
}
