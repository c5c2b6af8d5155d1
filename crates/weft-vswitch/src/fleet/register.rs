//! A host's registration: its address and public key, and that it lives, under a lease.

use weft_etcd::{Client, Compare, EtcdError, KeyValue, Lease, Transaction};

use super::object::{Alive, Host};
use super::{FleetSettings, Key, Object, ObjectError};

/// Number of attempts while others write the same keys.
const ATTEMPTS: usize = 3;

/// The reason that a host cannot register.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    /// A request failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another daemon has the name.
    #[error(
        "the name {name} is that of a host at {address} that lives: set another `name` in [fleet]"
    )]
    Taken { name: String, address: std::net::IpAddr },
    /// The host had another public key before.
    #[error(
        "{name} is registered with the public key {known}, and this daemon has another: restore its `identity`, or, if \
         the key was replaced on purpose, `weft fleet del hosts/{name}`"
    )]
    OtherIdentity { name: String, known: String },
    /// A value that is there cannot be read.
    #[error("{key}: {cause}; correct it, or `weft fleet del {key}`")]
    Malformed { key: Key, cause: Box<ObjectError> },
    /// Others write the same keys all the time.
    #[error(
        "others change the keys of host {0} all the time: is there another daemon of this name?"
    )]
    Contended(String),
}

/// Registers a host. Returns its lease.
///
/// # Errors
/// See [`RegisterError`].
pub(super) fn register(
    client: &Client,
    settings: &FleetSettings,
    host: &Host,
) -> Result<Lease, RegisterError> {
    let name = &settings.name;
    let span = std::time::Duration::from_nanos(settings.lease.as_nanos());
    let (host_key, alive_key) = (Key::Host(name.clone()), Key::Alive(name.clone()));
    let [host_path, alive_path] = [&host_key, &alive_key].map(|key| key.path(&settings.prefix));
    let alive = Alive {
        address: host.address,
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
    };
    for _ in 0..ATTEMPTS {
        let (known, living) = (client.get(&host_path)?, client.get(&alive_path)?);
        // A daemon that starts again has the address of the one before it, which no other host has.
        if let Some(Object::Alive(other)) = read(&alive_key, living.as_ref())?
            && other.address != host.address
        {
            return Err(RegisterError::Taken { name: name.clone(), address: other.address });
        }
        let before = read(&host_key, known.as_ref())?;
        if let Some(Object::Host(Host { identity: Some(known), .. })) = &before
            && settings.identities
            && host.identity.as_ref() != Some(known)
        {
            let (name, known) = (name.clone(), known.clone());
            return Err(RegisterError::OtherIdentity { name, known });
        }
        let lease = client.grant(span)?;
        let revision =
            |pair: &Option<KeyValue>| pair.as_ref().map_or_else(Default::default, |it| it.modified);
        let mut register = Transaction::new()
            .when(Compare::modified(&host_path, revision(&known)))
            .when(Compare::modified(&alive_path, revision(&living)))
            .put_leased(&alive_path, &Object::Alive(alive.clone()).json(), lease.id());
        // A value that stays does not wake every other host.
        if before != Some(Object::Host(host.clone())) {
            register = register.put(&host_path, &Object::Host(host.clone()).json());
        }
        if client.transact(&register)?.succeeded {
            return Ok(lease);
        }
    }
    Err(RegisterError::Contended(name.clone()))
}

fn read(key: &Key, pair: Option<&KeyValue>) -> Result<Option<Object>, RegisterError> {
    let parsed = pair.map(|pair| Object::parse(key, &pair.value)).transpose();
    parsed.map_err(|cause| RegisterError::Malformed { key: key.clone(), cause: Box::new(cause) })
}
