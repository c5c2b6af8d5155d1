#!/usr/bin/env bash
# Builds the Python package, installs it in an environment of its own, and runs one sweep on a process pool, Dask, Ray,
# submitit's local workers, and a Slurm cluster of this one machine: `scripts/clusters.sh [pool|dask|ray|submitit|slurm ...]`.
# As root on Debian, what is missing is installed, and Slurm is started for as long as the script runs.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "clusters: $*"; }

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=$target/clusters
python=$folder/env/bin/python
which=("$@")
[ "${#which[@]}" -gt 0 ] || which=(pool dask ray submitit slurm)

if [ ! -x "$python" ]; then
    say "making $folder/env"
    python3 -m venv "$folder/env"
    "$python" -m pip install --quiet 'maturin>=1.9.4,<2' 'distributed==2026.8.0' 'ray==2.60.0' 'submitit==1.5.4'
fi
say "building the package"
"$folder/env/bin/maturin" build --quiet --profile "${PROFILE:-dev}" --interpreter "$python" \
    --manifest-path crates/weft-py/Cargo.toml --out "$folder/wheels"
"$python" -m pip install --quiet --force-reinstall --no-deps "$folder"/wheels/weft_fabric-*.whl

# A cluster of one machine. Without systemd, control groups and accounting: as little as runs jobs.
start_slurm() {
    if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null || ! command -v munged >/dev/null; then
        [ "$(id -u)" = 0 ] || { say "no Slurm here; as root this installs slurmctld, slurmd and munge"; return 1; }
        say "installing Slurm"
        DEBIAN_FRONTEND=noninteractive apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
            slurmctld slurmd slurm-client munge >/dev/null
    fi
    local run=$folder/slurm host
    host=$(hostname -s)
    rm -rf "$run"
    mkdir -p "$run/state" "$run/spool" /run/munge
    chown munge: /run/munge
    cat >"$run/slurm.conf" <<CONF
ClusterName=weft
SlurmctldHost=$host
SlurmctldPort=${SLURM_PORT:-26817}
SlurmdPort=$((${SLURM_PORT:-26817} + 1))
AuthType=auth/munge
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
StateSaveLocation=$run/state
SlurmdSpoolDir=$run/spool
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/slurmd.pid
SlurmctldLogFile=$run/slurmctld.log
SlurmdLogFile=$run/slurmd.log
NodeName=$host CPUs=$(nproc) RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
    export SLURM_CONF=$run/slurm.conf
    daemons=()
    pgrep -x munged >/dev/null || runuser -u munge -- munged
    slurmctld -D &
    daemons+=($!)
    slurmd -D &
    daemons+=($!)
    trap 'kill "${daemons[@]}" 2>/dev/null || true; wait' EXIT
    local try
    for try in $(seq 100); do
        [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] && return 0
        sleep 0.2
    done
    say "Slurm did not start; see $run after $try tries"
    return 1
}

case " ${which[*]} " in *" slurm "*) start_slurm ;; esac
cd crates/weft-py/tests/python
"$python" clusters.py "${which[@]}"
