//! Tests of many devices: those at work among thousands, their limits, their counters, and a quiet client.

use std::net::UdpSocket;

use super::*;
use crate::attach::{DeviceLimits, Names};
use crate::engine::{DeviceClient, Done};

/// Attaches to devices and connects them in pairs.
fn pairs(daemon: &Running, names: &[String]) -> Vec<[DeviceClient; 2]> {
    let client = |name: &String| DeviceClient::open(&daemon.path, name, 4096).unwrap();
    let pair = |two: &[String]| {
        let [one, other] = [client(&two[0]), client(&two[1])];
        one.connect(&daemon.path, &two[0], &other.address()).unwrap();
        other.connect(&daemon.path, &two[1], &one.address()).unwrap();
        [one, other]
    };
    names.chunks(2).map(pair).collect()
}

/// Waits for a request of a client, and returns it.
fn next(client: &DeviceClient) -> Done {
    let mut done = None;
    until("a completion", || {
        client.poll(1, |it| done = Some(it)).unwrap();
        done.is_some()
    });
    done.unwrap()
}

/// Every message arrives at its own peer, and a hostile device among them opens none of the others' objects.
#[test]
fn two_hundred_of_five_thousand_devices_are_at_work_and_each_counts_its_own() {
    let daemon = Running::start();
    let mut admin = daemon.admin();
    admin.create(Names::numbered("vm", 0, 5_000), None, DeviceLimits::default()).unwrap();
    // All over the table.
    let names: Vec<String> = (0..200).map(|number| format!("vm-{}", number * 24 + 7)).collect();
    let pairs = pairs(&daemon, &names);
    let hostile = DeviceClient::open(&daemon.path, "vm-0", 4096).unwrap();
    for (number, [one, other]) in pairs.iter().enumerate() {
        one.fill(u8::try_from(number % 251).unwrap() + 1);
        other.receive(7, (2048, 256)).unwrap();
        one.write(1, (0, 1024), &other.address(), 1024).unwrap();
        one.send(2, (0, 256)).unwrap();
        assert_eq!(hostile.intrude(&other.address()), [""; 0]);
    }
    for (number, [one, other]) in pairs.iter().enumerate() {
        for (client, number, receives) in [(one, 1, false), (one, 2, false), (other, 7, true)] {
            assert_eq!(next(client), Done { number, receives, failure: None });
        }
        let expected = u8::try_from(number % 251).unwrap() + 1;
        for (at, expected) in [(1023, 0), (1024, expected), (2047, expected), (2303, expected)] {
            assert_eq!(other.byte(at), expected, "byte {at} of pair {number}");
        }
    }
    for two in names.chunks(2) {
        let [one, other] = [&two[0], &two[1]].map(|name| admin.show(name).unwrap());
        assert_eq!((one.counters.requests_posted, one.counters.bytes_posted), (2, 1280));
        assert_eq!((other.counters.messages_received, other.counters.bytes_received), (1, 256));
        assert_eq!(
            (one.used.queue_pairs, one.memory, other.counters.requests_failed),
            (1, 4096, 0)
        );
    }
    let totals = admin.totals().unwrap();
    assert_eq!((totals.devices, totals.attached, totals.queue_pairs), (5_000, 201, 201));
    assert_eq!((totals.counters.requests_posted, totals.memory), (200, 201 * 4096));
    assert_eq!(admin.list_used(10).unwrap().len(), 10);
    assert!(admin.delete(Names::numbered("vm", 0, 5_000), false).is_err(), "some are in use");
    drop((pairs, hostile));
    until("their end", || daemon.admin().totals().unwrap().attached == 0);
    assert_eq!(admin.totals().unwrap().counters.requests_posted, 200, "the counts stay");
    admin.delete(Names::numbered("vm", 0, 5_000), false).unwrap();
    assert_eq!(admin.totals().unwrap(), crate::Totals::default());
}

/// With many clients at work each acknowledgement comes alone. If a turn read fewer than leave in one, the others would wait longer
/// and longer, until their senders gave the peers up.
#[test]
fn a_turn_reads_more_datagrams_that_come_alone_than_leave_in_one() {
    let _daemon = Running::start_with(DaemonSettings::default(), |daemon| {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let share = u32::from(daemon.host.driver.sockets.share());
        let to = address_of(IpAddr::from([127, 0, 0, 1]), share << 16);
        let received = |daemon: &Daemon| daemon.host.driver.counters().datagrams_received;
        until("a turn with many datagrams", || {
            for number in 0..512 {
                // No packets, and of lengths that the kernel does not merge.
                sender.send_to(&[0; 7][..1 + number % 7], to).unwrap();
            }
            let before = received(daemon);
            daemon.turn(true);
            received(daemon) - before > daemon.host.driver.budget().packets as u64
        });
    });
}

/// A client that has been quiet for long is not read until it rings.
#[test]
fn a_client_that_was_quiet_is_served_at_once() {
    let daemon = Running::start();
    daemon.make("a");
    let [[one, other]] = <[_; 1]>::try_from(pairs(&daemon, &["a".into(), "a".into()])).unwrap();
    for number in 0..20 {
        // Longer than a client is read without work.
        let quiet = Instant::now();
        until("some milliseconds", || quiet.elapsed() > Duration::from_millis(3));
        one.write(number, (0, 8), &other.address(), 1024).unwrap();
        assert_eq!(next(&one), Done { number, receives: false, failure: None });
    }
}

#[test]
fn the_limit_of_messages_is_for_all_processes_of_a_device_together() {
    let daemon = Running::start();
    let limits = DeviceLimits { messages_per_second: Some(200), ..DeviceLimits::default() };
    daemon.admin().create("a", None, limits).unwrap();
    let names: Vec<String> = vec!["a".into(); 4];
    let pairs = pairs(&daemon, &names);
    let begun = Instant::now();
    for number in 0..40 {
        for [one, other] in &pairs {
            one.write(number, (0, 8), &other.address(), 1024).unwrap();
        }
    }
    for number in 0..40 {
        for [one, _] in &pairs {
            assert_eq!(next(one), Done { number, receives: false, failure: None });
        }
    }
    // Eighty messages, of which three may be ahead.
    assert!(begun.elapsed() > Duration::from_millis(370), "{:?}", begun.elapsed());
    let counters = daemon.admin().show("a").unwrap().counters;
    assert_eq!((counters.requests_posted, counters.requests_failed), (80, 0));
    assert!(counters.waits > 1, "{counters:?}");
}

/// Work that was posted before a command is taken with it, and counts.
#[test]
fn a_command_after_each_message_does_not_evade_the_limit() {
    let daemon = Running::start();
    let limits = DeviceLimits { messages_per_second: Some(200), ..DeviceLimits::default() };
    daemon.admin().create("a", None, limits).unwrap();
    let mut guest = daemon.attach("a");
    let own = guest.make_objects();
    let other = QueuePairNumber(guest.number(Command::CreateQp(own.request)));
    guest.connect(own.context, own.qp, other);
    let begun = Instant::now();
    for _ in 0..40 {
        guest.write(&own, Remote { address: own.address() + 64, rkey: own.key });
        guest.command(Command::QueryQp(own.qp)).unwrap();
    }
    for _ in 0..40 {
        assert_eq!(guest.completed(), Status::Success);
    }
    assert!(begun.elapsed() > Duration::from_millis(170), "{:?}", begun.elapsed());
    assert!(!guest.is_ended());
}

#[test]
fn the_limit_of_memory_is_for_all_regions_of_a_device_wherever_they_are() {
    let daemon = Running::start();
    let limits = DeviceLimits { memory: Some(10_000), ..DeviceLimits::default() };
    daemon.admin().create("a", None, limits).unwrap();
    let mut guest = daemon.attach("a");
    let own = guest.make_objects();
    let region = |length| {
        let access = Access::LOCAL_WRITE;
        Region { address: own.address(), length, iova: 0, access }
    };
    let register = |length| Command::Register(own.domain, region(length));
    assert_eq!(guest.command(register(5_905)), Err(libc::ENOMEM));
    assert_eq!(guest.command(register(u64::MAX)), Err(libc::ENOMEM));
    let key = guest.number(register(5_904));
    assert_eq!(guest.command(register(1)), Err(libc::ENOMEM));
    // A region that is moved to another context counts there.
    let context = Context(guest.number(Command::OpenContext));
    let domain = ProtectionDomain(guest.number(Command::AllocateDomain(context)));
    let change = |length: Option<u64>| Command::Reregister {
        key,
        domain: Some(domain),
        place: length.map(|length| (own.address(), length)),
        access: None,
    };
    assert_eq!(guest.command(change(Some(5_905))), Err(libc::ENOMEM));
    guest.command(change(None)).unwrap();
    guest.command(change(Some(100))).unwrap();
    assert_eq!(daemon.admin().show("a").unwrap().memory, 4_196);
    assert_eq!(daemon.used("a").regions, 2);
    guest.command(Command::CloseContext(own.context)).unwrap();
    assert_eq!(daemon.admin().show("a").unwrap().memory, 100);
    guest.command(Command::Deregister(key)).unwrap();
    let state = daemon.admin().show("a").unwrap();
    assert_eq!((state.memory, state.used.regions, state.counters.commands_refused), (0, 0, 4));
}

/// A daemon that is replaced serves programs that were started before.
#[test]
fn requests_of_former_programs_are_answered() {
    let daemon = Running::start();
    daemon.make("a");
    let mut caller = Caller::connect(&daemon.path).unwrap();
    let limits = Amounts { queue_pairs: 3, ..Amounts::default() };
    let mut call = |request| caller.call(&request, &[]).map(|(answer, _)| answer);
    let create = Request::Create { name: "b".into(), owner: None, limits };
    assert_eq!(call(create).unwrap(), Answer::Done);
    let Answer::Devices(listed) = call(Request::List { after: String::new() }).unwrap() else {
        panic!("it is a list")
    };
    assert_eq!(listed.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let shown = call(Request::Show { name: "b".into() }).unwrap();
    assert!(matches!(shown, Answer::Device(state) if state.name == "b"));
    let delete = Request::Delete { name: "b".into(), force: false };
    assert_eq!(call(delete).unwrap(), Answer::Done);
}

/// The state file is in a folder that cannot be made.
#[test]
fn a_daemon_that_can_keep_no_devices_does_not_start() {
    let mut settings = DaemonSettings::default();
    settings.set("state", "/proc/weft/a.state").unwrap();
    let path = std::env::temp_dir().join(format!("weft-daemon-kept-{}.sock", std::process::id()));
    let refused = Daemon::open(&path, settings).unwrap_err().to_string();
    assert!(refused.contains("/proc/weft/a.state"), "{refused}");
    assert!(!path.exists());
}

/// The file is in use for as long as the test wants, as if its disk were slow.
#[test]
fn a_change_that_a_slow_disk_takes_too_late_is_not_made_and_later_ones_are() {
    let state = std::env::temp_dir().join(format!("weft-slow-{}.state", std::process::id()));
    let start = || {
        let mut settings = DaemonSettings::default();
        settings.set("state", state.to_str().unwrap()).unwrap();
        let mut kept = None;
        let daemon = Running::start_with(settings, |daemon| kept = daemon.kept.clone());
        (daemon, kept.unwrap())
    };
    let create = |daemon: &Running, name: &str| daemon.admin().create(name, None, Amounts::NONE);
    let (daemon, kept) = start();
    create(&daemon, "a").unwrap();
    let stall = kept.stall();
    for name in ["b", "c"] {
        let refused = create(&daemon, name).unwrap_err().to_string();
        assert!(refused.contains("the disk does not answer"), "{refused}");
    }
    assert_eq!(daemon.admin().list().unwrap().len(), 1, "others are served");
    drop(stall);
    until("the disk answers", || create(&daemon, "d").is_ok());
    let names = |daemon: &Running| {
        let listed = daemon.admin().list().unwrap();
        listed.into_iter().map(|device| device.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&daemon), ["a", "d"]);
    drop((daemon, kept));
    let (daemon, _kept) = start();
    assert_eq!(names(&daemon), ["a", "d"]);
    let lock = state.with_extension("state.lock");
    [state.clone(), lock].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}
