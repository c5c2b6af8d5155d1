//! etcd's messages and clients, compiled from `proto/etcd.proto`.
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

tonic::include_proto!("etcdserverpb");
