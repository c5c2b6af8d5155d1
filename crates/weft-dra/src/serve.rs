//! The sockets on which kubelet calls this driver, from its start to SIGTERM.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::api::Api;
use crate::cdi::Descriptions;
use crate::driver::{Driver, Registrar};
use crate::proto::dra::dra_plugin_server::DraPluginServer;
use crate::proto::registration::registration_server::RegistrationServer;
use crate::slice::{self, Offer};
use crate::{Args, DRIVER};

/// Serves kubelet until this process is asked to end.
///
/// # Errors
/// A socket cannot be made, or the service account is missing.
pub(crate) async fn serve(arguments: Args) -> Result<()> {
    let Args { node, socket, libraries, cdi, kubelet, api_host, api_port, account, .. } = arguments;
    let api = Arc::new(Api::new(api_host, api_port, &account)?);
    let offer =
        Offer { queue_pairs: arguments.queue_pairs, default: arguments.default_queue_pairs };
    let endpoint = kubelet.join("plugins").join(DRIVER).join("dra.sock");
    // Kubelet names the path as the host of its requests, with `%2F` for each `/`, which no host may have and h2 refuses. Before
    // an `@` it is a user's name, which may.
    let registry = kubelet.join("plugins_registry").join(format!("{DRIVER}@reg.sock"));
    let driver = Driver {
        api: Arc::clone(&api),
        descriptions: Descriptions::new(cdi, socket.clone(), libraries),
        socket,
        turn: Mutex::new(()),
    };
    // Kubelet calls the driver as soon as it finds the registration's socket.
    let calls = Server::builder()
        .add_service(DraPluginServer::new(driver))
        .serve_with_incoming(UnixListenerStream::new(listen(&endpoint)?));
    let registration = Server::builder()
        .add_service(RegistrationServer::new(Registrar { endpoint }))
        .serve_with_incoming(UnixListenerStream::new(listen(&registry)?));
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = calls => ended.context("the driver's socket")?,
        ended = registration => ended.context("the registration's socket")?,
        () = slice::keep(&api, &node, offer) => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    // Without its socket kubelet knows that the driver is away.
    let _ = fs::remove_file(registry);
    Ok(())
}

/// Listens at a path, in place of a driver that has ended.
fn listen(path: &Path) -> Result<UnixListener> {
    let open = || {
        fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new("/")))?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixListener::bind(path)
    };
    open().with_context(|| format!("cannot listen at {}", path.display()))
}
