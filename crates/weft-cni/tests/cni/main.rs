//! The plugin `weft-cni` as container runtimes call it, with containers' namespaces on two hosts of an overlay. Needs
//! root; without it each test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

mod containerd;
mod harness;
mod lost_answers;
mod manifests;
mod pods;
mod runtimes;
mod verbs;
