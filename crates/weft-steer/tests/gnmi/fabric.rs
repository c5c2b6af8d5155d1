//! Two leaves and two spines, each with a public gNMI server that has its ports and static routes, and the sFlow of a leaf.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use weft_testkit::{Authority, Issued, Validity};
use weft_wire::sflow::{DatagramWriter, ETHERNET, FlowSample, Interface, RawHeader, Source};

/// The user that the servers know.
const USER: [&str; 2] = ["weft", "a password"];

/// The ports that count sent bytes, and their number in a second: 32 Mb/s and 8 Mb/s.
const SENDS: &str = "e4=4000000,e5=1000000";

/// Returns a program that `scripts/setup.sh gnmi` has built; records the skip if it is missing.
pub(crate) fn program(test: &str, name: &str) -> Option<PathBuf> {
    let me = std::env::current_exe().unwrap();
    // The test is in the folder `debug/deps`.
    let path = me.ancestors().nth(3).unwrap().join("gnmi").join(name);
    if path.exists() {
        return Some(path);
    }
    weft_testkit::skip(test, &format!("no {name} (scripts/setup.sh gnmi)"));
    None
}

/// A folder of certificates and configurations, removed at the end.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) authority: Authority,
    pub(crate) server: Issued,
    pub(crate) client: Issued,
}

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-gnmi-{}-{test}", std::process::id()));
        let authority = Authority::new(&path, "authority");
        let server = authority.issue("server", &["127.0.0.1"], Validity::Current);
        let client = authority.issue("client", &["client"], Validity::Current);
        fs::write(path.join("password"), format!("{}\n", USER[1])).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(path.join("password"), mode).unwrap();
        Self { path, authority, server, client }
    }

    /// Returns the settings of TLS of a router, as TOML.
    pub(crate) fn tls(&self) -> String {
        let Issued { certificate, key } = &self.client;
        let ca = self.authority.certificate.display();
        format!(
            "{{ ca = '{ca}', certificate = '{}', key = '{}' }}",
            certificate.display(),
            key.display()
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Public servers in a process, which is killed at the end.
pub(crate) struct Servers {
    child: Child,
    /// By server, its address.
    pub(crate) addresses: Vec<String>,
}

impl Servers {
    /// Starts gnxi's servers with these configurations. They require a client's certificate and the user's password.
    pub(crate) fn gnxi(program: &Path, folder: &Folder, configurations: &[Value]) -> Self {
        let files = (0..configurations.len()).map(|it| folder.path.join(format!("{it}.json")));
        let files: Vec<PathBuf> = files.collect();
        for (file, configuration) in files.iter().zip(configurations) {
            fs::write(file, configuration.to_string()).unwrap();
        }
        let Issued { certificate, key } = &folder.server;
        let mut child = Command::new(program)
            .arg("-ca")
            .arg(&folder.authority.certificate)
            .arg("-cert")
            .arg(certificate)
            .arg("-key")
            .arg(key)
            .args(["-username", USER[0], "-password", USER[1], "-sends", SENDS])
            .args(&files)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = |line: std::io::Result<String>| {
            line.unwrap().split_once(' ').expect("the file and the address").1.to_owned()
        };
        let addresses: Vec<String> = lines.take(files.len()).map(address).collect();
        assert_eq!(addresses.len(), files.len(), "a server did not start");
        Self { child, addresses }
    }

    /// Starts openconfig/gnmi's fake server, which answers every subscription with these responses (in protobuf's text
    /// form), and a client's certificate.
    pub(crate) fn fake(program: &Path, folder: &Folder, responses: &str) -> Self {
        let file = folder.path.join("fake.textproto");
        fs::write(&file, format!("target: \"l0\"\nfixed: {{ {responses} }}\n")).unwrap();
        // A port that was free a moment ago: the server prints none.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let Issued { certificate, key } = &folder.server;
        let child = Command::new(program)
            .args(["-text", "-port", &port.to_string(), "-config"])
            .arg(&file)
            .arg("-ca_crt")
            .arg(&folder.authority.certificate)
            .arg("-server_crt")
            .arg(certificate)
            .arg("-server_key")
            .arg(key)
            .spawn()
            .unwrap();
        let servers = Self { child, addresses: vec![format!("127.0.0.1:{port}")] };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::net::TcpStream::connect(&servers.addresses[0]).is_err() {
            assert!(std::time::Instant::now() < deadline, "the server does not listen");
            std::thread::yield_now();
        }
        servers
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks a server with gnxi's own client for the static routes of the default instance.
pub(crate) fn gnmi_get(program: &Path, folder: &Folder, address: &str) -> String {
    let Issued { certificate, key } = &folder.client;
    let path = "/network-instances/network-instance[name=default]/protocols\
                /protocol[identifier=STATIC][name=static]";
    let output = Command::new(program)
        .args(["-target_addr", address, "-target_name", "127.0.0.1", "-xpath", path])
        .args(["-username", USER[0], "-password", USER[1], "-ca"])
        .arg(&folder.authority.certificate)
        .arg("-cert")
        .arg(certificate)
        .arg("-key")
        .arg(key)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the state of a router: its ports, numbered from 1, and static routes by ports with the neighbours' addresses.
pub(crate) fn router(ports: &[&str], routes: &[(&str, &[(&str, &str)])]) -> Value {
    let interface = |(index, name): (usize, &&str)| {
        json!({
            "name": name,
            "config": { "name": name, "type": "iana-if-type:ethernetCsmacd" },
            "state": {
                "ifindex": index + 1, "admin-status": "UP", "oper-status": "UP",
                "counters": { "out-octets": "1000" },
            },
        })
    };
    let route = |&(prefix, hops): &(&str, &[(&str, &str)])| {
        let hop = |(index, (port, via)): (usize, &(&str, &str))| {
            let index = index.to_string();
            json!({
                "index": index,
                "config": { "index": index, "next-hop": via },
                "interface-ref": { "config": { "interface": port } },
            })
        };
        let hops: Vec<Value> = hops.iter().enumerate().map(hop).collect();
        json!({ "prefix": prefix, "config": { "prefix": prefix }, "next-hops": { "next-hop": hops } })
    };
    let interfaces: Vec<Value> = ports.iter().enumerate().map(interface).collect();
    let routes: Vec<Value> = routes.iter().map(route).collect();
    json!({
        "interfaces": { "interface": interfaces },
        "network-instances": { "network-instance": [{
            "name": "default",
            "config": { "name": "default" },
            "protocols": { "protocol": [{
                "identifier": "STATIC",
                "name": "static",
                "config": { "identifier": "STATIC", "name": "static" },
                "static-routes": { "static": routes },
            }] },
        }] },
    })
}

/// The states of the routers l0, l1, s0 and s1. Two hosts are behind each leaf: 10.1.0.2 and .3, 10.2.0.2 and .3.
pub(crate) fn leaf_spine() -> [Value; 4] {
    let leaf = |own: u8, other: u8| {
        let [a, b] = [2, 3].map(|host| format!("10.{own}.0.{host}"));
        let [to_a, to_b] = [&a, &b].map(|it| format!("{it}/32"));
        let (by_a, by_b) = ([("e0", a.as_str())], [("e1", b.as_str())]);
        let others = format!("10.{other}.0.0/24");
        let up = [("e4", "172.16.0.1"), ("e5", "172.16.1.1")];
        router(
            &["e0", "e1", "e4", "e5"],
            &[(to_a.as_str(), &by_a[..]), (to_b.as_str(), &by_b), (others.as_str(), &up)],
        )
    };
    let spine = router(
        &["e0", "e1"],
        &[
            ("10.1.0.0/24", &[("e0", "172.17.0.1")][..]),
            ("10.2.0.0/24", &[("e1", "172.17.1.1")][..]),
        ],
    );
    [leaf(1, 2), leaf(2, 1), spine.clone(), spine]
}

/// The inventory of these routers, as TOML, in the order of the servers.
pub(crate) fn inventory(folder: &Folder, addresses: &[String]) -> String {
    let leaf = |host: u8, spine_port: &str| {
        format!(
            "port = [\
             {{ name = 'e0', speed = '40Mbps', to.host = '10.{host}.0.2' }}, \
             {{ name = 'e1', speed = '40Mbps', to.host = '10.{host}.0.3' }}, \
             {{ name = 'e4', speed = '40Mbps', to.peer = {{ router = 's0', port = '{spine_port}' }} }}, \
             {{ name = 'e5', speed = '40Mbps', to.peer = {{ router = 's1', port = '{spine_port}' }} }}]"
        )
    };
    let spine = String::from(
        "port = [{ name = 'e0', speed = '40Mbps' }, { name = 'e1', speed = '40Mbps' }]",
    );
    let ports = [leaf(1, "e0"), leaf(2, "e1"), spine.clone(), spine];
    let router = |((name, ports), (number, address)): ((&str, &String), (usize, &String))| {
        format!(
            "[[router]]\nname = '{name}'\nagent = '10.0.0.{}'\nsources = ['127.0.0.1']\n{ports}\n\
             [router.apply.gnmi]\naddress = '{address}'\ntls = {}\nuser = '{}'\npassword_file = '{}'\n\
             routes = 'static'\ntimeout = '30s'\narbitration = true\n\
             hash.switch = {{ algorithm = 'crc32', seed = 7 }}\n",
            number + 1,
            folder.tls(),
            USER[0],
            folder.path.join("password").display(),
        )
    };
    let names = ["l0", "l1", "s0", "s1"].into_iter().zip(&ports);
    names.zip(addresses.iter().enumerate()).map(router).collect()
}

/// The sFlow agent of a router: packets of flows that it samples.
pub(crate) struct Sampler {
    agent: IpAddr,
    socket: UdpSocket,
    datagrams: u32,
    samples: u32,
}

/// The sampling rate, and the length of a packet in bytes.
const RATE: u32 = 100;
const FRAME: u32 = 1442;

impl Sampler {
    pub(crate) fn new(agent: [u8; 4], collector: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(collector).unwrap();
        Self { agent: agent.into(), socket, datagrams: 0, samples: 0 }
    }

    /// Sends a sample of a flow, marked as congested, that left by the interface of that index.
    pub(crate) fn sample(&mut self, (from, to): (SocketAddrV4, SocketAddrV4), output: u32) {
        self.datagrams += 1;
        self.samples += 1;
        let bytes = frame(from, to);
        let sample = FlowSample {
            sequence: self.samples,
            source: Source::interface(output),
            rate: RATE,
            pool: self.samples.wrapping_mul(RATE),
            drops: 0,
            input: Interface::Unknown,
            output: Interface::Index(output),
            header: Some(RawHeader {
                protocol: ETHERNET,
                frame_len: FRAME,
                stripped: 0,
                bytes: &bytes,
            }),
        };
        let mut buffer = [0; 512];
        let mut writer = DatagramWriter::new(&mut buffer, self.agent, 0, self.datagrams, 0);
        assert!(writer.flow(&sample));
        let length = writer.finish();
        self.socket.send(&buffer[..length]).unwrap();
    }
}

/// Returns the headers of a UDP packet with "congestion experienced" (RFC 3168).
fn frame(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([8, 0, 0x45, 3]);
    bytes.extend(1428_u16.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    let octets = |address: &Ipv4Addr| address.octets();
    bytes.extend([octets(from.ip()), octets(to.ip())].concat());
    bytes.extend([from.port(), to.port(), 1408, 0].map(u16::to_be_bytes).concat());
    bytes
}
