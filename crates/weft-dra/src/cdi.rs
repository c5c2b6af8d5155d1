//! Descriptions of containers' devices for the container runtime (Container Device Interface): a file a claim.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::DRIVER;
use crate::claim::Share;

/// The class of the devices: with the vendor the part of a device's name before `=`.
const CLASS: &str = "claim";
/// The folder in which containers have the libraries of `weft run`.
const LIBRARIES: &str = "/usr/lib/weft/verbs";
/// The libraries that `weft run` has the dynamic linker load before a program's own.
const PRELOADS: [&str; 2] = ["libweft_preload.so", "libibverbs.so.1"];

/// The folder of the descriptions, and what they refer to on the node.
#[derive(Debug)]
pub(crate) struct Descriptions {
    folder: PathBuf,
    /// The daemon's socket.
    socket: PathBuf,
    libraries: PathBuf,
}

impl Descriptions {
    pub(crate) const fn new(folder: PathBuf, socket: PathBuf, libraries: PathBuf) -> Self {
        Self { folder, socket, libraries }
    }

    /// Returns the name by which kubelet refers to a share.
    pub(crate) fn id(share: &Share) -> String {
        format!("{DRIVER}/{CLASS}={}", share.name)
    }

    /// Writes the description of a claim, as a whole.
    ///
    /// # Errors
    /// The folder or the file cannot be written.
    pub(crate) fn write(&self, uid: &str, shares: &[Share]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let file = self.file(uid);
        // The runtime reads files that end in `json`.
        let part = file.with_extension("part");
        fs::write(&part, self.description(shares).to_string())?;
        fs::rename(part, file)
    }

    /// Removes the description of a claim, if there is one.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn remove(&self, uid: &str) -> io::Result<()> {
        match fs::remove_file(self.file(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{DRIVER}-{CLASS}-{uid}.json"))
    }

    fn description(&self, shares: &[Share]) -> Value {
        let mount = |host: &Path, container: &Path, more: &str| {
            let options = ["rbind", "nosuid", "nodev", more];
            json!({ "hostPath": host, "containerPath": container, "options": options })
        };
        // The folder, not the socket: the next daemon makes a new one.
        let sockets = self.socket.parent().unwrap_or_else(|| Path::new("/"));
        let mounts =
            [mount(sockets, sockets, "rw"), mount(&self.libraries, Path::new(LIBRARIES), "ro")];
        let preloads = PRELOADS.map(|name| format!("{LIBRARIES}/{name}")).join(":");
        let devices: Vec<_> = shares
            .iter()
            .map(|share| {
                let env = [
                    format!("WEFT_DEVICE={}", share.name),
                    format!("WEFT_DEVICE_SOCKET={}", self.socket.display()),
                    format!("LD_LIBRARY_PATH={LIBRARIES}"),
                    format!("LD_PRELOAD={preloads}"),
                ];
                json!({ "name": share.name, "containerEdits": { "env": env } })
            })
            .collect();
        json!({
            "cdiVersion": "0.6.0",
            "kind": format!("{DRIVER}/{CLASS}"),
            "devices": devices,
            "containerEdits": { "mounts": mounts },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share() -> Share {
        Share {
            name: "7-0".into(),
            request: "one".into(),
            pool: "h0".into(),
            device: "weft0".into(),
            id: None,
            queue_pairs: None,
            owner: None,
        }
    }

    #[test]
    fn a_container_gets_the_folder_of_the_socket_and_the_environment_of_weft_run() {
        let folder = std::env::temp_dir().join(format!("weft-dra-{}", std::process::id()));
        let own =
            Descriptions::new(folder.clone(), "/run/d/device.sock".into(), "/opt/weft".into());
        own.write("7", &[share()]).unwrap();
        let names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["weft.dev-claim-7.json"]);
        let text = fs::read_to_string(folder.join("weft.dev-claim-7.json")).unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            format!(
                "{}={}",
                written["kind"].as_str().unwrap(),
                written["devices"][0]["name"].as_str().unwrap()
            ),
            Descriptions::id(&share())
        );
        assert_eq!(written["containerEdits"]["mounts"][0]["containerPath"], "/run/d");
        let env = written["devices"][0]["containerEdits"]["env"].as_array().unwrap();
        assert!(env.contains(&json!("WEFT_DEVICE=7-0")), "{env:?}");
        own.remove("7").unwrap();
        own.remove("7").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(folder).unwrap();
    }
}
