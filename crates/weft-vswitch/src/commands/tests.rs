//! Commands and reloads of a daemon on loopback, whose interfaces are vhost-user sockets.

use std::fs;
use std::path::PathBuf;

use weft_vpc::{Place, Vni};

use super::*;
use crate::config::{Config, Mac};

/// A daemon with its files in a folder of its own. The tests carry its requests out.
struct Host {
    daemon: Option<Daemon>,
    folder: PathBuf,
    /// The configuration's file, without its first tables.
    text: String,
}

const NETWORK: &str = "[[network]]\nvni = 100\npeers = ['127.0.0.2']\n";
const MACHINE: &str = "02:00:00:00:07:01";

impl Host {
    fn start(name: &str, text: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("weft-commands-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("tenants")).unwrap();
        let mut host = Self { daemon: None, folder, text: text.to_owned() };
        host.restart().unwrap();
        host
    }

    fn config(&self) -> Config {
        let control = self.folder.join("vpc.sock");
        let host =
            format!("[host]\naddress = '127.0.0.1'\nport = 0\ncontrol = '{}'\n", control.display());
        toml::from_str(&(host + NETWORK + &self.text)).unwrap()
    }

    /// Returns the file of the changes made by command.
    fn state(&self) -> PathBuf {
        self.folder.join("vpc.json")
    }

    fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().unwrap()
    }

    fn restart(&mut self) -> Result<(), String> {
        self.daemon = None;
        self.daemon = Some(Daemon::open(self.config()).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn request(&mut self, request: Request) -> Result<Answer, String> {
        request.carry_out(self.daemon()).map_err(|error| error.to_string())
    }

    fn reload(&mut self, text: &str) -> Result<Answer, String> {
        self.text = text.to_owned();
        let config = Box::new(self.config());
        self.request(Request::Reload { config, discard_changes: false })
    }

    /// Returns the table of a port whose socket is in the folder `tenants`.
    fn table(&self, name: &str, mac: &str, more: &str) -> String {
        let socket = self.folder.join("tenants").join(name);
        let socket = socket.display();
        format!(
            "name = '{name}'\nvni = 100\nmac = '{mac}'\nvhost-user = {{ socket = '{socket}' }}\n{more}"
        )
    }

    fn add_port(&self, name: &str, mac: &str) -> Request {
        Request::AddPort { port: toml::from_str(&self.table(name, mac, "")).unwrap() }
    }

    fn ports(&mut self) -> Vec<String> {
        self.daemon().ports.values().map(|(_, port)| port.name.clone()).collect()
    }

    fn changes(&mut self) -> Vec<Request> {
        self.daemon().changes.clone().into()
    }

    /// Returns the configured place of a machine.
    fn place(&mut self, mac: &str) -> Option<Place> {
        let (vni, mac) = (Vni::new(100).unwrap(), mac.parse::<Mac>().unwrap().0);
        let place =
            move |worker: &mut crate::worker::Worker| worker.switch.table(vni).place_if_set(mac);
        self.daemon().pool.run_on(0, place).unwrap()
    }

    /// Returns the owner of an address.
    fn neighbour(&mut self, address: &str) -> Option<String> {
        let (vni, address) = (Vni::new(100).unwrap(), address.parse().unwrap());
        let owner = move |worker: &mut crate::worker::Worker| {
            let now = worker.driver.now();
            worker.switch.table(vni).neighbour(address, now)
        };
        self.daemon().pool.run_on(0, owner).unwrap().map(|mac| Mac(mac).to_string())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.daemon = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn peer(address: &str, remove: bool) -> Request {
    Request::Peer { vni: 100, peer: address.parse().unwrap(), remove }
}

/// Returns the row of a machine on another host.
fn row(mac: &str) -> String {
    format!("vni = 100\nmac = '{mac}'\npeer = '127.0.0.2'\naddresses = ['192.168.7.1']\n")
}

fn add_route(mac: &str) -> Request {
    Request::SetRoute { route: toml::from_str(&row(mac)).unwrap() }
}

fn del_route(mac: &str) -> Request {
    Request::ForgetRoute { vni: 100, destination: mac.parse().unwrap() }
}

fn acl(port: &str, name: &str, rule: &str) -> Request {
    let text = format!("name = '{name}'\nrules = ['{rule}']\n");
    Request::Acl { port: port.into(), acl: Some(toml::from_str(&text).unwrap()) }
}

#[test]
fn a_change_with_which_the_daemon_could_not_start_is_refused() {
    let mut host = Host::start("own", "");
    let error = host.request(peer("127.0.0.1", false)).unwrap_err();
    assert!(error.contains("network.peers = 127.0.0.1"), "{error}");
    assert!(host.changes().is_empty() && !host.state().exists());
    host.restart().unwrap();
    let known = host.request(peer("127.0.0.3", false));
    assert_eq!(known, Ok(Answer::Done));
}

/// The file may come to contradict a change while the daemon is down.
#[test]
fn a_start_with_contradicting_changes_names_their_file() {
    let mut host = Host::start("contradicts", "[set]\nweb = ['10.0.0.0/8']\n");
    host.request(host.add_port("web", MACHINE)).unwrap();
    host.request(acl("web", "web-list", "allow ingress from @web")).unwrap();
    host.text = String::new();
    let error = host.restart().unwrap_err();
    let state = host.state();
    assert!(error.contains(state.to_str().unwrap()) && error.contains("moved away"), "{error}");
    fs::remove_file(state).unwrap();
    host.restart().unwrap();
}

#[test]
fn a_port_added_by_command_whose_interface_is_gone_is_left_out() {
    let mut host = Host::start("gone", "");
    host.request(host.add_port("web", MACHINE)).unwrap();
    let tenants = host.folder.join("tenants");
    fs::remove_dir_all(&tenants).unwrap();
    host.restart().unwrap();
    assert!(host.ports().is_empty());
    assert_eq!(host.changes(), [host.add_port("web", MACHINE)]);
    // A reload goes without it too, and brings it back once there is a place for its socket.
    host.reload("").unwrap();
    fs::create_dir(&tenants).unwrap();
    host.reload("").unwrap();
    assert_eq!(host.ports(), ["web"]);
    fs::remove_dir_all(&tenants).unwrap();
    host.restart().unwrap();
    assert_eq!(host.request(Request::RemovePort { name: "web".into() }), Ok(Answer::Done));
    assert!(host.changes().is_empty());
    // A port of the file has to be there.
    host.text = format!("[[port]]\n{}", host.table("db", MACHINE, ""));
    let error = host.restart().unwrap_err();
    assert!(error.starts_with("port db: "), "{error}");
}

#[test]
fn a_port_by_command_in_a_namespace_that_is_gone_is_left_out() {
    let mut host = Host::start("namespace", "");
    let table = "name = 'web'\nvni = 100\nmac = '02:00:00:00:07:01'\n\
                 tap = { interface = 'eth0', namespace = 'weft-gone' }\n";
    let added = Request::AddPort { port: toml::from_str(table).unwrap() };
    fs::write(host.state(), serde_json::to_vec(&[&added]).unwrap()).unwrap();
    host.restart().unwrap();
    assert_eq!((host.ports(), host.changes()), (vec![], vec![added]));
    // A port that the file has too is the file's.
    host.text = format!("[[port]]\n{table}");
    let error = host.restart().unwrap_err();
    assert!(error.starts_with("port web: ") && error.contains("weft-gone"), "{error}");
}

#[test]
fn a_machine_that_moves_here_in_one_reload_has_its_ports_entries() {
    let route = format!("[[route]]\n{}", row(MACHINE));
    let mut host = Host::start("moves", &route);
    assert!(matches!(host.place(MACHINE), Some(Place::Peer(_))));
    let more = "addresses = ['192.168.7.1/24']\n";
    let port = format!("[[port]]\n{}", host.table("web", MACHINE, more));
    host.reload(&port).unwrap();
    assert!(matches!(host.place(MACHINE), Some(Place::Port(_))), "{:?}", host.place(MACHINE));
    assert_eq!(host.neighbour("192.168.7.1").as_deref(), Some(MACHINE));
    // By commands: the route counts while there is one.
    host.request(add_route(MACHINE)).unwrap();
    assert!(matches!(host.place(MACHINE), Some(Place::Peer(_))));
    host.request(del_route(MACHINE)).unwrap();
    assert!(matches!(host.place(MACHINE), Some(Place::Port(_))), "{:?}", host.place(MACHINE));
    assert_eq!(host.neighbour("192.168.7.1").as_deref(), Some(MACHINE));
    // A reload that adds a port changes nothing about a route that stays.
    host.request(add_route(MACHINE)).unwrap();
    let renamed = format!("[[port]]\n{}", host.table("web2", MACHINE, more));
    host.reload(&renamed).unwrap();
    assert!(matches!(host.place(MACHINE), Some(Place::Peer(_))), "{:?}", host.place(MACHINE));
    host.reload(&port).unwrap();
    host.request(del_route(MACHINE)).unwrap();
    // It moves away: the route comes first, by a command.
    host.request(add_route(MACHINE)).unwrap();
    host.request(Request::RemovePort { name: "web".into() }).unwrap();
    assert!(matches!(host.place(MACHINE), Some(Place::Peer(_))), "{:?}", host.place(MACHINE));
    assert_eq!(host.neighbour("192.168.7.1").as_deref(), Some(MACHINE));
}

#[test]
fn a_port_of_a_machine_that_a_route_places_elsewhere_is_refused() {
    let mut host = Host::start("placed", "");
    host.request(add_route(MACHINE)).unwrap();
    let error = host.request(host.add_port("web", MACHINE)).unwrap_err();
    assert!(error.contains(&format!("weft vpc route del 100 {MACHINE}")), "{error}");
    host.request(del_route(MACHINE)).unwrap();
    host.request(host.add_port("web", MACHINE)).unwrap();
    for _ in 0..2 {
        assert!(matches!(host.place(MACHINE), Some(Place::Port(_))));
        host.restart().unwrap();
    }
}

#[test]
fn changed_limits_of_connections_reach_the_ports_that_stay() {
    let group = "[[security-group]]\nname = 'web'\nrules = ['allow egress any']\n";
    let limits = |number: u32| format!("[connections]\nmax-connections = {number}\n{group}");
    let mut host = Host::start("limits", &limits(100));
    let port = format!("[[port]]\n{}", host.table("web", MACHINE, "security-groups = ['web']\n"));
    host.reload(&(limits(100) + &port)).unwrap();
    let Answer::Reloaded(done) = host.reload(&(limits(7) + &port)).unwrap() else { panic!() };
    assert_eq!(done.ports_changed, 1);
    let (id, _) = host.daemon().port_named("web").unwrap();
    let groups = move |worker: &mut crate::worker::Worker| {
        format!("{:?}", worker.switch.groups_mut(id).unwrap())
    };
    let groups = host.daemon().pool.run_on(0, groups).unwrap();
    assert!(groups.contains("max_connections: 7,"), "{groups}");
}

#[test]
fn an_address_with_another_prefix_length_passes_to_the_new_port() {
    let mut host = Host::start("prefix", "");
    let port = |host: &Host, name, mac, address| {
        format!("[[port]]\n{}", host.table(name, mac, &format!("addresses = ['{address}']\n")))
    };
    host.reload(&port(&host, "a", MACHINE, "192.168.7.1/24")).unwrap();
    let other = "02:00:00:00:07:02";
    host.reload(&port(&host, "b", other, "192.168.7.1/16")).unwrap();
    assert_eq!(host.neighbour("192.168.7.1").as_deref(), Some(other));
}

#[test]
fn a_change_and_its_opposite_leave_nothing() {
    let mut host = Host::start("opposite", "");
    for (one, opposite) in [
        (add_route(MACHINE), del_route(MACHINE)),
        (peer("127.0.0.3", false), peer("127.0.0.3", true)),
        (host.add_port("web", MACHINE), Request::RemovePort { name: "web".into() }),
    ] {
        host.request(one.clone()).unwrap();
        assert_eq!(host.changes(), [one]);
        host.request(opposite).unwrap();
        assert!(host.changes().is_empty());
    }
    // What the file has is a change when it goes.
    host.reload(&format!("[[route]]\n{}", row(MACHINE))).unwrap();
    host.request(del_route(MACHINE)).unwrap();
    assert_eq!(host.changes(), [del_route(MACHINE)]);
}

#[test]
fn a_change_that_cannot_be_kept_at_last_is_in_force_and_kept_by_the_next_one() {
    let mut host = Host::start("volatile", "");
    // A folder of its name cannot be replaced by a file.
    fs::create_dir(host.state()).unwrap();
    let error = host.request(peer("127.0.0.3", false)).unwrap_err();
    assert!(error.contains("is in force") && error.contains("vpc.json"), "{error}");
    assert_eq!(host.changes(), [peer("127.0.0.3", false)]);
    fs::remove_dir(host.state()).unwrap();
    host.request(add_route(MACHINE)).unwrap();
    host.restart().unwrap();
    assert_eq!(host.changes(), [peer("127.0.0.3", false), add_route(MACHINE)]);
}

#[test]
fn a_list_by_command_does_not_replace_that_of_another_port() {
    let mut host = Host::start("lists", "");
    let list = "[[acl]]\nname = 'web-list'\nrules = ['allow ingress any']\n[[port]]\n";
    host.request(host.add_port("web", MACHINE)).unwrap();
    let text = format!("{list}{}", host.table("db", "02:00:00:00:07:02", "acl = 'web-list'\n"));
    host.reload(&text).unwrap();
    let deny = acl("web", "web-list", "deny ingress any");
    let error = host.request(deny.clone()).unwrap_err();
    assert!(error.contains("acl.name = web-list"), "{error}");
    // The file may have the list later.
    host.reload("").unwrap();
    host.request(deny).unwrap();
    let error = host.reload(&text).unwrap_err();
    assert!(error.contains("acl.name = web-list") && error.contains("--discard"), "{error}");
}

#[test]
fn a_port_by_command_has_the_files_policies_and_a_reload_says_what_is_overridden() {
    let list = "[[acl]]\nname = 'edge'\nrules = ['deny ingress any']\n";
    let mut host = Host::start("overridden", list);
    host.request(host.add_port("web", MACHINE)).unwrap();
    // The file has another interface of this name, with a list.
    let table = host.table("web", "02:00:00:00:07:02", "acl = 'edge'\n");
    let text = format!("{list}[[port]]\n{table}");
    let Answer::Reloaded(done) = host.reload(&text).unwrap() else { panic!() };
    assert_eq!((done.ports_added, done.ports_changed, done.overridden), (0, 1, 1));
    let own = |host: &mut Host| {
        let (id, _) = host.daemon().port_named("web").unwrap();
        let (_, port) = host.daemon().ports[&id].clone();
        (port.mac.to_string(), port.policies.acl)
    };
    let expected = (MACHINE.to_owned(), Some("edge".to_owned()));
    assert_eq!(own(&mut host), expected);
    // The same by a command after the file, and after a restart.
    host.request(Request::RemovePort { name: "web".into() }).unwrap();
    host.request(host.add_port("web", MACHINE)).unwrap();
    assert_eq!(own(&mut host), expected);
    host.restart().unwrap();
    assert_eq!(own(&mut host), expected);
    // The file takes the port over.
    let text = text.replace("02:00:00:00:07:02", MACHINE);
    let Answer::Reloaded(done) = host.reload(&text).unwrap() else { panic!() };
    assert_eq!((done.ports_added, done.overridden), (0, 0));
    assert!(host.changes().is_empty());
}
