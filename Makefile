# Each target sets up what it needs first (scripts/setup.sh): as root, missing Debian packages are
# installed; otherwise the command that installs them is printed.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help build run test bench swarm mutants proofs doors rxe guests containerd kubernetes evpn figures performance book fuzz lint audit sbom dist upgrade soak wheel clusters torch nccl clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the weft command, the libraries of weft run, libxrdma and NCCL's plugin with its check, optimised
	@scripts/setup.sh build
	$(CARGO) build --release --package weft-cli --package weft-nccl-check
	$(CARGO) xtask verbs
	$(CARGO) xtask xrdma
	$(CARGO) xtask nccl
	@echo "built $(TARGET)/release/weft"

run: ## Build, then show two hosts and four paths of which one loses packets and one dies
	@scripts/setup.sh build lab
	$(CARGO) build --profile quick --package weft-demo
	$(TARGET)/quick/weft-demo

test: ## Everything CI checks: format, clippy, layers, circles, generated pages, tests, 2000 seeds, rustdoc
	@scripts/setup.sh build lab verbs capture bindings monitor tenants etcd gnmi cni apiserver torch deny
	scripts/test.sh

bench: ## Measure: simulator speed and memory, guests' start, real packets and RDMA programs beside their peers
	@scripts/setup.sh build lab verbs rivals
	$(CARGO) bench --package weft-sim --bench permutation
	$(CARGO) bench --package weft-sim --bench leaf_spine
	$(CARGO) bench --package weft-transport --bench engine
	$(CARGO) bench --package weft-plan --bench ports
	$(CARGO) bench --package weft-wire --bench sflow
	$(CARGO) bench --package weft-rnic --bench pvdma
	$(CARGO) bench --package weft-vpc --bench policy
	$(CARGO) bench --package weft-seal --bench seal
	$(CARGO) bench --package weft-verbs --bench device
	$(CARGO) bench --package weft-verbs --bench speed
	$(CARGO) bench --package weft-verbs --bench profiles
	$(CARGO) bench --package weft-ports --bench ports
	$(CARGO) bench --package weft-vpc --bench scale
	$(CARGO) bench --package weft-vswitch
	$(CARGO) bench --package weft-xrdma --bench limits
	$(CARGO) bench --package weft-xrdma --bench ping_pong
	$(CARGO) bench --package weft-xrdma --bench show
	$(CARGO) bench --package weft-perf

swarm: ## Random worlds with random faults, then as many that encrypt: make swarm SEEDS=100000 FIRST=1
	@scripts/setup.sh build
	$(CARGO) build --release --package weft-cli
	$(TARGET)/release/weft sim swarm --seeds $(or $(SEEDS),20000) --first $(or $(FIRST),1)
	$(TARGET)/release/weft sim swarm --sealed --seeds $(or $(SEEDS),20000) --first $(or $(FIRST),1)

mutants: ## Break the transport, the RNIC, the encryption and the same-host path on purpose, once each way, and see who notices (an hour)
	@scripts/setup.sh build
	scripts/mutants.sh

proofs: ## Models of shared memory (loom), bounded proofs of what guards memory, and Miri: what each shows, and its bound
	@scripts/setup.sh build miri
	$(CARGO) xtask proofs

doors: ## Stock wheels of NIXL and Mooncake over Weft: bytes, loss, a path's death, then beside their TCP (as root; 15 minutes)
	@scripts/setup.sh build lab verbs doors
	$(CARGO) build --release --package weft-cli
	$(CARGO) xtask verbs
	scripts/doors.py test
	scripts/doors.py bench

rxe: ## X-RDMA on the kernel's rxe in Rust, C and Python: two guests in QEMU with the stock libibverbs, the labels on the wire; siw is refused
	@scripts/setup.sh build rxe
	$(CARGO) test --package weft-xrdma --test limits -- --ignored --exact rxe::channels_between_two_guests_on_rxe_keep_every_promise
	$(CARGO) test --package weft-xrdma-c --package weft-py --test rxe -- --ignored

guests: ## RDMA devices in virtual machines: Debian's kernel in QEMU, unmodified programs of guests and host, a guest that dies
	@scripts/setup.sh build lab verbs tenants
	$(CARGO) test --package weft-verbs --test programs -- --ignored guests:: --test-threads=1

containerd: ## Containers of containerd 2 on two hosts of the overlay, with the CNI plugin (as root, builds containerd once)
	@scripts/setup.sh build lab cni containerd
	$(CARGO) test --package weft-cni --test cni -- --ignored containerd

kubernetes: ## A Kubernetes of two nodes on this machine, its pods' network Weft's: loss, Redis, an upgrade, a node's end, RDMA, NIXL, policies, Multus (as root, builds Kubernetes once)
	@scripts/setup.sh build lab kubernetes
	$(CARGO) build --release --package weft-cli --package weft-dra --package weft-kube
	$(CARGO) rustc --release --package weft-cni --bin weft-cni -- -C target-feature=+crt-static
	$(CARGO) xtask verbs
	$(TARGET)/kubernetes/helm lint --quiet dist/kubernetes/chart --set 'hosts={10.0.0.1}' --set 'etcd.endpoints={10.0.0.1:2379}'
	scripts/kubernetes/run.py

evpn: ## Two hosts of the overlay and a VXLAN router, FRR with a kernel bridge, that share a network by BGP (as root, half a minute)
	@scripts/setup.sh build lab
	$(CARGO) test --package weft-vswitch --test evpn -- --ignored

figures: ## Make every figure of the papers again, into out/figures.html and the docs: make figures MINUTES=60 (hours)
	@scripts/setup.sh build lab verbs rivals
	$(CARGO) build --release --package weft-cli
	$(TARGET)/release/weft experiment run --all --record --html out/figures.html $(if $(MINUTES),--budget $(MINUTES))

performance: ## Measure and record Weft's own performance, a table at a time, into docs/performance (as root, nothing else running; half an hour)
	@scripts/setup.sh build lab verbs rivals torch
	$(CARGO) build --release --package weft-cli
	$(TARGET)/release/weft experiment run perf --record

book: ## The documentation as a book, by reader, its links checked: target/book/index.html
	@scripts/setup.sh build book
	$(CARGO) xtask book

fuzz: ## Fuzz every parser with coverage guidance: make fuzz SECONDS=60, or INPUTS=10000000
	@scripts/setup.sh build
	$(CARGO) xtask fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(INPUTS),--inputs $(INPUTS))

lint: ## Format check, clippy, layers, circles, generated pages and the book's links only
	@scripts/setup.sh build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features --quiet -- -D warnings
	$(CARGO) xtask layers
	$(CARGO) xtask circles
	$(CARGO) xtask words
	$(CARGO) xtask docs --check
	$(CARGO) xtask book --check

audit: ## Known vulnerabilities of what Weft is linked with (fetches RustSec's list from GitHub)
	@scripts/setup.sh build deny
	$(CARGO) deny --all-features check advisories

sbom: ## Bill of materials (CycloneDX, JSON) of each program and library: out/sbom/
	@scripts/setup.sh build sbom
	@scripts/sbom.sh

dist: sbom wheel ## A tarball, Debian packages, RPMs, an OCI image, the chart and the wheel, made twice, installed and removed: out/dist/
	@scripts/setup.sh build dist
	$(CARGO) build --release --package weft-cli --package weft-dra --package weft-kube --package weft-nccl-check
	$(CARGO) rustc --release --package weft-cni --bin weft-cni -- -C target-feature=+crt-static
	$(CARGO) xtask verbs
	$(CARGO) xtask xrdma
	$(CARGO) xtask nccl
	@scripts/dist.sh
	@scripts/dist-test.sh

upgrade: ## The version before beside this one: tenants' connections, the daemon's state and commands, both ways (as root, builds that version once)
	@scripts/setup.sh build lab before
	$(CARGO) test --package weft-cli --test upgrade -- --ignored

soak: ## Three hosts under a schedule of faults, everything checked: make soak MINUTES=60 SEED=1 (as root; MINUTES=3 for a smoke run)
	@scripts/setup.sh build lab verbs etcd soak
	$(CARGO) build --release --package weft-cli --package weft-soak
	$(CARGO) xtask verbs
	$(TARGET)/release/weft-soak --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1) --slack $(or $(SLACK),1)

wheel: ## The Python package (RDMA messages and the simulator) as one wheel for Python 3.11 and later: out/wheel/
	@scripts/setup.sh build bindings
	$(TARGET)/python/bin/maturin build --release --manifest-path crates/weft-py/Cargo.toml --out out/wheel

clusters: ## One sweep of the simulator on a process pool, Dask, Ray, submitit and a Slurm of this machine (a few minutes)
	@scripts/setup.sh build
	scripts/clusters.sh

torch: ## PyTorch and Ray of PyPI over Weft: collectives, DDP and FSDP beside gloo, torchrun, Ray's arrays on one host and two (gigabytes of wheels)
	@scripts/setup.sh build lab torch stock-torch
	$(CARGO) test --package weft-py --test python -- --include-ignored torch ray

nccl: ## NCCL's net plugin: every check, 1 GiB, paths that die and return, speed; NCCL_SOURCE=DIR adds NCCL's sockets (as root, ten minutes)
	@scripts/setup.sh build lab
	scripts/nccl.sh

clean: ## Remove everything that was built
	$(CARGO) clean
	rm -rf out
