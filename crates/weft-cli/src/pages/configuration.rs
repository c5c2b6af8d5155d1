//! Generates `docs/reference/configuration.md`: every key of every file and variable of settings, from the tables,
//! structures and defaults that the programs read.

use std::path::Path;

use toml::{Table, Value};
use weft_msg::Config as MessagesConfig;
use weft_sim::Scenario;
use weft_steer::{ClusterConfig, EtcdSettings, GnmiSettings, SteerConfig};
use weft_topo::build::TopologyKind;
use weft_transport::{SettingsTable, TransportConfig};
use weft_udp::{EncryptionSettings, SettingError, TransportSettings};
use weft_verbs::{HeldSettings, QuotaSettings};
use weft_vswitch::config::Config as OverlayConfig;

use super::fields::{Field, fields};
use super::{assert_page, cell, read, table};

mod sections;

use sections::{CONTROLLER, OVERLAY, SCENARIO, Section};

const BEGINNING: &str = "\
# Configuration

<!-- Written by `BLESS=1 cargo test -p weft-cli --bin weft pages` from the structures and tables that read the files. -->

Every key with its default. A key that does not exist is refused with the nearest one, and a value out of its range with the range. Times
are written as `100us`, rates as `10Gbps`, sizes as `64KiB` or `1MB`.

`weft schema` prints the JSON Schema of each kind of file, for checks before a roll-out and for editors: one with Taplo completes and
checks a file whose first line is `#:schema ./vpc.schema.json`. Former names of keys, which are still read, are not in a schema.

";

fn render() -> String {
    let mut page = BEGINNING.to_owned();
    page += &device();
    page += &messages();
    page += "## The overlay\n\nThe file of `weft vpc serve` ([The overlay](../overlay.md)). Access lists, security groups and limits \
             are in [Policies](../policies.md).\n\n";
    page += &of_sections(OVERLAY, &overlay_defaults());
    page +=
        "## The route controller\n\nThe file of `weft route serve` ([Routing](../routing.md)).\n\n";
    page += &of_sections(CONTROLLER, &controller_defaults());
    page += &scenarios();
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// Returns the device's settings: variables of programs, keys of a daemon's file.
fn device() -> String {
    let mut page = "## Device and transport of real packets\n\nPrograms under `weft run` read variables; `weft device serve` \
                    reads its environment, and then its file ([The device's transport](../device.md)).\n\n"
        .to_owned();
    let defaults = TransportSettings::default();
    let described = defaults.describe(&defaults.config(128));
    let of = |key: &str| {
        let name = key.replace('-', " ");
        described.iter().find(|(row, _)| *row == name).map(|(_, value)| value.as_str())
    };
    let mut rows = Vec::new();
    for key in TransportSettings::KEYS {
        let default = if key == "mtu" { "1500" } else { of(key).unwrap_or_default() };
        let values = refusal(TransportSettings::default().set(key, "?"));
        rows.push(setting(key, default, &values));
    }
    let limits = weft_verbs::describe_limits().unwrap();
    for (key, (_, default)) in HeldSettings::KEYS.into_iter().zip(&limits) {
        rows.push(setting(key, default, &refusal(HeldSettings::default().set(key, "?"))));
    }
    for key in EncryptionSettings::KEYS {
        let default = match key {
            "encryption" => "preferred; required with a key or peers",
            "cipher" => "aes-128-gcm",
            _ => "none",
        };
        let values = match key {
            "encryption" | "cipher" => refusal(EncryptionSettings::default().set(key, "?")),
            _ => "a file".to_owned(),
        };
        rows.push(setting(key, default, &values));
    }
    page += &table(["key", "variable", "default", "values"], &rows);
    page + &quotas()
}

/// Returns the limits of one user.
fn quotas() -> String {
    let rows = QuotaSettings::KEYS.map(|key| {
        let values = refusal(QuotaSettings::default().set(key, "?"));
        let default = if key == "devices-per-user" { "1024" } else { "half of the daemon's" };
        [format!("`{key}`"), default.to_owned(), cell(&values)]
    });
    "Limits of one user, in the file of a daemon only:\n\n".to_owned()
        + &table(["key", "default", "values"], &rows)
        + "\nThe key `state` there names the file that keeps the devices for the next daemon: by default `/var/lib/weft/device.state` for the \
           machine's daemon, else the socket's name with the extension `state`.\n"
}

fn setting(key: &str, default: &str, values: &str) -> [String; 4] {
    let variable = format!("`{}`", TransportSettings::variable(key));
    [format!("`{key}`"), variable, cell(default), cell(values)]
}

/// Returns the values that a setting takes, from the error with which it refuses another.
///
/// # Panics
/// Panics if the value was not refused.
fn refusal(outcome: Result<(), SettingError>) -> String {
    let reason = outcome.expect_err("a question mark is no value").reason.to_string();
    if let Some((_, known)) = reason.split_once("(known: ") {
        let names: Vec<_> =
            known.trim_end_matches(')').split(", ").map(|it| format!("`{it}`")).collect();
        return names.join(", ");
    }
    let reason = reason.split_once(", got ").map_or(reason.as_str(), |(reason, _)| reason);
    ["not ", "expected "].iter().fold(reason, |it, word| it.trim_start_matches(word)).to_owned()
}

/// Returns the parameters of messages.
fn messages() -> String {
    let rows: Vec<[String; 5]> = MessagesConfig::default()
        .parameters()
        .into_iter()
        .map(|it| {
            let bounds = format!("{} to {}", it.min, it.max);
            let online = if it.online { "yes" } else { "no" };
            [format!("`{}`", it.name), it.value, bounds, online.to_owned(), cell(it.about)]
        })
        .collect();
    "## Messages\n\nParameters of a context: options of `weft.Node`, of `xrdma_context_create` and of `Options`, and keys of \
     `[messages]` in scenarios. `weft adm set` changes those that are on-line while a program runs.\n\n"
        .to_owned()
        + &table(["parameter", "default", "bounds", "on-line", "what it does"], &rows)
}

/// Returns the overlay's file with every default filled in.
fn overlay_defaults() -> Table {
    let text = "[host]\naddress = \"10.1.0.2\"\n[host.tls]\ncertificate = \"c\"\nkey = \"k\"\n[[network]]\nvni = 100\n[[port]]\nname = \"web\"\n\
                vni = 100\nmac = \"02:00:00:00:07:01\"\ntap = { interface = \"eth0\" }\nmirror = { to = \"10.9.0.3\", vni = 900 }\n[[port]]\nname = \"guest\"\nvni = 100\n\
                mac = \"02:00:00:00:07:03\"\nvhost-user = { socket = \"/s\" }\n[fleet]\nname = \"host-1\"\n[fleet.etcd]\nendpoints = [\"10.9.0.1:2379\"]\n\
                tls = { ca = \"c\" }\n[flow-log]\ncollector = \"10.9.0.2:4739\"\n\
                [evpn]\nas = 65001\n[[evpn.neighbour]]\naddress = \"10.9.0.1\"\nas = 65000\n";
    let config: OverlayConfig = toml::from_str(text).unwrap();
    let guest = config.ports[1].vhost_user.as_ref().unwrap();
    // These are written only where they are not the default.
    let unwritten = [
        ("queue-pairs", Value::Integer(guest.queue_pairs.into())),
        ("may-move", Value::Boolean(guest.may_move)),
    ];
    let mut defaults = Table::try_from(&config).unwrap();
    let keys = defaults["port"][1]["vhost-user"].as_table_mut().unwrap();
    keys.extend(unwritten.map(|(key, value)| (key.to_owned(), value)));
    defaults
}

/// Returns the controller's file with every default filled in, below the key `gnmi` those of a router with a gNMI server, and
/// below `of-cluster` those of several controllers.
fn controller_defaults() -> Table {
    let mut defaults = Table::try_from(SteerConfig::default()).unwrap();
    let gnmi = Value::try_from(GnmiSettings::plain("leaf-0:9339")).unwrap();
    defaults.insert("gnmi".into(), gnmi);
    let cluster = ClusterConfig::of(EtcdSettings::plain(&["etcd-0:2379"]));
    defaults.insert("of-cluster".into(), Value::try_from(cluster).unwrap());
    defaults
}

/// Returns the sections of scenarios, with the bounds of the transport's keys.
fn scenarios() -> String {
    let mut page = "## Scenarios\n\nFiles of `weft sim` ([Scenarios](../scenarios.md)). Defaults of `[transport]` are those of the \
                    profile `stellar`; where `line_rate` and `base_rtt` are left out, they are those of the network, here of the \
                    default `leaf-spine`.\n\n"
        .to_owned();
    let mut defaults = Table::new();
    for section in ["pcie", "messages", "overlay", "controller"] {
        let text = format!("[topology]\nkind = \"leaf-spine\"\n[{section}]\n");
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        let all: Table = scenario.expanded().unwrap().parse().unwrap();
        all.into_iter().for_each(|(key, value)| {
            defaults.entry(key).or_insert(value);
        });
    }
    let last_of_transport = SCENARIO.iter().rposition(|it| it.path.first() == Some(&"transport"));
    let (before, after) = SCENARIO.split_at(last_of_transport.expect("it has sections") + 1);
    page += &of_sections(before, &defaults);
    page += &settings_of_rows(&defaults);
    page += &of_sections(after, &defaults);
    page += "### Bounds of `[transport]`\n\n";
    let bounds = TransportConfig::stellar().bounds();
    let rows: Vec<[String; 2]> =
        bounds.into_iter().map(|(key, bounds)| [format!("`{key}`"), cell(bounds)]).collect();
    page += &table(["key", "bounds"], &rows);
    for kind in TopologyKind::ALL {
        let (name, about) = (kind.name(), kind.about());
        let file = format!("crates/weft-topo/src/build/{}.rs", name.replace('-', "_"));
        let text = format!("[topology]\nkind = \"{name}\"\n");
        page += &kind_of(
            "[topology]",
            (name, about),
            &file,
            &camel_case(name),
            &expanded(&text, "topology"),
        );
    }
    for kind in weft_sim::workload::Kind::ALL {
        page += &kind_of_many("workload", "Config", (kind.name(), kind.about()));
    }
    for kind in weft_sim::fault::Kind::ALL {
        page += &kind_of_many("fault", "Fault", (kind.name(), kind.about()));
    }
    page
}

/// Returns the sections of path policies and congestion controls that have settings.
fn settings_of_rows(defaults: &Table) -> String {
    let of = |table: &SettingsTable| {
        let title = format!("`[transport.{}]`", table.key);
        let file = format!("crates/weft-transport/src/{}.rs", table.module.replace("::", "/"));
        let path = ["transport", table.key];
        let section =
            Section { title: &title, file: &file, structure: table.structure, path: &path };
        of_sections(&[section], defaults)
    };
    TransportConfig::SETTINGS.iter().map(of).collect()
}

/// Returns the keys of one kind of an array of tables, from the simulator's file of that kind.
fn kind_of_many(array: &str, structure: &str, (name, about): (&str, &str)) -> String {
    let module = format!("crates/weft-sim/src/{array}/{}", name.replace('-', "_"));
    let file = [format!("{module}.rs"), format!("{module}/mod.rs")];
    let file = file.iter().find(|file| super::in_repository(file).exists()).expect("a module");
    let text = format!("[topology]\nkind = \"leaf-spine\"\n[[{array}]]\nkind = \"{name}\"\n");
    kind_of(&format!("[[{array}]]"), (name, about), file, structure, &expanded(&text, array))
}

fn kind_of(
    section: &str,
    (name, about): (&str, &str),
    file: &str,
    structure: &str,
    defaults: &Table,
) -> String {
    let heading = format!("### `{section}` of kind `{name}`\n\n{}.\n\n", cell(about));
    heading + &Section { title: "", file, structure, path: &[] }.table(defaults)
}

/// Returns a section of a scenario with every default filled in; of several, the first. Returns an empty table if the
/// scenario needs more keys.
fn expanded(text: &str, section: &str) -> Table {
    let parsed = Scenario::parse(text, Path::new("")).ok();
    let all: Option<Table> = parsed.and_then(|it| it.expanded().ok()?.parse().ok());
    match all.and_then(|mut all| all.remove(section)) {
        Some(Value::Table(one)) => one,
        Some(Value::Array(many)) => {
            many.first().and_then(Value::as_table).cloned().unwrap_or_default()
        }
        _ => Table::new(),
    }
}

/// Returns the name of a kind's structure: `LeafSpine` for `leaf-spine`.
fn camel_case(name: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    name.split('-').map(capital).collect()
}

fn of_sections(sections: &[Section<'_>], defaults: &Table) -> String {
    let of = |section: &Section<'_>| {
        let heading = format!("### {}\n\n", section.title);
        heading + &section.table(&section.find(defaults))
    };
    sections.iter().map(of).collect()
}

/// Returns a value as a file has it.
fn as_written(value: &Value) -> String {
    match value {
        Value::Table(_) => "a table".to_owned(),
        Value::Array(all) if all.iter().any(Value::is_table) => "none".to_owned(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        Value::String(text) => cell(text),
        value => cell(&value.to_string()),
    }
}

impl Section<'_> {
    /// Returns the table of defaults that the section has.
    fn find(&self, defaults: &Table) -> Table {
        let mut found = Value::Table(defaults.clone());
        for key in self.path {
            let next = match &found {
                Value::Table(all) => all.get(*key).cloned(),
                // Of several tables it is the first that has the next key, or the first.
                Value::Array(all) => all.iter().find_map(|it| it.get(*key)).cloned(),
                _ => None,
            };
            found = next.unwrap_or_else(|| Value::Table(Table::new()));
        }
        match found {
            Value::Array(all) => all.first().and_then(Value::as_table).cloned().unwrap_or_default(),
            Value::Table(all) => all,
            _ => Table::new(),
        }
    }

    fn table(&self, defaults: &Table) -> String {
        let mut fields = fields(&read(self.file), self.structure);
        if self.structure == "TransportConfig" {
            fields.extend(TransportConfig::SETTINGS.iter().map(|table| Field {
                key: table.key.to_owned(),
                about: table.about.to_owned(),
                optional: true,
                flattened: false,
            }));
        }
        let rows: Vec<[String; 3]> = fields
            .iter()
            .filter(|field| !field.flattened)
            .map(|field| {
                // Values that differ from a profile are merged into it.
                let optional = field.optional || self.path.first() == Some(&"transport");
                let default = match (optional, defaults.get(&field.key)) {
                    (false, _) => "required".to_owned(),
                    (true, Some(value)) => as_written(value),
                    (true, None) => "none".to_owned(),
                };
                [format!("`{}`", field.key), default, cell(&field.about)]
            })
            .collect();
        table(["key", "default", "what it sets"], &rows)
    }
}

#[test]
fn the_page_of_the_configuration_agrees_with_the_code() {
    assert_page("docs/reference/configuration.md", &render());
}
