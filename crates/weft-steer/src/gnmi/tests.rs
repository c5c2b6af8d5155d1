//! Changes at a server that arbitrates between masters as the specification says (gNMI master arbitration, section 3.2).
#![allow(clippy::disallowed_methods, reason = "the server is real: it has a thread")]

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use h2::RecvStream;
use h2::server::{SendResponse, handshake};
use prost::Message;
use prost::bytes::Bytes;
use tonic::Code;
use tonic::codegen::http::{HeaderMap, Request, Response};

use super::proto::gnmi::SetRequest;
use super::proto::gnmi_ext::extension::Ext;
use super::{GnmiSettings, change, claim, delete};
use crate::lease::Grant;
use crate::{Method, RouterEntry};

/// The accepted Sets: their election ids, and their numbers of changes.
type Sets = Arc<Mutex<Vec<(Grant, usize)>>>;

/// Starts a server on a thread of its own. Returns its address.
fn start(sets: Sets) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let mut connection = handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond, Arc::clone(&sets)));
                }
            }
        });
    });
    address
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, sets: Sets) {
    let (mut body, mut message) = (request.into_body(), vec![]);
    while let Some(part) = body.data().await {
        message.extend_from_slice(&part.unwrap());
    }
    // Five bytes come before a message of gRPC.
    let set = SetRequest::decode(&message[5..]).unwrap();
    let is_accepted = is_accepted(&set, &mut sets.lock().unwrap());
    let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(response, false).unwrap();
    if is_accepted {
        stream.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
    }
    let code = if is_accepted { Code::Ok } else { Code::PermissionDenied };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", i32::from(code).into());
    stream.send_trailers(trailers).unwrap();
}

/// Accepts a Set whose election id is not smaller than any before.
fn is_accepted(set: &SetRequest, sets: &mut Vec<(Grant, usize)>) -> bool {
    let [extension] = &set.extension[..] else { panic!("{set:?}") };
    let Some(Ext::MasterArbitration(it)) = &extension.ext else { panic!("{set:?}") };
    let id = it.election_id.unwrap();
    let grant = Grant { term: id.high, nanos: id.low };
    let is_greatest = sets.iter().all(|(other, _)| *other <= grant);
    if is_greatest {
        sets.push((grant, set.delete.len() + set.replace.len()));
    }
    is_greatest
}

#[test]
fn a_router_refuses_what_a_former_leader_still_sends() {
    let sets = Sets::default();
    let address = start(Arc::clone(&sets));
    let settings = GnmiSettings { arbitration: true, ..GnmiSettings::plain(address) };
    let entry = RouterEntry {
        name: "l0".into(),
        reach: vec![],
        agent: [10, 0, 0, 1].into(),
        sources: vec![],
        apply: Method::Gnmi(settings.clone().into()),
        ports: vec![],
    };
    let edits = [delete(&settings, "10.2.0.2/32".parse().unwrap())];
    let grant = |term, nanos| Grant { term, nanos };
    change(&entry, &settings, &edits, grant(7, 50)).unwrap();
    // The next leader keeps its lease at a host whose clock is behind.
    claim(&entry, &settings, grant(9, 10)).unwrap();
    let error = change(&entry, &settings, &edits, grant(7, 60)).unwrap_err().to_string();
    assert!(error.contains("PermissionDenied"), "{error}");
    let error = claim(&entry, &settings, grant(7, 70)).unwrap_err().to_string();
    assert!(error.contains("become master"), "{error}");
    change(&entry, &settings, &edits, grant(9, 11)).unwrap();
    assert_eq!(*sets.lock().unwrap(), [(grant(7, 50), 1), (grant(9, 10), 0), (grant(9, 11), 1)]);
}
