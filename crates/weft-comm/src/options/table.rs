//! The options of a rank as text, for `WEFT_COLL` and other languages: one row an option.

use std::fmt;
use std::path::Path;

use weft_guard::Token;
use weft_msg::ConfigError;
use weft_units::{BitRate, unknown_name};

use super::Options;
use crate::CommError;

/// An option of a rank.
struct Row {
    name: &'static str,
    /// Sets the option to a value.
    ///
    /// # Errors
    /// Returns the reason why the value is invalid.
    set: fn(&mut Options, &str) -> Result<(), String>,
}

/// Every option of a rank except the node's (`weft_xrdma::Options::set`).
const TABLE: &[Row] = &[
    Row { name: "channels", set: |to, text| assign(&mut to.channels, text.parse()) },
    Row { name: "server", set: |to, text| assign(&mut to.server, read_server(text)) },
    Row { name: "lanes", set: |to, text| to.lanes.read(text, "number") },
    Row {
        name: "order",
        set: |to, text| read_list(&mut to.order, text, "list of ranks, as in 0,2,1,3"),
    },
    Row {
        name: "blocks",
        set: |to, text| read_list(&mut to.blocks, text, "block for each rank, as in 0,0,1,1"),
    },
    Row { name: "algorithm", set: |to, text| assign(&mut to.algorithm, text.parse()) },
    Row { name: "piece", set: |to, text| to.piece.read(text, "size, as in 64KiB") },
    Row { name: "shm_rate", set: |to, text| read_rate(&mut to.shm_rate, text) },
    Row { name: "join_timeout", set: |to, text| to.join_timeout.read(text, "time, as in 60s") },
    Row { name: "hello_timeout", set: |to, text| to.hello_timeout.read(text, "time, as in 2s") },
    Row { name: "controller", set: |to, text| assign(&mut to.controller, text.parse().map(Some)) },
    Row {
        name: "controller_token_file",
        set: |to, text| read_token(&mut to.controller_token, text),
    },
    Row { name: "plan_traffic", set: |to, text| assign(&mut to.plan_traffic, text.parse()) },
    Row { name: "plan_ports", set: |to, text| to.plan_ports.read(text, "number") },
    Row { name: "token_file", set: |to, text| read_token(&mut to.token, text) },
];

/// Assigns a parsed value, whose error describes itself.
fn assign<T, E: fmt::Display>(to: &mut T, parsed: Result<T, E>) -> Result<(), String> {
    *to = parsed.map_err(|error| error.to_string())?;
    Ok(())
}

/// A value that is parsed from text. `expected` describes the text, for the error.
trait Read {
    fn read(&mut self, text: &str, expected: &str) -> Result<(), String>;
}

impl<T: std::str::FromStr> Read for T {
    fn read(&mut self, text: &str, expected: &str) -> Result<(), String> {
        *self = text.parse().map_err(|_| format!("not a {expected}"))?;
        Ok(())
    }
}

fn read_list<T: std::str::FromStr>(
    to: &mut Option<Vec<T>>,
    text: &str,
    expected: &str,
) -> Result<(), String> {
    let numbers: Result<_, _> = text.split(',').map(str::parse).collect();
    *to = Some(numbers.map_err(|_| format!("not a {expected}"))?);
    Ok(())
}

fn read_rate(to: &mut Option<u64>, text: &str) -> Result<(), String> {
    let rate: BitRate = text.parse().map_err(|_| "not a rate, as in 10Gbps".to_owned())?;
    *to = Some(rate.as_bps() / 8);
    Ok(())
}

fn read_server(name: &str) -> Result<Option<String>, &'static str> {
    if name.is_empty() { Err("a server's name is not empty") } else { Ok(Some(name.to_owned())) }
}

fn read_token(to: &mut Option<Token>, file: &str) -> Result<(), String> {
    assign(to, Token::read(Path::new(file)).map(Some))
}

impl Options {
    /// Sets an option: `channels`, `server`, `lanes`, `order` (`0,2,1,3`), `blocks` (`0,0,1,1`), `algorithm`, `piece`, `shm_rate` (in bits per second),
    /// `join_timeout`, `hello_timeout`, `token_file`, `controller` (`HOST:PORT` or `require:HOST:PORT`),
    /// `controller_token_file`, `plan_traffic`, `plan_ports`, or one of the node's (`weft_xrdma::Options::set`).
    ///
    /// # Errors
    /// Returns `Options` if there is no such option or its value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), CommError> {
        let Some(row) = TABLE.iter().find(|row| row.name == name) else {
            let set = self.node.set(name, value);
            return set.map_err(|error| CommError::Options(explain(name, &error)));
        };
        let set = (row.set)(self, value);
        set.map_err(|why| CommError::Options(format!("{name}={value}: {why}")))
    }
}

/// Returns the text of an error of the node; if there is no such option, also with the names of the table.
fn explain(name: &str, error: &ConfigError) -> String {
    let ConfigError::Unknown(unknown) = error else { return error.to_string() };
    let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
    format!("{}; of the node: {unknown}", unknown_name("option", name, &names))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    use weft_coll::Algorithm;
    use weft_units::{ByteCount, Duration};

    use super::*;
    use crate::{Channels, Traffic};

    const TOKEN: &str = "0123456789abcdef";

    /// Writes a token's file and returns its path.
    fn token_file() -> String {
        let path = std::env::temp_dir().join(format!("weft-options-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.as_mut().unwrap().write_all(TOKEN.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn text_sets_every_option() {
        let file = token_file();
        let words = [
            ("channels", "shm"),
            ("server", "h7"),
            ("lanes", "7"),
            ("order", "0,2,1"),
            ("blocks", "0,0,1"),
            ("algorithm", "tree"),
            ("piece", "8KiB"),
            ("shm_rate", "8Gbps"),
            ("join_timeout", "5s"),
            ("hello_timeout", "300ms"),
            ("token_file", &file),
            ("controller", "require:10.9.0.1:7490"),
            ("controller_token_file", &file),
            ("plan_traffic", "all"),
            ("plan_ports", "9"),
            // One of the node's.
            ("depth", "77"),
        ];
        let mut options = Options::default();
        for (name, value) in words {
            options.set(name, value).unwrap();
        }
        std::fs::remove_file(&file).unwrap();
        for row in TABLE {
            assert!(words.iter().any(|(name, _)| *name == row.name), "{} is not set", row.name);
        }
        // Without `..`: a new field does not compile until it is listed, and set above.
        let Options {
            node,
            channels,
            server,
            lanes,
            order,
            blocks,
            algorithm,
            piece,
            shm_rate,
            join_timeout,
            token,
            hello_timeout,
            controller,
            controller_token,
            plan_traffic,
            plan_ports,
        } = options;
        assert_eq!((node.config.depth, channels, lanes), (77, Channels::Shm, 7));
        assert_eq!(server.as_deref(), Some("h7"));
        assert_eq!((order, blocks), (Some(vec![0, 2, 1]), Some(vec![0, 0, 1])));
        assert_eq!(algorithm, Algorithm::Tree);
        assert_eq!((piece, shm_rate), (ByteCount(8 << 10), Some(1_000_000_000)));
        assert_eq!(join_timeout, Duration::from_secs(5));
        assert_eq!(hello_timeout, Duration::from_millis(300));
        assert!([token, controller_token].into_iter().all(|it| it.is_some_and(|it| it.is(TOKEN))));
        assert_eq!(controller.unwrap().to_string(), "require:10.9.0.1:7490");
        assert_eq!((plan_traffic, plan_ports), (Traffic::All, 9));
    }

    #[test]
    fn invalid_values_and_names_are_explained() {
        for (name, value, want) in [
            ("order", "0,x", "order=0,x: not a list of ranks, as in 0,2,1,3"),
            ("blocks", "0,leaf", "blocks=0,leaf: not a block for each rank, as in 0,0,1,1"),
            ("shm_rate", "fast", "shm_rate=fast: not a rate, as in 10Gbps"),
            ("lanes", "-1", "lanes=-1: not a number"),
            ("server", "", "server=: a server's name is not empty"),
            ("join_timeout", "5", "join_timeout=5: not a time, as in 60s"),
            ("token_file", "/no/such", "/no/such"),
            ("channels", "smh", "known: net, auto, shm, hybrid"),
            ("controller", "10.9.0.1", "controller=10.9.0.1: not HOST:PORT"),
            ("ordr", "0,1", "did you mean \"order\""),
            ("dept", "9", "did you mean \"depth\""),
        ] {
            let error = Options::default().set(name, value).unwrap_err().to_string();
            assert!(error.contains(want), "{name}={value}: {error}");
        }
    }
}
