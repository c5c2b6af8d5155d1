//! Status files: writing, reading, removal, and refusal of unauthorised access.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_stat::{
    Address, ChannelRecord, ConnectionRecord, ContextRecord, Control, ControlError, EventKind,
    EventRecord, Folder, FolderError, LayoutError, PathRecord, ProgramRecord, ProgramState,
    Request, Setting, Snapshot, StatusWriter, Text, ask,
};
use weft_units::{Seed, suggest};

mod properties;
use properties::publish;

/// A folder that the test removes.
struct Scratch(Folder);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-stat-{}-{name}", std::process::id()));
        let folder = Folder::at(path);
        folder.prepare().unwrap();
        Self(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.path());
    }
}

fn snapshot(channels: u64) -> Snapshot {
    let peer = Address("10.0.0.7".parse().unwrap());
    let program = ProgramRecord {
        pid: 7,
        name: Text::new("a program with a name that is longer than the sixty-four bytes it has"),
        device: Text::new("weft0"),
        address: Address("fd00::1".parse().unwrap()),
        entries: channels,
        ..ProgramRecord::default()
    };
    let channel = |id| ChannelRecord {
        id,
        peer,
        clock_offset: (id % 2 == 0).then_some(-5),
        sent: u64::MAX,
        ..ChannelRecord::default()
    };
    let happened = Text::new("the peer is gone: RetryExceeded — grüße");
    Snapshot {
        heartbeat: 12,
        life: ProgramState::Asleep,
        program,
        context: Some(ContextRecord { memory_used: 3, ..ContextRecord::default() }),
        device: None,
        channels: (0..channels).map(channel).collect(),
        connections: vec![ConnectionRecord { qp: None, peer, ..ConnectionRecord::default() }],
        paths: vec![PathRecord { rtt: Some(1), up: 1, ..PathRecord::default() }],
        events: vec![EventRecord {
            kind: EventKind::Closed,
            text: happened,
            ..EventRecord::default()
        }],
    }
}

#[test]
fn published_state_is_read_until_its_program_ends() {
    let scratch = Scratch::new("read");
    // The last snapshot exceeds the initial size of a file.
    for channels in [0, 1, 300] {
        let written = snapshot(channels);
        let writer = publish(&scratch.0, &written);
        writer.set_state(ProgramState::Asleep);
        writer.set_heartbeat(weft_units::Instant::from_nanos(12));
        let found = scratch.0.scan().unwrap();
        assert_eq!(found.len(), 1);
        assert!(!found[0].is_dead);
        assert_eq!(found[0].read(), Ok(written));
        drop(writer);
        assert!(scratch.files().is_empty());
        // A reader that has the file open sees that the program ended in order.
        assert_eq!(found[0].read().unwrap().life, ProgramState::Ended);
    }
}

#[test]
fn a_reader_never_sees_half_of_a_change() {
    let scratch = Scratch::new("torn");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writer = StatusWriter::create(&scratch.0, "node").unwrap();
        writer.publish(|draft| snapshot(1).draft(draft)).unwrap();
        let over = &over;
        scope.spawn(move || {
            for round in 0.. {
                let mut written = snapshot(1 + round % 40);
                written.channels.iter_mut().for_each(|channel| channel.received = round);
                written.program.events = round;
                writer.publish(|draft| written.draft(draft)).unwrap();
                if over.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::yield_now();
            }
        });
        let found = &scratch.0.scan().unwrap()[0];
        let (mut read, mut changes, mut last) = (0, 0, 0);
        while changes < 200 && read < 1_000_000 {
            read += 1;
            let Ok(written) = found.read() else { continue };
            let round = written.program.events;
            assert!(written.channels.iter().all(|channel| channel.received == round || round == 0));
            assert_eq!(written.channels.len() as u64, written.program.entries);
            changes += u64::from(round != last);
            last = round;
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(changes, 200, "the writer made no progress");
    });
}

#[test]
fn files_of_a_dead_program_are_reported_dead_and_removed() {
    let scratch = Scratch::new("dead");
    let path = scratch.0.path().join("1-0.node");
    fs::write(&path, snapshot(2).to_bytes()).unwrap();
    let control = path.with_extension("control");
    fs::write(&control, "").unwrap();
    fs::write(scratch.0.path().join(".new-4194304-0"), "").unwrap();
    fs::write(scratch.0.path().join("notes.txt"), "another program's").unwrap();
    let alive = publish(&scratch.0, &snapshot(1));
    let found = scratch.0.scan().unwrap();
    let dead: Vec<_> = found.iter().filter(|found| found.is_dead).collect();
    assert_eq!((found.len(), dead.len()), (2, 1));
    assert_eq!(dead[0].read().unwrap(), snapshot(2), "the last content");
    scratch.0.sweep();
    assert!(!path.exists() && !control.exists() && alive.path().exists());
    assert_eq!(scratch.files().len(), 2);
}

#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    let scratch = Scratch::new("open");
    fs::set_permissions(scratch.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(scratch.0.prepare(), Err(FolderError::NotOurs { mode: 0o777, .. })));
    let file = scratch.0.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Folder::at(file).prepare().is_err());
    assert!(Folder::at("/proc/weft").prepare().is_err());
}

#[test]
fn foreign_bytes_are_refused_by_name() {
    let good = snapshot(3).to_bytes();
    assert_eq!(Snapshot::parse(b""), Err(LayoutError::Magic));
    assert_eq!(Snapshot::parse(b"#!/bin/sh and more"), Err(LayoutError::Magic));
    assert!(matches!(
        Snapshot::parse(&good[..64]),
        Err(LayoutError::Short { what: "the header", .. })
    ));
    let cut = Snapshot::parse(&good[..good.len() - 8]);
    assert!(matches!(cut, Err(LayoutError::Short { what: "event", .. })), "{cut:?}");
    let with = |word: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[8 * word..][..8].copy_from_slice(&value.to_le_bytes());
        Snapshot::parse(&bytes)
    };
    assert_eq!(with(1, 2), Err(LayoutError::Version { got: 2, known: 1 }));
    let directory = weft_stat::DIRECTORY;
    assert_eq!(with(directory + 1, 0), Err(LayoutError::NotOne { table: "program", got: 0 }));
    let channels = directory + 3 * 3;
    assert!(matches!(
        with(channels + 1, u64::MAX),
        Err(LayoutError::Short { what: "channel", .. })
    ));
    assert!(matches!(with(channels + 2, 3), Err(LayoutError::RecordWords { got: 3, .. })));
    let kind = weft_stat::HEADER_WORDS;
    assert_eq!(with(kind, 9), Err(LayoutError::Code { what: "kind of file", got: 9 }));
}

#[test]
fn a_later_version_may_append_to_a_record() {
    let written = snapshot(0);
    let bytes = written.to_bytes();
    let mut words: Vec<u64> =
        bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let entry = weft_stat::DIRECTORY + 3 * 6;
    words[entry + 2] += 1;
    words.push(77);
    let longer: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(Snapshot::parse(&longer), Ok(written));
}

#[test]
fn no_damage_to_a_file_breaks_a_property() {
    let mut rng = Seed(5).child("damage", 0).rng();
    let good = snapshot(2).to_bytes();
    let (mut taken, extremes) = (0, [0, 1, 2, 3, u64::MAX, 1 << 32, 1 << 61]);
    for _ in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..=rng.below(3) {
            // Half of the changes are in the header, which affects the most checks.
            let span = if rng.chance(1, 2) { 8 * weft_stat::HEADER_WORDS } else { bytes.len() };
            let at = rng.index(span) & !7;
            let word = if rng.chance(1, 2) {
                extremes[rng.index(extremes.len())]
            } else {
                rng.next_u64() >> rng.below(64)
            };
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(bytes.len() - if rng.chance(1, 10) { rng.index(bytes.len()) } else { 0 });
        taken += u32::from(properties::stat(&bytes));
    }
    assert!(taken > 5_000, "only {taken} were files: the mutations are too strong");
}

#[test]
fn control_characters_of_a_name_do_not_reach_a_terminal() {
    let mut written = snapshot(0);
    written.program.name = Text::new("evil\x1b[2J\u{9b}name\n");
    let read = Snapshot::parse(&written.to_bytes()).unwrap();
    assert_eq!(read.program.name.as_str(), "evil[2Jname");
}

#[test]
fn a_node_answers_requests() {
    let scratch = Scratch::new("ask");
    let file = scratch.0.path().join("1-0.node");
    let control = Control::beside(&file).unwrap();
    let path = file.with_extension("control");
    let known = ["keepalive", "depth"];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                control.serve(|request| match request {
                    Request::List => Ok(vec![]),
                    Request::Set { name, value }
                        if suggest(&name, known) == Some(name.as_str()) =>
                    {
                        let about = "what it does".into();
                        Ok(vec![Setting { name, value, online: true, about }])
                    }
                    Request::Set { name, .. } => Err(format!("no parameter {name:?}")),
                });
                weft_testkit::pause();
            }
        });
        assert_eq!(ask(&path, &Request::List).unwrap(), vec![]);
        let set = |name: &str, value: &str| {
            ask(&path, &Request::Set { name: name.into(), value: value.into() })
        };
        let [done] = set("keepalive", "5ms").unwrap().try_into().unwrap();
        assert_eq!(
            (done.name.as_str(), done.value.as_str(), done.online),
            ("keepalive", "5ms", true)
        );
        let refused = set("nothing", "1").unwrap_err();
        assert_eq!(refused.to_string(), "no parameter \"nothing\"");
        // A line break in an argument makes the request malformed.
        let garbled = set("keepalive\nlist", "1").unwrap_err();
        assert_eq!(garbled.to_string(), "no such request");
        over.store(true, Ordering::Relaxed);
    });
    drop(control);
    assert!(matches!(ask(&path, &Request::List), Err(ControlError::Io { .. })));
    assert!(scratch.files().is_empty());
}

/// The process of another user that the test below starts. It sends a request without permission.
#[test]
#[ignore = "the test of other users' requests starts it"]
fn another_user_asks() {
    let path = std::env::var_os("WEFT_STAT_TEST_CONTROL").expect("the other test sets the path");
    let request = Request::Set { name: "keepalive".into(), value: "1s".into() };
    match ask(path.as_ref(), &request) {
        Err(ControlError::Refused(why)) => println!("refused: {why}"),
        other => println!("{other:?}"),
    }
}

/// The attacker is another user of the machine who may enter the folder.
#[test]
fn a_node_takes_no_orders_of_other_users() {
    const NOBODY: u32 = 65_534;
    let scratch = Scratch::new("others");
    let file = scratch.0.path().join("1-0.node");
    fs::write(&file, "").unwrap();
    let control = Control::beside(&file).unwrap();
    let path = file.with_extension("control");
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600, "whatever the umask is");
    if !rustix::process::geteuid().is_root() {
        return weft_testkit::skip("orders of another user", "only root becomes another user");
    }
    // The permissions are too wide by mistake.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(scratch.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Other users may not enter the folder of this program.
    let program = scratch.0.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut other = Command::new(&program);
    other.args(["--exact", "another_user_asks", "--ignored", "--nocapture"]);
    other.env("WEFT_STAT_TEST_CONTROL", &path).current_dir("/").uid(NOBODY);
    let done = AtomicBool::new(false);
    let (output, asked) = std::thread::scope(|scope| {
        let node = scope.spawn(|| {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                control.serve(|_| {
                    asked += 1;
                    Ok::<_, Infallible>(vec![])
                });
                weft_testkit::pause();
            }
            asked
        });
        let output = other.output().unwrap();
        done.store(true, Ordering::Relaxed);
        (String::from_utf8_lossy(&output.stdout).into_owned(), node.join().unwrap())
    });
    assert!(output.contains("takes no orders from user 65534"), "{output}");
    assert_eq!(asked, 0);
}
