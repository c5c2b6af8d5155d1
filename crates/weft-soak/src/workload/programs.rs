//! The workloads that are programs of their own, because they load Weft's libibverbs: this program, under `weft run`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::Workloads;
use crate::HOSTS;
use crate::account::Account;
use crate::daemons::{DEVICE, controllers, device_socket};
use crate::journal::Journal;
use crate::shared::Shared;
use crate::supervisor::{Supervisor, Unit};

/// The TCP ports by which channels and ranks find each other.
const CHANNEL: &str = "7100";
const RENDEZVOUS: &str = "7200";

/// Starts a channel from the first host to the second on the daemons' devices, and a rank on each host.
///
/// # Errors
/// Returns an error if a program cannot be started.
pub(super) fn start(
    shared: &Arc<Shared>,
    supervisor: &Supervisor,
    journal: &Arc<Journal>,
    workloads: &mut Workloads,
) -> Result<()> {
    let server = Account::open(journal, "channel server h1");
    supervisor.add(program(shared, &server, 1, true, &["channel-server", CHANNEL])?)?;
    let client = Account::open(journal, "channel h0-h1");
    let to = format!("{}:{CHANNEL}", shared.addresses[1]);
    supervisor.add(program(shared, &client, 0, true, &["channel-client", &to])?)?;
    workloads.accounts.push(client);
    for rank in 0..HOSTS {
        let account = Account::open(journal, format!("reduce h{rank}"));
        let at = format!("{}:{RENDEZVOUS}", shared.addresses[0]);
        let (own, ranks) = (shared.addresses[rank].to_string(), HOSTS.to_string());
        let words = ["rank", &rank.to_string(), &ranks, &at, &own, &controllers()];
        supervisor.add(program(shared, &account, rank, false, &words)?)?;
        workloads.accounts.push(account);
    }
    Ok(())
}

/// Returns this program as a workload on a host.
fn program(
    shared: &Shared,
    account: &Account,
    host: usize,
    on_daemon: bool,
    words: &[&str],
) -> Result<Unit> {
    let own = std::env::current_exe()?.display().to_string();
    let mut line = vec![shared.weft.display().to_string(), "run".into()];
    if on_daemon {
        line.extend(["--device", DEVICE, "--socket"].map(str::to_owned));
        line.push(device_socket(shared, host));
    }
    line.extend(["--".to_owned(), own, "workload".to_owned()]);
    line.extend(words.iter().map(|&word| word.to_owned()));
    let token = shared.text("token");
    let variables = [
        ("WEFT_STAT", shared.text(&format!("h{host}/stat"))),
        ("WEFT_JOB_TOKEN_FILE", token.clone()),
        ("WEFT_CONTROLLER_TOKEN_FILE", token),
    ];
    Ok(Unit {
        name: account.name.clone(),
        namespace: shared.hosts[host].clone(),
        words: line,
        environment: variables.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        restart_after: Duration::from_millis(500),
        cgroup: None,
        account: Some(account.clone()),
    })
}
