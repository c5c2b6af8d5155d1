//! The services that kubelet calls: registration, and the preparation of claims.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

use crate::api::Api;
use crate::cdi::Descriptions;
use crate::claim::{self, Share};
use crate::proto::dra::dra_plugin_server::DraPlugin;
use crate::proto::dra::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use crate::proto::registration::registration_server::Registration;
use crate::proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::{DRIVER, devices};

/// The preparation of claims.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) api: Arc<Api>,
    /// The daemon's socket.
    pub(crate) socket: PathBuf,
    pub(crate) descriptions: Descriptions,
    /// Kubelet may repeat a call before the first one has ended; claims are prepared one by one.
    pub(crate) turn: Mutex<()>,
}

impl Driver {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Share>> {
        let Claim { namespace, name, uid } = claim;
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        let object =
            self.api.get(&path).await?.with_context(|| format!("no claim {namespace}/{name}"))?;
        let shares = claim::shares(&object, uid).map_err(|reason| anyhow!(reason))?;
        let (socket, wanted) = (self.socket.clone(), shares.clone());
        tokio::task::spawn_blocking(move || devices::create(&socket, &wanted)).await??;
        self.descriptions.write(uid, &shares).context("cannot describe the devices")?;
        Ok(shares)
    }

    async fn unprepare(&self, uid: &str) -> Result<()> {
        let (socket, owned) = (self.socket.clone(), uid.to_owned());
        tokio::task::spawn_blocking(move || devices::delete(&socket, &owned)).await??;
        self.descriptions.remove(uid).context("cannot remove the devices' description")
    }
}

/// Returns a share as kubelet's message.
fn device(share: Share) -> Device {
    Device {
        cdi_device_ids: vec![Descriptions::id(&share)],
        request_names: vec![share.request],
        pool_name: share.pool,
        device_name: share.device,
        share_id: share.id,
    }
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let _turn = self.turn.lock().await;
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let answer = match self.prepare(&claim).await {
                Ok(shares) => NodePrepareResourceResponse {
                    devices: shares.into_iter().map(device).collect(),
                    error: String::new(),
                },
                Err(error) => {
                    NodePrepareResourceResponse { devices: vec![], error: format!("{error:#}") }
                }
            };
            claims.insert(claim.uid, answer);
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let _turn = self.turn.lock().await;
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let error = self.unprepare(&claim.uid).await.err();
            let error = error.map(|error| format!("{error:#}")).unwrap_or_default();
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

/// The registration with kubelet, which looks for its socket.
#[derive(Debug)]
pub(crate) struct Registrar {
    /// The socket of [`Driver`].
    pub(crate) endpoint: PathBuf,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            println!("weft-dra: registered with kubelet");
        } else {
            eprintln!("weft-dra: kubelet refuses this driver: {}", status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
