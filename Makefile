# Short names for the common tasks. All the work is in `cargo xtask`: see `cargo xtask --help`.

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The demo runs on your own cluster if it is told where that cluster gets its images:
#   make demo KUBECONFIG=… IMAGE_REPO=…
# make hands KUBECONFIG on to kubectl through the environment.
own_cluster = $(if $(IMAGE_REPO),--image-repo "$(IMAGE_REPO)",$(needs_repo))
needs_repo = $(if $(filter command line,$(origin KUBECONFIG)),$(error KUBECONFIG names your own cluster: \
	say also where it gets its images, as in IMAGE_REPO=registry.example.com/ci))

.PHONY: demo
demo: tools ## Start a local cluster with the operator and a Buildkite server, and run a build
	cargo xtask demo $(own_cluster)

.PHONY: clean-demo
clean-demo: tools ## Remove everything that the demo started
	cargo xtask demo --clean $(own_cluster)

.PHONY: cluster
cluster: tools ## Start a local Kubernetes cluster, and nothing in it
	cargo xtask cluster up

.PHONY: check
check: tools lint-tools ## Check format, lints and documents, and run the tests that need no cluster
	cargo --locked xtask test --only lint,docs,unit

.PHONY: test
test: tools lint-tools ## Run all tests, those on a real cluster included
	cargo --locked xtask test

.PHONY: docs
docs: tools ## Make a site of the documents, in target/docs
	cargo --locked xtask docs

.PHONY: bench
bench: tools ## Measure buildkite-local and the operator as they ship, on a cluster of its own
	cargo --locked xtask bench

.PHONY: fuzz
fuzz: ## Feed pipelines, log chunks and forms with made-up bytes for a minute each (needs cargo-fuzz)
	@cargo fuzz --version >/dev/null || { echo "make: cargo fuzz is missing: cargo install cargo-fuzz" >&2; exit 1; }
	for target in yaml chunk form; do \
	  mkdir -p fuzz/corpus/$$target && \
	  cargo fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- -max_total_time=60 || exit 1; \
	done

# What the developer tasks need to compile and to build Kubernetes. They install the rest: see `cargo xtask deps`.
rust_needed = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# The module that needs the newest Go, as `hack/agent/go.mod:go 1.26.5`.
go_needed := $(shell grep '^go ' hack/*/go.mod | sort -V -k 2 | tail -n 1)

# $(call at-least,NAME,VERSION,COMMAND THAT PRINTS THE VERSION,WHERE TO GET IT)
define at-least
	@has=$$($(3)); printf '%s\n' '$(2)' "$$has" | sort -V -C || { \
	  echo "make: $(1) $(2) or newer is needed$${has:+, and this is $$has}: see $(4)" >&2; exit 1; }
endef

.PHONY: tools
tools:
	@test -e "$$(cc -print-file-name=crt1.o 2>/dev/null)" || { $(install_compiler) }
	$(call at-least,Rust,$(rust_needed),cargo --version | cut -d ' ' -f 2,https://rustup.rs)
	$(call at-least,Go,$(lastword $(go_needed)),cd $(dir $(firstword $(go_needed))) && go env GOVERSION | sed 's/^go//',https://go.dev/doc/install)
	@test -e $(or $(CARGO_TARGET_DIR),target)/debug/xtask || echo "compiling the developer tasks, which takes a minute the first time"

define install_compiler
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	  echo "installing gcc and libc6-dev: there is no C compiler"; \
	  apt-get update --quiet=2; \
	  DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --no-install-recommends --no-remove gcc libc6-dev; \
	else \
	  echo "make: a C compiler is missing: install what Debian calls gcc and libc6-dev" >&2; exit 1; \
	fi;
endef

.PHONY: lint-tools
lint-tools:
	@cargo fmt --version >/dev/null || { echo "make: cargo fmt is missing: rustup component add rustfmt" >&2; exit 1; }
	@cargo clippy --version >/dev/null || { echo "make: cargo clippy is missing: rustup component add clippy" >&2; exit 1; }
