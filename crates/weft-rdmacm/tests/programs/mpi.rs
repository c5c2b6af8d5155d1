//! Open MPI over UCX over the device.

use std::path::Path;
use std::process::Command;

use crate::library::{LIBRARY, program};
use crate::pair::alone;

#[test]
fn four_ranks_agree_on_sums() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/c/allreduce.c");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("allreduce");
    let mut compiler = Command::new("mpicc");
    let compiled = compiler.args(["-O1", "-Wall", source, "-o"]).arg(&binary).output();
    let compiled =
        compiled.unwrap_or_else(|error| panic!("mpicc: {error} (apt-get install libopenmpi-dev)"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
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
