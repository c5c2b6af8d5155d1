//! Two hosts with a switch between them: three network namespaces, joined by two cables.

use std::net::UdpSocket;
use std::process::Command;

use rustix::net::netdevice::name_to_index;

/// The namespaces. They are deleted when the value is dropped.
pub(crate) struct Wire {
    pub(crate) hosts: [String; 2],
    pub(crate) switch: String,
    /// Indices of the switch's interfaces.
    pub(crate) interfaces: [i32; 2],
}

/// The addresses of the hosts.
pub(crate) const ADDRESSES: [&str; 2] = ["10.99.7.1", "10.99.7.2"];

fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {error}");
}

impl Wire {
    /// Makes the namespaces; `number` distinguishes those of this process.
    pub(crate) fn new(number: u32) -> Self {
        let name = |end: &str| format!("weft-trim-{}-{number}{end}", std::process::id());
        let (hosts, switch) = ([name("a"), name("b")], name("m"));
        for namespace in hosts.iter().chain([&switch]) {
            run("ip", &format!("netns add {namespace}"));
        }
        let mut wire = Self { hosts, switch, interfaces: [0; 2] };
        for (end, address) in ADDRESSES.iter().enumerate() {
            let (host, switch) = (&wire.hosts[end], &wire.switch);
            run(
                "ip",
                &format!("link add up0 netns {host} type veth peer name p{end} netns {switch}"),
            );
            // The switch sees each packet as on a real wire: by itself, its checksum computed.
            run("ip", &format!("netns exec {host} ethtool -K up0 tx off gso off gro off"));
            run("ip", &format!("-n {host} address add {address}/24 dev up0"));
            run("ip", &format!("-n {host} link set up0 up"));
            run("ip", &format!("-n {switch} link set p{end} up"));
            let index = || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                name_to_index(&socket, &format!("p{end}")).unwrap()
            };
            let index = weft_lab::enter(switch, index).unwrap();
            wire.interfaces[end] = i32::try_from(index).unwrap();
        }
        wire
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().chain([&self.switch]) {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).output();
        }
    }
}
