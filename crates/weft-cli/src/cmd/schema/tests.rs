use std::fs;
use std::path::Path;

use jsonschema::Validator;
use toml::{Table as Toml, Value as TomlValue};

use super::*;

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn validator(kind: Kind) -> Validator {
    let schema = kind.schema().to_value();
    jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{kind}: {error}"));
    jsonschema::validator_for(&schema).unwrap()
}

/// Returns the faults that a schema finds in a text of TOML.
fn faults(validator: &Validator, text: &str) -> Vec<String> {
    let table: Toml = toml::from_str(text).unwrap();
    let value = serde_json::to_value(table).unwrap();
    let fault =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    validator.iter_errors(&value).map(fault).collect()
}

/// Reads a text as the command does that the kind belongs to.
fn read(kind: Kind, text: &str) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    match kind {
        Kind::Overlay => {
            let config: OverlayConfig = toml::from_str(text).map_err(|error| words(&error))?;
            config.check().map_err(|error| words(&error))
        }
        Kind::Fleet => {
            let file: FleetFile = toml::from_str(text).map_err(|error| words(&error))?;
            file.objects().map(drop).map_err(|error| words(&error))
        }
        Kind::FleetObject => {
            let value: Toml = toml::from_str(text).map_err(|error| words(&error))?;
            let value = serde_json::to_vec(&value).unwrap();
            let key = "networks/100/machines/02:00:00:00:07:01".parse().unwrap();
            Object::parse(&key, &value).map(drop).map_err(|error| words(&error))
        }
        Kind::Controller => SteerConfig::parse(text).map(drop).map_err(|error| words(&error)),
        Kind::Device => {
            let keys: Toml = toml::from_str(text).map_err(|error| words(&error))?;
            let set = |(key, value): (&String, &TomlValue)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                DaemonSettings::default().set(key, &value)
            };
            keys.iter().try_for_each(set).map_err(|error| words(&error))
        }
        Kind::Scenario => {
            Scenario::parse(text, Path::new("")).map(drop).map_err(|error| words(&error))
        }
        Kind::Experiment => Experiment::parse(text).map(drop).map_err(|error| words(&error)),
        Kind::Cluster => toml::from_str::<ClusterConfig>(text).map(drop).map_err(|it| words(&it)),
        Kind::Tables => toml::from_str::<Installed>(text).map(drop).map_err(|it| words(&it)),
        Kind::Hosts => toml::from_str::<HostsFile>(text).map(drop).map_err(|it| words(&it)),
    }
}

/// Returns the TOML files of a folder of the repository, with their names.
fn files(folder: &str) -> Vec<(String, String)> {
    let files = weft_figures::library::toml_files(&repository(folder));
    let file =
        |path: std::path::PathBuf| (path.display().to_string(), fs::read_to_string(&path).unwrap());
    files.into_iter().map(file).collect()
}

/// Returns the first block of TOML of a page, or of a page's part that begins with `heading`.
fn block(page: &str, heading: &str) -> (String, String) {
    let text = fs::read_to_string(repository(page)).unwrap();
    let (_, part) = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}"));
    let (_, toml) = part.split_once("```toml\n").expect("a block of TOML");
    let (toml, _) = toml.split_once("```").expect("a block ends");
    (format!("{page}, {heading}"), toml.to_owned())
}

/// Returns every file that the repository has of a kind.
fn shipped(kind: Kind) -> Vec<(String, String)> {
    match kind {
        Kind::Overlay => vec![block("docs/overlay.md", "# ")],
        Kind::Fleet => vec![block("docs/fleet.md", "## Objects")],
        Kind::FleetObject => {
            vec![("a machine".into(), "host = 'h1'\naddresses = ['192.168.7.1']\n".into())]
        }
        Kind::Controller => {
            [files("crates/weft-steer/tests/golden/config"), vec![block("docs/routing.md", "# ")]]
                .concat()
        }
        Kind::Device => {
            let text = "profile = 'stellar'\npaths = 64\nrto = '2ms'\nline-rate = '100Gbps'\n\
                        encryption = 'required'\nidentity = '/etc/weft/key'\nheld-bytes = '1GiB'\n\
                        devices-per-user = 5\nstate = '/var/lib/weft/device.state'\n";
            vec![("settings of a device".into(), text.into())]
        }
        Kind::Scenario => {
            [files("scenarios"), files("crates/weft-sim/tests/golden/scenario")].concat()
        }
        Kind::Experiment => files("experiments"),
        Kind::Cluster => files("plans"),
        Kind::Tables => {
            vec![("an example".into(), include_str!("tables.toml").into())]
        }
        Kind::Hosts => {
            let text = "[tor]\nleaf0 = ['10.1.0.2', 'h3:7471']\nleaf1 = ['10.2.0.2']\n";
            vec![("hosts by ToR".into(), text.into())]
        }
    }
}

#[test]
fn every_shipped_file_is_valid() {
    for &kind in Kind::ALL {
        let (validator, files) = (validator(kind), shipped(kind));
        assert!(!files.is_empty(), "{kind}");
        for (name, text) in files {
            assert_eq!(read(kind, &text), Ok(()), "{name}");
            assert_eq!(faults(&validator, &text), [""; 0], "{name}");
        }
    }
}

/// The defaults of every key are valid.
#[test]
fn every_expanded_scenario_is_valid() {
    let validator = validator(Kind::Scenario);
    for (name, text) in files("scenarios") {
        let folder = Path::new(&name).parent().unwrap();
        let expanded = Scenario::parse(&text, folder).unwrap().expanded().unwrap();
        assert_eq!(faults(&validator, &expanded), [""; 0], "{name}:\n{expanded}");
    }
}

/// Returns a value once for each key in it, with that key changed to one that does not exist, and the key's path.
fn misspelt(value: &TomlValue) -> Vec<(String, TomlValue)> {
    match value {
        TomlValue::Table(table) => {
            table.iter().flat_map(|entry| misspelt_entry(table, entry)).collect()
        }
        TomlValue::Array(items) => {
            let of_item = |(index, item): (usize, &TomlValue)| {
                let within = |(path, item)| {
                    let mut items = items.clone();
                    items[index] = item;
                    (format!("{index}.{path}"), TomlValue::Array(items))
                };
                misspelt(item).into_iter().map(within).collect::<Vec<_>>()
            };
            items.iter().enumerate().flat_map(of_item).collect()
        }
        _ => vec![],
    }
}

fn misspelt_entry(table: &Toml, (key, inner): (&String, &TomlValue)) -> Vec<(String, TomlValue)> {
    let without = || Toml::from_iter(table.clone().into_iter().filter(|(other, _)| other != key));
    let mut renamed = without();
    renamed.insert(format!("{key}-x"), inner.clone());
    let within = |(path, inner)| {
        let mut table = without();
        table.insert(key.clone(), inner);
        (format!("{key}.{path}"), TomlValue::Table(table))
    };
    let deeper = misspelt(inner).into_iter().map(within);
    std::iter::once((key.clone(), TomlValue::Table(renamed))).chain(deeper).collect()
}

#[test]
fn a_wrong_key_is_refused_by_the_schema_where_the_reader_refuses_it() {
    for &kind in Kind::ALL {
        let (validator, mut refused) = (validator(kind), 0);
        for (name, text) in shipped(kind) {
            for (path, value) in misspelt(&toml::from_str(&text).unwrap()) {
                let text = toml::to_string(&value).unwrap();
                let Err(reason) = read(kind, &text) else { continue };
                // A name that another part refers to is no matter of the schema.
                let of_keys =
                    ["unknown field", "unknown key", "missing field", "no setting", "no parameter"];
                let is_key = of_keys.iter().any(|words| reason.contains(words));
                let found = !faults(&validator, &text).is_empty();
                assert!(!is_key || found, "{name}: {path}: only the reader: {reason}");
                refused += usize::from(is_key);
            }
        }
        assert!(refused > 0, "{kind}: no wrong key was refused");
    }
}

/// Values that the reader refuses by their form.
#[test]
fn a_value_of_a_wrong_form_is_refused_by_both() {
    let scenario = "[topology]\nkind = 'leaf-spine'\n";
    let host = "[host]\naddress = '10.0.0.1'\n";
    for (kind, before, wrong) in [
        (Kind::Scenario, scenario, "[run]\nlimit = '3 hours'"),
        (Kind::Scenario, scenario, "[run]\nlimit = 3"),
        (Kind::Scenario, scenario, "[transport]\npaths = 70000"),
        (Kind::Scenario, scenario, "[transport]\npolicy = 'fastest'"),
        (Kind::Scenario, scenario, "[transport.retransmission]\nrto_min = 'soon'"),
        (Kind::Scenario, scenario, "[[workload]]\nkind = 'incest'"),
        (Kind::Scenario, scenario, "[[workload]]\nkind = 'permutation'\nsize = '2 M'"),
        (Kind::Scenario, scenario, "[[fault]]\nkind = 'loss'\nlinks = 'some'\nprobability = 0.1"),
        (Kind::Scenario, scenario, "[messages]\ncolour = 1"),
        (Kind::Scenario, scenario, "[[variant]]\nname = 'a'\ntransport.path = 4"),
        (Kind::Overlay, host, "mtu = 'large'"),
        (Kind::Overlay, host, "[[route]]\nvni = 1\nmac = 'web'\npeer = '10.0.0.2'"),
        (Kind::Overlay, host, "[[route]]\nvni = 1\nto = '10.9/16'\nvia = '10.0.0.2'\nmetric = 1"),
        (Kind::Overlay, host, "[[acl]]\nname = 'a'\ndefault = 'maybe'"),
        (
            Kind::Overlay,
            host,
            "[[acl]]\nname = 'a'\nrules = [{ action = 'allow', way = 'ingress' }]",
        ),
        (Kind::Overlay, host, "[connections]\nicmp = 60"),
        (Kind::Controller, "lab = 'x'\n", "lease = 15"),
        (Kind::Device, "", "policy = 'fastest'"),
        (Kind::Device, "", "path = 4"),
        (Kind::Device, "", "encryption = 'sometimes'"),
        (Kind::Device, "", "cipher = 'rot13'"),
    ] {
        let text = format!("{before}{wrong}\n");
        assert!(read(kind, &text).is_err(), "the reader of {kind}: {wrong}");
        assert_ne!(faults(&validator(kind), &text), [""; 0], "the schema of {kind}: {wrong}");
    }
}

#[test]
fn texts_of_quantities_are_valid_in_every_spelling_that_the_reader_takes() {
    let validator = validator(Kind::Scenario);
    for line in [
        "run.limit = '1.5 ms'",
        "run.limit = '250US'",
        "run.limit = '4s'",
        "measure.size_bins = ['4096', '64KiB', '2 mb']",
        "transport.line_rate = '400 gbps'",
        "transport.line_rate = '2.5Gbps'",
    ] {
        let text = format!("{line}\n[topology]\nkind = 'leaf-spine'\n");
        assert_eq!(read(Kind::Scenario, &text), Ok(()), "{line}");
        assert_eq!(faults(&validator, &text), [""; 0], "{line}");
    }
}
