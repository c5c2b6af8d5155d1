//! Two network namespaces with four paths between them, of which one loses 1 % of the packets.

use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_lab::{Direction, Impairment, Lab, LabSpec, Probability};

use crate::pair::Stage;

/// Two hosts of a lab.
pub(crate) struct TwoHosts(pub(crate) Lab);

impl Stage for TwoHosts {
    fn server(&self) -> String {
        self.0.fabric().address(0).to_string()
    }

    fn start(&self, second: bool, command: &mut Command) -> Child {
        self.0.spawn(if second { "h1" } else { "h0" }, command).unwrap()
    }
}

/// Returns two hosts, or `None` after printing the reason. Labs are set up one at a time.
pub(crate) fn two_hosts(test: &str) -> Option<TwoHosts> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if weft_testkit::lab_is_missing(test, &[]) {
        return None;
    }
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut lab = Lab::up(&LabSpec::named(format!("v{}-{number}", std::process::id()))).unwrap();
    let loss: Probability = "1%".parse().unwrap();
    let lossy = Impairment { loss, ..Impairment::default() };
    lab.impair("l0-s1", Direction::Both, &lossy).unwrap();
    Some(TwoHosts(lab))
}
