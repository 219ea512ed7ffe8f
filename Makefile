# SPDX-License-Identifier: Apache-2.0
# Every entry point of the project; `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help demo figures test test-rust test-lab test-python test-torch clippy ci test-gpu soak sanitize test-aarch64 client-tests lint bench p4 p4-check bmv2-tests mininet-test mininet-matrix wheel deb man book deny reference reference-check release

CARGO ?= cargo
DEMO_FLAGS ?=

help: ## list the entry points
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | sort | \
		while IFS="$$(printf '\t')" read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

demo: ## train a model through a congested, trimming switch (half a minute; its first build takes five to ten; flags: DEMO_FLAGS="--help")
	$(CARGO) run --profile quick --quiet -p trimwire -- demo $(DEMO_FLAGS)

TIMED := packaging/timed.sh
# CI says `--workspace` and more here, and builds everything once: other packages, other features.
RUST_TESTS ?=
# CI says `torch` here.
PYTHON_TESTS ?=

# What test-rust builds is what the other parts run: nothing is built twice.
test ci: export TRIMWIRE_BIN_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug
test: p4-check lint test-rust reference-check test-python ## the product's tests: programs, P4, Python; each part says how long it took

ci: RUST_TESTS := --workspace --features trimwire-switch/native
ci: PYTHON_TESTS := torch
ci: test clippy sanitize mininet-test book deny ## everything that CI runs: `test` with the laboratory, machine code and PyTorch, and the rest

test-rust: ## unit, property and integration tests of the product's crates; those over real interfaces need root and are skipped loudly otherwise
	python3 host-encoder/tests/reference/generate.py --check
	python3 host-encoder/tests/reference/seal.py --check
	$(TIMED) "rust, building" $(CARGO) test --locked --no-run $(RUST_TESTS)
	$(TIMED) "rust, tests" $(CARGO) test --locked $(RUST_TESTS)

test-lab: ## tests of the laboratory (simulator, planner, quick figures), and of the switch beside BMv2
	$(CARGO) test --locked -p trimwire-lab -p trimwire-bmv2-tests

test-python: ## the Python package: wheel, types, tests, without PyTorch (skipped loudly where there is no Python 3.10 or no PyPI)
	python/test.sh $(PYTHON_TESTS)

test-torch: ## the same with PyTorch, its backend and its hook (some gigabytes; TORCH=torch==2.5.1 chooses another; skipped loudly where it cannot be installed)
	python/test.sh torch

test-gpu: ## kernels, collectives, CUDA graphs and streams on a GPU (no part of test; skipped loudly where nvidia-smi lists none)
	python/test.sh gpu

figures: ## make the tables of simulations in docs/ anew that take seconds (FIG=NAME one, of examples/figures; docs/how-to/figures.md says what each takes; no part of test, which compares them)
	$(CARGO) run --release --quiet -p trimwire-lab -- sim figures --write $(if $(FIG),--only $(FIG),$(or $(FIGURES_FLAGS),--quick))

# The programs that say what they take. Those that `test` has built are taken: with the features of these alone all would be built anew.
REFERENCE = $(if $(TRIMWIRE_BIN_DIR),,$(CARGO) build --locked -p trimwire -p trimwire-lab -p trimwire-agent-programs -p trimwire-controller -p trimwire-switch --bins &&) python3 packaging/reference.py

reference: ## write the reference pages: commands, variables, metrics, exit codes, keys of files (docs/reference/generated)
	$(REFERENCE)

reference-check: ## fail where a reference page is not what programs and sources say
	$(REFERENCE) --check

soak: ## 10,000 random jobs in virtual time, each within computed limits (no part of test: minutes; SOAK_FLAGS="--seed 7 --cases 1 --verbose" replays one)
	$(CARGO) run --release --quiet -p trimwire-agent --example soak -- --failures . $(or $(SOAK_FLAGS),--short --cases 10000)

sanitize: ## the codec's unit tests and fuzz targets under AddressSanitizer (skipped loudly where the toolchain has no runtime of it)
	host-encoder/tests/sanitize.sh

test-aarch64: ## the codec's tests on an emulated 64-bit ARM machine (no part of test: needs a cross compiler and qemu; skipped loudly otherwise)
	host-encoder/tests/aarch64.sh

bench: ## the codec's speed on every instruction set of this machine, next to memcpy (BENCH_FLAGS="--help" lists the options)
	$(CARGO) run --release --quiet -p trimwire -- codec bench $(BENCH_FLAGS)

client-tests: ## p4runtime-shell and finsy from PyPI against the switch (part of test-rust; here a skip is a failure)
	TRIMWIRE_REQUIRE_CLIENTS=1 $(CARGO) test --locked -p trimwire-switch --test it server_clients::

lint: ## formatting, links, licence lines, the release's metadata, Dockerfile and Kubernetes examples, as far as there are tools
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; \
		else echo 'SKIPPED: formatting check (rustfmt is not installed)'; fi
	packaging/book.sh check
	packaging/release.sh --check
	packaging/spdx.sh
	@if command -v hadolint >/dev/null; then hadolint packaging/docker/Dockerfile; \
		else echo 'SKIPPED: Dockerfile (hadolint is not installed)'; fi
	@if command -v kubernetes-validate >/dev/null; then kubernetes-validate --strict --quiet examples/kubernetes/trimwire.yaml examples/training/kubernetes.yaml; \
		else echo 'SKIPPED: Kubernetes examples (kubernetes-validate is not installed)'; fi

clippy: ## clippy over all crates (no part of test, but of CI)
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(TIMED) clippy $(CARGO) clippy --workspace --all-targets --locked -- -D warnings; \
		else echo 'SKIPPED: clippy (not installed)'; fi

p4: ## compile the P4 programs with p4c and commit-ready artifacts (needs p4c-bm2-ss)
	p4/build.sh build

p4-check: ## compiled P4 is fresh: hashes always, a recompilation where p4c is on PATH
	p4/build.sh check

bmv2-tests: ## traffic over real interfaces in network namespaces, with release builds (test-rust does the same; needs root; skipped loudly otherwise)
	bmv2-tests/run.sh

mininet-test: ## agents congest ports in Mininet (needs root and Debian's mininet package; skipped loudly otherwise)
	mininet/run.sh

mininet-matrix: ## 2:1, 3:1 and 8:1 beside TCP, in a dumbbell and a leaf-spine (two minutes; needs iperf3, too; no part of test)
	mininet/run.sh matrix

wheel: ## a wheel for Python 3.10 and later and glibc 2.28 and later, in target/wheel (needs PyPI)
	packaging/manylinux.sh target/wheel

deb: ## Debian packages of trimwire, switch, controller and agent, with units, manual pages and completions, in target/debian (needs dpkg-deb)
	packaging/deb.sh

man: ## manual pages of the four programs, in target/man
	mkdir -p target/man
	for name in trimwire trimwire-switch trimwire-controller trimwire-agent; do $(CARGO) run --quiet --bin $$name -- man target/man || exit 1; done

book: ## the documentation as one book with a search, in target/book (needs mdbook)
	packaging/book.sh

deny: ## licences, sources and advisories of dependencies (needs cargo-deny; advisories need the network; no part of test, but of CI)
	@if ! $(CARGO) deny --version >/dev/null 2>&1; then echo 'SKIPPED: dependencies (cargo-deny is not installed)'; else \
		$(CARGO) deny --workspace check licenses bans sources && \
		if $(CARGO) deny --workspace fetch db; then $(CARGO) deny --workspace check --disable-fetch advisories; \
			else echo 'SKIPPED: advisories (their database cannot be fetched)'; fi; fi

release: ## everything that a release is made of, checked and tested
	packaging/release.sh
