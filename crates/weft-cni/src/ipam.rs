//! The plugin for addresses, which this one runs with the same environment and configuration.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Map, Value};

use crate::attachment::Attachment;
use crate::config::{Config, wrong};
use crate::environment::Endpoint;
use crate::failure::{Code, Failure};
use crate::version::Version;

/// The newest version that a plugin knows which does not report any newer one.
const SECOND: Version = Version::V1_0_0;

/// A plugin for addresses.
#[derive(Debug)]
pub(crate) struct Ipam {
    name: String,
    program: PathBuf,
    /// The version in which it gets the configuration.
    version: Version,
    /// The configuration in that version.
    object: Map<String, Value>,
}

impl Ipam {
    /// Returns the plugin that a configuration names; `None` if it names none.
    ///
    /// # Errors
    /// Code 7: it is in none of `folders`.
    pub(crate) fn of(config: &Config, folders: &[PathBuf]) -> Result<Option<Self>, Failure> {
        let name = &config.own.ipam.program;
        if name.is_empty() {
            return Ok(None);
        }
        if name.contains('/') {
            return Err(wrong("ipam.type", &name.clone().into(), "the name of a program"));
        }
        let mut programs = folders.iter().map(|folder| folder.join(name));
        let program = programs.find(|program| program.is_file()).ok_or_else(|| {
            let folders: Vec<_> = folders.iter().map(|it| it.display().to_string()).collect();
            let message = format!("ipam.type is {name:?}, and no such program is in CNI_PATH");
            Failure::new(Code::InvalidConfig, message)
                .with_details(format!("CNI_PATH is {:?}", folders.join(":")))
        })?;
        let object = config.object.clone();
        let mut ipam = Self { name: name.clone(), program, version: config.version, object };
        if ipam.version > SECOND && !ipam.supports(ipam.version)? {
            ipam.write_in(SECOND);
        }
        Ok(Some(ipam))
    }

    /// Returns `true` if the plugin reports that it supports a version.
    fn supports(&self, version: Version) -> Result<bool, Failure> {
        let answer = self.call("VERSION", None)?;
        let listed = answer["supportedVersions"].as_array().into_iter().flatten();
        Ok(listed.filter_map(Value::as_str).any(|number| number == version.number()))
    }

    /// Changes the version of the configuration. Only fields of results differ between the two newest versions, and a
    /// plugin ignores those that it does not know.
    fn write_in(&mut self, version: Version) {
        self.version = version;
        self.object.insert("cniVersion".into(), version.number().into());
        if let Some(previous) = self.object.get_mut("prevResult").and_then(Value::as_object_mut) {
            previous.insert("cniVersion".into(), version.number().into());
        }
    }

    /// Reserves addresses.
    ///
    /// # Errors
    /// The errors of the plugin; code 7 if its result has no address.
    pub(crate) fn add(&self) -> Result<Attachment, Failure> {
        let value = self.call("ADD", None)?;
        let result = Attachment::parse(&value).map_err(|why| {
            Failure::new(Code::Decode, format!("the result of {} is none: {why}", self.name))
        })?;
        if result.ips.is_empty() {
            let message = format!("{} reserved no address", self.name);
            return Err(Failure::new(Code::InvalidConfig, message));
        }
        Ok(result)
    }

    /// Frees the addresses of the container of this call.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub(crate) fn del(&self) -> Result<(), Failure> {
        self.call("DEL", None).map(drop)
    }

    /// Frees the addresses of another container.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub(crate) fn del_of(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        self.call("DEL", Some(endpoint)).map(drop)
    }

    /// Checks that the addresses of the container of this call are reserved.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.call("CHECK", None).map(drop)
    }

    /// Calls a verb that only the newest version has, if the plugin has that.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub(crate) fn call_newest(&self, verb: &str) -> Result<(), Failure> {
        if self.version < Version::NEWEST {
            return Ok(());
        }
        self.call(verb, None).map(drop)
    }

    /// Runs the plugin, for the container of this call or for another one, and returns its result.
    fn call(&self, verb: &str, endpoint: Option<&Endpoint>) -> Result<Value, Failure> {
        let mut command = Command::new(&self.program);
        command.env("CNI_COMMAND", verb);
        if let Some(Endpoint { container, interface }) = endpoint {
            command.env("CNI_CONTAINERID", container).env("CNI_IFNAME", interface);
            command.env_remove("CNI_NETNS").env_remove("CNI_ARGS");
        }
        let text = serde_json::to_vec(&self.object).expect("an object of JSON");
        let output = run(&mut command, &text).map_err(|error| {
            Failure::new(Code::Io, format!("cannot run {}: {error}", self.program.display()))
        })?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null));
        }
        Err(self.failure(&output))
    }

    /// Returns the error that the plugin wrote; one of the system's if it wrote none.
    fn failure(&self, output: &Output) -> Failure {
        let error: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let Some(code) = error["code"].as_u64() else {
            let message = format!("{} failed: {}", self.name, output.status);
            let written = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Failure::new(Code::Io, message).with_details(written);
        };
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        Failure::new(Code::Delegated(code), format!("{}: {}", self.name, text("msg")))
            .with_details(text("details"))
    }
}

/// Runs a program with an input, and returns its output.
fn run(command: &mut Command, input: &[u8]) -> io::Result<Output> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().expect("it is a pipe");
    match stdin.write_all(input) {
        // The program did not want the whole input; its result counts.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => drop(stdin),
    }
    child.wait_with_output()
}
