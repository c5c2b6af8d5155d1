//! Options as text, for the command line and for other languages.

use std::str::FromStr;

use weft_msg::{Config, ConfigError};
use weft_units::unknown_name;

use crate::{Options, PacketLabels, Pages};

/// The options that are not parameters of a context.
const NODE_OPTIONS: [&str; 6] = ["device", "address", "pages", "streams", "spin", "show"];

impl Options {
    /// Sets an option: `device`, `address`, `pages` (anonymous, huge or malloc), `streams` (true or false), `spin`
    /// (a time), `show` (the record's name, or off), `traffic_class`, `sl`, `flow_label` or `source_ports` (see
    /// [`PacketLabels`]), or a parameter of [`Config`].
    ///
    /// # Errors
    /// There is no such option, or its value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let malformed =
            |name, expected| ConfigError::Malformed { name, got: value.into(), expected };
        match name {
            "device" => self.device.device = Some(value.into()),
            "address" => {
                let address = value.parse().map_err(|_| malformed("address", "an IP address"))?;
                self.device.address = Some(address);
            }
            "pages" => {
                self.device.pages = match value {
                    "anonymous" => Pages::Anonymous,
                    "huge" => Pages::Huge,
                    "malloc" => Pages::Malloc,
                    _ => return Err(malformed("pages", "anonymous, huge or malloc")),
                }
            }
            "streams" => {
                self.streams = value.parse().map_err(|_| malformed("streams", "true or false"))?;
            }
            "spin" => {
                let spin = value.parse().map_err(|_| malformed("spin", "a time, as in 50us"))?;
                self.spin = Some(spin);
            }
            "show" if value == "off" => self.show.off = true,
            "show" => self.show.name = Some(value.into()),
            _ if self.device.labels.set(name, value)? => {}
            _ => {
                return self
                    .config
                    .set(name, value)
                    .map_err(|error| with_node_options(name, error));
            }
        }
        Ok(())
    }
}

/// Adds this crate's options to the known names of an error about an unknown name.
fn with_node_options(name: &str, error: ConfigError) -> ConfigError {
    let ConfigError::Unknown(_) = error else { return error };
    let parameters = Config::default().parameters();
    let parameters = parameters.iter().map(|parameter| parameter.name);
    let own = NODE_OPTIONS.into_iter().chain(PacketLabels::NAMES);
    let known: Vec<_> = own.chain(parameters).collect();
    ConfigError::Unknown(unknown_name("option", name, &known))
}

/// Parses options as words `NAME=VALUE` separated by spaces.
impl FromStr for Options {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut options = Self::default();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| ConfigError::Malformed {
                name: "options",
                got: word.into(),
                expected: "NAME=VALUE",
            })?;
            options.set(name, value)?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Duration;

    use super::*;

    #[test]
    fn options_are_parsed_from_words() {
        let text = "device=weft0 address=10.0.0.1 pages=huge\n streams=true spin=10us show=mine depth=64 sl=4";
        let options: Options = text.parse().unwrap();
        assert_eq!(options.device.device.as_deref(), Some("weft0"));
        assert_eq!(options.device.address, Some([10, 0, 0, 1].into()));
        assert_eq!(options.device.pages, Pages::Huge);
        assert!(options.streams);
        assert_eq!((options.show.off, options.show.name.as_deref()), (false, Some("mine")));
        assert!("show=off".parse::<Options>().unwrap().show.off);
        assert_eq!(options.spin, Some(Duration::from_micros(10)));
        assert_eq!(options.config.depth, 64);
        assert_eq!(options.device.labels.service_level, Some(4));
        assert_eq!("".parse::<Options>().unwrap().config, Config::default());
    }

    #[test]
    fn invalid_options_are_named() {
        for (text, want) in [
            ("depth", "options: \"depth\" is not NAME=VALUE"),
            ("pages=small", "pages: \"small\" is not anonymous, huge or malloc"),
            ("streams=yes", "streams: \"yes\" is not true or false"),
            ("depth=2", "depth is 2, expected 3 to 4096"),
        ] {
            assert_eq!(text.parse::<Options>().unwrap_err().to_string(), want);
        }
        let unknown = "devise=weft0".parse::<Options>().unwrap_err().to_string();
        assert!(unknown.contains("device") && unknown.contains("depth"), "{unknown}");
    }
}
