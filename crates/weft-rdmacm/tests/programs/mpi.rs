//! Tests of Open MPI over UCX over the device.

use crate::compiled::compiled;
use crate::library::LIBRARY;
use crate::pair::{OneHost, Stage, alone, finish, start};

/// Runs four ranks that must agree on sums, on `hosts` hosts that the arguments `places` name. All their traffic goes
/// through the device: no shared memory, no TCP.
pub(crate) fn agree(stage: &impl Stage, hosts: usize, places: &str) {
    let binary = compiled("mpicc", "allreduce", &[], "libopenmpi-dev");
    let words = format!(
        "env LD_PRELOAD={preload} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
         mpirun --oversubscribe -n 4 {places} --mca pml ucx --mca btl ^vader,tcp,openib \
         -x UCX_TLS=rc_v,self -x UCX_NET_DEVICES=weft0:1 -x LD_LIBRARY_PATH -x LD_PRELOAD {binary}",
        preload = LIBRARY.join("libweft_preload.so").display(),
        binary = binary.display(),
    );
    let words: Vec<&str> = words.split_whitespace().collect();
    let agreed = format!("4 ranks on {hosts} hosts agree\n");
    let (succeeded, output) = alone(|| finish(start(stage, false, &words)));
    assert!(succeeded && output.ends_with(&agreed), "{output}");
}

#[test]
fn four_ranks_agree_on_sums() {
    agree(&OneHost, 1, "");
}
