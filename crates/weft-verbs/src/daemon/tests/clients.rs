//! Tests of clients' rights, and of the removal of their objects.

use weft_rnic::{
    Access, Attributes, Data, Operation, QueuePairNumber, QueuePairRequest, Remote, SendRequest,
    State, Status,
};

use super::*;
use crate::attach::{PROTOCOL, Refusal};

#[test]
fn the_objects_of_a_client_are_removed_with_it() {
    let daemon = Running::start();
    daemon.make("a");
    let mut guest = daemon.attach("a");
    guest.make_objects();
    let used = daemon.used("a");
    let one = Amounts {
        processes: 1,
        domains: 1,
        regions: 1,
        completion_queues: 1,
        shared_receive_queues: 0,
        queue_pairs: 1,
    };
    assert_eq!(used, one);
    assert_eq!(daemon.admin().show("a").unwrap().processes, [std::process::id()]);
    drop(guest);
    until("its end", || daemon.used("a") == Amounts::NONE);
}

#[test]
fn a_library_of_another_version_is_refused_with_the_reason() {
    let daemon = Running::start();
    daemon.make("a");
    let mut caller = Caller::connect(&daemon.path).unwrap();
    let probe = Probe { address: 0, value: 0 };
    let request = Request::Attach { name: "a".into(), probe, protocol: PROTOCOL + 1, rings: None };
    match caller.call(&request, &[]) {
        Err(CallError::Refused { errno: libc::EPROTO, reason }) => {
            assert!(reason.contains("another version"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_about_others_objects_are_refused() {
    let daemon = Running::start();
    daemon.make("a");
    daemon.make("b");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("b"));
    let (of_a, of_b) = (a.make_objects(), b.make_objects());
    let attributes = Attributes { state: Some(State::Error), ..Attributes::default() };
    let with = |change: fn(&mut QueuePairRequest, &TestObjects)| {
        let mut request = of_b.request;
        change(&mut request, &of_a);
        Command::CreateQp(request)
    };
    for command in [
        Command::CloseContext(of_a.context),
        Command::AllocateDomain(of_a.context),
        Command::CreateCq(of_a.context, 1),
        Command::DeallocateDomain(of_a.domain),
        Command::Deregister(of_a.key),
        Command::Reregister { key: of_a.key, domain: Some(of_b.domain), place: None, access: None },
        Command::Reregister { key: of_b.key, domain: Some(of_a.domain), place: None, access: None },
        Command::DestroyCq(of_a.cq),
        Command::ModifyQp(of_a.qp, attributes),
        Command::QueryQp(of_a.qp),
        Command::DestroyQp(of_a.qp),
        with(|request, of_a| request.domain = of_a.domain),
        with(|request, of_a| request.send_cq = of_a.cq),
        with(|request, of_a| request.receive_cq = of_a.cq),
    ] {
        assert_eq!(b.command(command), Err(libc::EINVAL), "{command:?}");
    }
    assert_eq!(a.command(Command::Deregister(of_a.key)), Ok(Reply::Done), "it was left alone");
}

#[test]
fn only_a_client_that_posts_to_another_s_queue_is_ended() {
    let daemon = Running::start();
    daemon.make("a");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("a"));
    let (of_a, _of_b) = (a.make_objects(), b.make_objects());
    let request = SendRequest::new(1, Operation::Send, Data::Gather(&[]));
    b.post(&Work::Send(of_a.qp, Posted::numbered(1, &request)));
    until("its end", || b.is_ended());
    assert!(!a.is_ended());
    assert_eq!(daemon.used("a").processes, 1);
}

/// Keys are numbers that a program can guess: another tenant's key must give no access.
#[test]
fn another_s_key_is_refused_and_nothing_is_written() {
    let daemon = Running::start();
    daemon.make("a");
    daemon.make("b");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("b"));
    let (of_a, of_b) = (a.make_objects(), b.make_objects());
    of_b.memory[0].store(7, Ordering::Relaxed);
    let other = QueuePairNumber(b.number(Command::CreateQp(of_b.request)));
    b.connect(of_b.context, of_b.qp, other);
    // The same operation with its own key works.
    b.write(&of_b, Remote { address: of_b.address() + 64, rkey: of_b.key });
    assert_eq!(b.completed(), Status::Success);
    assert_eq!(of_b.memory[64].load(Ordering::Relaxed), 7);
    b.write(&of_b, Remote { address: of_a.address(), rkey: of_a.key });
    assert_eq!(b.completed(), Status::RemoteAccess);
    assert_eq!(of_a.memory[0].load(Ordering::Relaxed), 0);
    assert!(!a.is_ended() && !b.is_ended());
}

/// A program unmaps memory that it registered: its device ends, and no peer gets an acknowledgement of a write.
#[test]
fn unmapped_memory_ends_the_client_that_registered_it() {
    let daemon = Running::start();
    daemon.make("a");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("a"));
    let (_of_a, of_b) = (a.make_objects(), b.make_objects());
    let other = QueuePairNumber(b.number(Command::CreateQp(of_b.request)));
    b.connect(of_b.context, of_b.qp, other);
    // No process has this page.
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let gone = Region { address: 4096, length: 64, iova: 4096, access };
    let rkey = b.number(Command::Register(of_b.domain, gone));
    b.write(&of_b, Remote { address: 4096, rkey });
    until("its end", || b.is_ended());
    let mut record = Vec::new();
    while b.notices.pop(&b.page, &mut record).unwrap() {
        let notice: Notice = decode(&record).unwrap();
        let done = matches!(notice, Notice::Completion(_, done) if done.status == Status::Success);
        assert!(!done, "{notice:?}");
    }
    assert!(!a.is_ended());
}

#[test]
fn limits_hold_for_all_processes_of_a_device_together() {
    let daemon = Running::start();
    let limits = Amounts { processes: 2, regions: 3, ..Amounts::default() };
    daemon.admin().create("a", None, limits).unwrap();
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("a"));
    let refused = Guest::attach(Caller::connect(&daemon.path).unwrap(), "a").err().unwrap();
    assert!(matches!(refused, CallError::Refused { errno: libc::EUSERS, .. }), "{refused}");
    let (_of_a, of_b) = (a.make_objects(), b.make_objects());
    let region = Region { address: 4096, length: 1, iova: 0, access: Access::NONE };
    let register = Command::Register(of_b.domain, region);
    let key = b.number(register);
    assert_eq!(b.command(register), Err(libc::ENOMEM));
    assert_eq!(b.command(Command::Deregister(key)), Ok(Reply::Done));
    assert!(b.command(register).is_ok());
}

/// A user tries several devices, each with all that a device may have.
#[test]
fn the_quota_of_queue_pairs_is_for_all_devices_of_a_user() {
    let mut settings = DaemonSettings::default();
    settings.set("queue-pairs-per-user", "3").unwrap();
    // Every user has a quota, whichever user runs the test.
    let daemon = Running::start_with(settings.clone(), |daemon| {
        daemon.quotas = Quotas::new(&settings.quotas, daemon.host.device.limits(), None);
    });
    daemon.make("a");
    daemon.make("b");
    let (mut a, mut b) = (daemon.attach("a"), daemon.attach("b"));
    let (of_a, of_b) = (a.make_objects(), b.make_objects());
    let third = a.number(Command::CreateQp(of_a.request));
    let refused = b.caller.call(&Request::Command(Command::CreateQp(of_b.request)), &[]);
    let Err(CallError::Refused { errno: libc::ENOMEM, reason }) = refused else {
        panic!("{refused:?}")
    };
    assert!(reason.contains("queue-pairs-per-user"), "{reason}");
    let shown = daemon.admin().show("a").unwrap().daemon;
    let row = shown.iter().find(|(name, _)| name.starts_with("queue pairs of user"));
    assert_eq!(row.map(|(_, value)| value.as_str()), Some("3 of 3"));
    a.command(Command::DestroyQp(QueuePairNumber(third))).unwrap();
    assert!(b.command(Command::CreateQp(of_b.request)).is_ok());
}

/// A process opens its device again and again, until no other on the host can.
#[test]
fn the_quota_of_contexts_is_for_all_processes_of_a_user() {
    let mut settings = DaemonSettings::default();
    settings.set("contexts-per-user", "3").unwrap();
    // Every user has a quota, whichever user runs the test.
    let daemon = Running::start_with(settings.clone(), |daemon| {
        daemon.quotas = Quotas::new(&settings.quotas, daemon.host.device.limits(), None);
    });
    daemon.make("a");
    let (mut one, mut other) = (daemon.attach("a"), daemon.attach("a"));
    let first = one.number(Command::OpenContext);
    (0..2).for_each(|_| _ = other.number(Command::OpenContext));
    let refused = one.caller.call(&Request::Command(Command::OpenContext), &[]);
    let Err(CallError::Refused { errno: libc::ENOMEM, reason }) = refused else {
        panic!("{refused:?}")
    };
    assert!(reason.contains("contexts-per-user"), "{reason}");
    let shown = daemon.admin().show("a").unwrap().daemon;
    let row = shown.iter().find(|(name, _)| name.starts_with("contexts of user"));
    assert_eq!(row.map(|(_, value)| value.as_str()), Some("3 of 3"));
    one.command(Command::CloseContext(Context(first))).unwrap();
    assert!(other.command(Command::OpenContext).is_ok());
}

/// A user opens connections until no other on the host can.
#[test]
fn a_user_has_half_of_the_connections_and_another_user_still_connects() {
    let path = std::env::temp_dir().join(format!("weft-half-{}.sock", std::process::id()));
    let mut daemon = Daemon::open(&path, DaemonSettings::default()).unwrap();
    daemon.max_clients = 5;
    let mut connect = |user| {
        let (socket, other) = Socket::pair().unwrap();
        daemon.admit(socket, user, 1);
        refusal(&other).map_or(Ok(other), Err)
    };
    let hostile: Vec<_> = (0..3).map(|_| connect(1000).unwrap()).collect();
    let (errno, reason) = connect(1000).unwrap_err();
    assert_eq!(errno, libc::EUSERS);
    assert!(reason.contains("user 1000 has 3 connections"), "{reason}");
    assert!(reason.contains("one user may have 3") && reason.contains("ulimit -n"), "{reason}");
    let others = [connect(1001).unwrap(), connect(1001).unwrap()];
    for user in [1001, 1002, 0] {
        let (_, reason) = connect(user).unwrap_err();
        assert!(reason.contains("the daemon has 5 connections"), "{reason}");
    }
    assert!(hostile.iter().chain(&others).all(|socket| refusal(socket).is_none()));
    assert_eq!(daemon.clients.len(), 5);
}

/// Returns the reason for which the daemon closed a connection; `None` if it is open.
fn refusal(socket: &Socket) -> Option<(i32, String)> {
    let mut message = Vec::new();
    if socket.receive(&mut message, true, false).is_err() {
        return None;
    }
    let Some(Err(refusal)) = decode::<Result<Answer, Refusal>>(&message) else { panic!() };
    assert!(matches!(socket.receive(&mut message, true, false), Ok(None)), "it is closed");
    Some((refusal.errno, refusal.reason))
}

/// The request may be sent before the connection is closed or after it.
#[test]
fn a_process_without_a_place_is_refused_with_the_reason() {
    let daemon = Running::start_with(DaemonSettings::default(), |daemon| daemon.max_clients = 1);
    let first = daemon.admin();
    for _ in 0..100 {
        let mut caller = Caller::connect(&daemon.path).unwrap();
        match caller.call(&Request::List { after: String::new() }, &[]) {
            Err(CallError::Refused { errno: libc::EUSERS, reason }) => {
                assert!(reason.contains("has 1 connections"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    drop(first);
}

/// A hostile process names a host before another does, from an address that gets no answers.
#[test]
fn a_route_of_one_process_does_not_affect_another() {
    let daemon = Running::start();
    daemon.make("a");
    let (mut hostile, mut honest) = (daemon.attach("a"), daemon.attach("a"));
    let (of_hostile, of_honest) = (hostile.make_objects(), honest.make_objects());
    let describe = Request::Describe { name: "a".into() };
    let Ok((Answer::Description(found), _)) = honest.caller.call(&describe, &[]) else {
        panic!("there is no description");
    };
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let wrong = found.addresses.iter().position(|row| row.ip.is_ipv4() && row.ip != loopback);
    let Some(wrong) = wrong else {
        return weft_testkit::skip("routes of processes", "no address but the loopback's");
    };
    let row = u32::try_from(wrong).unwrap();
    hostile.command(Command::Route(of_hostile.context, loopback, row)).unwrap();
    let stolen = Command::Route(of_honest.context, loopback, row);
    assert_eq!(hostile.command(stolen), Err(libc::EINVAL), "another's context");
    // The peer's queue pair accepts connections only from its configured peer address.
    let other = QueuePairNumber(honest.number(Command::CreateQp(of_honest.request)));
    honest.connect(of_honest.context, of_honest.qp, other);
    honest.write(&of_honest, Remote { address: of_honest.address(), rkey: of_honest.key });
    assert_eq!(honest.completed(), Status::Success);
}

#[test]
fn a_device_in_use_is_deleted_by_force_only() {
    let daemon = Running::start();
    daemon.make("a");
    let mut guest = daemon.attach("a");
    let refused = daemon.admin().delete("a", false).unwrap_err();
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    daemon.admin().delete("a", true).unwrap();
    until("its end", || guest.is_ended());
    assert!(daemon.admin().list().unwrap().is_empty());
}

/// A process without a device would have its queue pairs without any limit.
#[test]
fn an_attached_process_does_not_delete_its_own_device_over_that_connection() {
    let daemon = Running::start();
    daemon.make("a");
    daemon.make("b");
    let mut guest = daemon.attach("a");
    let mut delete = |name: &str| {
        let request = Request::Delete { name: name.into(), force: true };
        guest.caller.call(&request, &[]).map(|(answer, _)| answer)
    };
    let refused = delete("a");
    assert!(matches!(refused, Err(CallError::Refused { errno: libc::EBUSY, .. })), "{refused:?}");
    assert_eq!(daemon.used("a").processes, 1);
    assert_eq!(delete("b").unwrap(), Answer::Done);
    daemon.admin().delete("a", true).unwrap();
    until("its end", || guest.is_ended());
}

#[test]
fn a_long_list_is_split_into_several_messages() {
    let daemon = Running::start();
    let mut admin = daemon.admin();
    for number in 0..2_000 {
        admin.create(&format!("d{number}"), None, Amounts::default()).unwrap();
    }
    assert_eq!(admin.list().unwrap().len(), 2_000);
}

#[test]
fn a_second_daemon_is_refused_and_the_socket_of_a_dead_one_replaced() {
    let daemon = Running::start();
    assert!(matches!(
        Daemon::open(&daemon.path, DaemonSettings::default()),
        Err(ServeError::InUse { .. })
    ));
    assert!(daemon.admin().list().is_ok(), "it still serves");
    let left = std::env::temp_dir().join(format!("weft-left-{}.sock", std::process::id()));
    drop(Socket::listen(&left).unwrap());
    assert!(left.exists());
    drop(Daemon::open(&left, DaemonSettings::default()).unwrap());
    assert!(!left.exists());
}
