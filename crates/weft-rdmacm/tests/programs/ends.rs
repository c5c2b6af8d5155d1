//! Programs whose two ends have different arguments. Each gets its port with `-p`, and the second one also the first
//! one's address as its last argument.

use std::process::{Child, Command};

use crate::pair::{Printed, Stage, alone, finish, next_port, start, until_listening};

/// The only port of udaddy.
pub(crate) const UDADDY_PORT: u16 = 7174;

/// Runs both ends; both must succeed.
pub(crate) fn connect(stage: &impl Stage, server: &str, client: &str) -> Printed {
    alone(|| succeed(both(stage, server, client)))
}

/// Does the same for a program that always uses one port.
pub(crate) fn connect_at(stage: &impl Stage, port: u16, server: &str, client: &str) -> Printed {
    alone(|| succeed(both_at(stage, (port, &[]), server, client)))
}

fn succeed((server, client): (Child, (bool, String))) -> Printed {
    let server = finish(server);
    assert!(client.0 && server.0, "client: {}\nserver: {}", client.1, server.1);
    Printed { server: server.1, client: client.1 }
}

/// Runs both ends of a program whose server never ends; returns the client's output.
pub(crate) fn serve(stage: &impl Stage, server: &str, client: &str) -> String {
    alone(|| {
        let (server, client) = both(stage, server, client);
        let killed = Command::new("kill").arg(server.id().to_string()).status();
        assert!(killed.is_ok_and(|status| status.success()), "the server ended by itself");
        let server = finish(server);
        assert!(client.0, "client: {}\nserver: {}", client.1, server.1);
        client.1
    })
}

/// Returns the server, and the client's success and output.
fn both(stage: &impl Stage, server: &str, client: &str) -> (Child, (bool, String)) {
    let port = next_port();
    let port_arguments = ["-p".to_owned(), port.to_string()];
    both_at(stage, (port, &port_arguments), server, client)
}

/// Does the same at a port that the programs know or get by these arguments.
fn both_at(
    stage: &impl Stage,
    (port, port_arguments): (u16, &[String]),
    server: &str,
    client: &str,
) -> (Child, (bool, String)) {
    let (address, port_arguments) = (stage.server(), port_arguments.iter().map(String::as_str));
    let server: Vec<&str> = server.split_whitespace().chain(port_arguments.clone()).collect();
    let client: Vec<&str> =
        client.split_whitespace().chain([address.as_str()]).chain(port_arguments).collect();
    let mut server = start(stage, false, &server);
    until_listening(&mut server, port);
    (server, finish(start(stage, true, &client)))
}
