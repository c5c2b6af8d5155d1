//! Open MPI over UCX over the device.

use crate::library::{LIBRARY, compiled, program};
use crate::pair::alone;

#[test]
fn four_ranks_agree_on_sums() {
    let binary = compiled("mpicc", "allreduce", &[], "libopenmpi-dev");
    let preload = LIBRARY.join("libweft_preload.so");
    // Everything between ranks goes through the device: no shared memory, no TCP.
    let words = "mpirun --oversubscribe -n 4 --mca pml ucx --mca btl ^vader,tcp,openib \
                 -x UCX_TLS=rc_v,self -x UCX_NET_DEVICES=weft0:1 -x LD_LIBRARY_PATH -x LD_PRELOAD";
    let words: Vec<&str> = words.split_whitespace().collect();
    let ran = alone(|| {
        let mut mpirun = program(&words);
        mpirun.arg(&binary).env("LD_PRELOAD", &preload);
        mpirun.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        mpirun.output().unwrap()
    });
    assert!(ran.status.success() && ran.stdout == b"4 ranks agree\n", "{ran:?}");
}
