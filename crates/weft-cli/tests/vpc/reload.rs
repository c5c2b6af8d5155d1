//! `weft vpc reload`: all of a configuration or nothing, only what differs, and what it says.

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use super::{Serving, said, weft};

impl Serving {
    /// Reloads the configuration's file after `change` of its text.
    pub(super) fn reload(&self, change: impl FnOnce(String) -> String) -> Result<Value, String> {
        let text = std::fs::read_to_string(&self.config).unwrap();
        std::fs::write(&self.config, change(text)).unwrap();
        let config = self.config.to_str().unwrap();
        let output = self.ask(&["reload", "--config", config, "--json"]);
        if !output.status.success() {
            let refusal: Value = serde_json::from_slice(&output.stderr).unwrap();
            let causes = refusal["causes"].as_array().unwrap().iter();
            let sentences = std::iter::once(&refusal["error"]).chain(causes);
            return Err(sentences.map(|it| it.as_str().unwrap()).collect::<Vec<_>>().join(": "));
        }
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Returns the fields of the last event of the log with this message.
    fn logged(&self, message: &str) -> Value {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let mut events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found = events.rfind(|event| event["fields"]["message"] == message);
        found.unwrap_or_else(|| panic!("no {message:?} in {log}"))["fields"].clone()
    }

    /// Returns the status without what changes by itself.
    pub(super) fn configured(&self) -> [Value; 3] {
        let status = self.status();
        let port = |port: &Value| json!([port["name"], port["vni"], port["mac"]]);
        let ports = status["ports"].as_array().unwrap().iter().map(port).collect();
        [status["networks"].clone(), status["routes"].clone(), ports]
    }
}

/// Returns the table of a port with a vhost-user socket.
pub(super) fn port(name: &str, mac: u8, socket: &str) -> String {
    format!(
        "[[port]]\nname = '{name}'\nvni = 100\nmac = '02:00:00:00:07:{mac:02x}'\n\
         vhost-user = {{ socket = '{socket}' }}\n"
    )
}

/// Writes a configuration with `count` routes of both kinds, of which the last ones go `via` a machine.
fn write_routes(serving: &Serving, count: usize, via: &str) {
    let text = std::fs::read_to_string(&serving.config).unwrap();
    let head = text.split("[[route]]").next().unwrap();
    let mut text = String::from(head);
    for number in 0..count / 2 {
        let [_, a, b, c] = u32::try_from(number).unwrap().to_be_bytes();
        let to = "vni = 100\nmac";
        writeln!(text, "[[route]]\n{to} = '02:00:00:{a:02x}:{b:02x}:{c:02x}'\npeer = '127.0.0.2'")
            .unwrap();
    }
    for number in count / 2..count {
        let [_, a, b, c] = u32::try_from(number).unwrap().to_be_bytes();
        writeln!(text, "[[route]]\nvni = 100\nto = '10.{a}.{b}.{c}/32'\nvia = '{via}'").unwrap();
    }
    std::fs::write(&serving.config, text).unwrap();
}

#[test]
fn a_reload_of_many_routes_is_applied() {
    let serving = Serving::start("routes");
    for (count, via) in [(1_000, "10.8.0.1"), (100_000, "10.8.0.2"), (3_000, "10.8.0.3"), (0, "")] {
        write_routes(&serving, count, via);
        let reload = serving.ask(&["reload", "--config", serving.config.to_str().unwrap()]);
        assert!(reload.status.success(), "{count}: {}", said(&reload.stderr));
        let status = serving.status();
        let routes = status["routes"].as_array().unwrap();
        assert_eq!(routes.len(), count);
        assert_eq!(routes.iter().filter(|route| route["via"] == via).count(), count / 2);
        let machines = status["networks"][0]["addresses"].as_object().unwrap();
        assert_eq!(machines.len(), count / 2);
    }
}

#[test]
fn a_request_that_is_too_long_is_refused_with_the_limit_and_the_fix() {
    let serving = Serving::start("long");
    write_routes(&serving, 0, "");
    let name = "x".repeat(64 << 20);
    let group = format!("[[acl]]\nname = '{name}'\ndefault = 'allow'\nrules = []\n");
    let text = std::fs::read_to_string(&serving.config).unwrap() + &group;
    std::fs::write(&serving.config, text).unwrap();
    let reload = serving.ask(&["reload", "--config", serving.config.to_str().unwrap()]);
    let error = said(&reload.stderr);
    assert!(!reload.status.success() && error.contains("67108864 bytes"), "{error}");
    assert!(error.contains("weft vpc route add"), "{error}");
}

/// A daemon that ends the connection causes EPIPE at its client. The command must not take that for a closed reader of
/// its own output, which is no failure.
#[test]
fn the_error_of_a_broken_connection_has_a_reason() {
    let serving = Serving::start("broken");
    write_routes(&serving, 50_000, "10.8.0.1");
    let socket = serving.control.with_extension("deaf");
    let listener = UnixListener::bind(&socket).unwrap();
    let deaf = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        (&stream).read_exact(&mut [0; 1_000]).unwrap();
    });
    let config = serving.config.to_str().unwrap();
    let reload = ["vpc", "--control", socket.to_str().unwrap(), "reload", "--config", config];
    let output = weft(&reload);
    deaf.join().unwrap();
    std::fs::remove_file(&socket).unwrap();
    let error = said(&output.stderr);
    assert!(!output.status.success() && error.contains("ended the connection"), "{error}");
}

#[test]
fn a_reload_changes_what_differs_and_says_what_that_was() {
    let serving = Serving::start("differs");
    write_routes(&serving, 10_000, "10.8.0.1");
    let counts = |done: &Value| {
        ["networks-set", "ports-added", "ports-removed", "routes-set", "routes-removed"]
            .map(|key| done[key].as_u64().unwrap())
    };
    let same = |text: String| text;
    assert_eq!(counts(&serving.reload(same).unwrap()), [0, 0, 0, 10_000, 0]);
    assert_eq!(counts(&serving.reload(same).unwrap()), [0; 5]);
    let one = |text: String| text.replacen("via = '10.8.0.1'", "via = '10.8.0.9'", 1);
    assert_eq!(counts(&serving.reload(one).unwrap()), [0, 0, 0, 1, 0]);
    let socket = serving.control.with_extension("web");
    let web = port("web", 1, socket.to_str().unwrap());
    let more = |text: String| {
        let text = text.replace("127.0.0.2']", "127.0.0.2', '127.0.0.3']");
        text.replacen("[[route]]", &format!("{web}[[route]]"), 1)
    };
    assert_eq!(counts(&serving.reload(more).unwrap()), [1, 1, 0, 0, 0]);
    let fields = serving.logged("configuration reloaded");
    assert_eq!((&fields["ports_added"], &fields["routes_set"]), (&json!(1), &json!(0)));
    let fewer = |text: String| text.split("[[port]]").next().unwrap().to_owned();
    assert_eq!(counts(&serving.reload(fewer).unwrap()), [0, 0, 1, 0, 10_000]);
    assert!(!socket.exists(), "the port's socket is gone with it");
}

#[test]
fn a_reload_that_is_refused_changes_nothing() {
    let serving = Serving::start("refused");
    let socket = |end: &str| serving.control.with_extension(end).to_str().unwrap().to_owned();
    let (stays, moved) = (port("stays", 1, &socket("stays")), port("moved", 2, &socket("moved")));
    serving.reload(|text| text + &stays + &moved).unwrap();
    let before = serving.configured();
    let text = std::fs::read_to_string(&serving.config).unwrap();
    let network =
        "[[network]]\nvni = 101\n[[route]]\nvni = 100\nto = '10.9.0.0/16'\nvia = '10.8.0.1'\n";
    // All but the last port could be applied.
    let new = port("new", 3, &socket("new"));
    let nowhere = port("nowhere", 4, "/nowhere/socket");
    let error = serving.reload(|text| text + network + &new + &nowhere).unwrap_err();
    assert!(error.contains("port nowhere") && error.contains("vpc-"), "{error}");
    assert_eq!(serving.configured(), before);
    assert!(!std::path::Path::new(&socket("new")).exists());
    // A port whose interface is replaced is closed before: it is opened again.
    let elsewhere = text.replace(&socket("moved"), "/nowhere/socket");
    let error = serving.reload(|_| elsewhere + network + &new).unwrap_err();
    assert!(error.contains("port moved"), "{error}");
    assert_eq!(serving.configured(), before);
    for end in ["stays", "moved"] {
        std::os::unix::net::UnixStream::connect(socket(end)).unwrap();
    }
    let refusal = serving.logged("configuration refused, the former one stays");
    assert!(refusal["error"].as_str().unwrap().contains("port moved"), "{refusal}");
    serving.reload(|_| text).unwrap();
}

#[test]
fn the_error_of_a_configuration_names_file_line_and_key() {
    let serving = Serving::start("lines");
    let file = serving.config.display().to_string();
    let text = std::fs::read_to_string(&serving.config).unwrap();
    let before = serving.configured();
    let lines = text.lines().count();
    let twice = "[[route]]\nvni = 100\nto = '10.9.0.0/16'\nvia = '10.8.0.1'\n".repeat(2);
    let name = port("a", 1, "/tmp/a") + &port("a", 2, "/tmp/b");
    let policies = port("a", 1, "/tmp/a") + "acl = 'edge'\n";
    let list = "[[acl]]\nname = 'edge'\nrules = ['allow ingress any', 'allow ingress from @web']\n";
    for (wrong, line, words) in [
        (twice.as_str(), lines + 5, "route = 10.9.0.0/16"),
        (&name, lines + 7, "port.name = a"),
        (&policies, lines + 1, "access list"),
        (list, lines + 1, "edge"),
        ("[[network]]\nvni = 100\n", lines + 2, "network.vni = 100"),
        ("[[rout]]\nvni = 1\n", lines + 1, "did you mean \"route\"?"),
        (&(port("a", 1, "/tmp/a") + "sourcs = []\n"), lines + 6, "did you mean \"sources\"?"),
        ("[[network]]\nvni = 101\ngateways = ['10.8/16']\n", lines + 3, "network.gateways"),
    ] {
        let error = serving.reload(|_| text.clone() + wrong).unwrap_err();
        assert!(error.contains(&format!("{file}:{line}: ")), "{wrong}: {error}");
        assert!(error.contains(words), "{wrong}: {error}");
    }
    // The reader of TOML says it in its own way.
    for (wrong, words) in
        [("[[network]]\nvni = 101\ncolour = 1\n", "colour"), ("[[route]]\nvni = 'web'\n", "vni")]
    {
        let error = serving.reload(|_| text.clone() + wrong).unwrap_err();
        assert!(error.contains(&file) && error.contains(words), "{wrong}: {error}");
        let at = |line: usize| error.contains(&format!("line {line}, "));
        assert!((lines + 1..lines + 4).any(at), "{wrong}: {error}");
    }
    let error = serving.reload(|_| text.replace("[host]", "[host]\nmtu = 9000")).unwrap_err();
    assert!(error.contains(&file) && error.contains("takes a restart"), "{error}");
    assert_eq!(serving.configured(), before);
}
