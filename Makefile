# Short names for the common tasks. All the work is in `cargo xtask`: see `cargo xtask --help`.

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The demo runs on your own cluster if it is told where that cluster gets its images:
#   make demo KUBECONFIG=… IMAGE_REPO=…
own_cluster = $(if $(IMAGE_REPO),--image-repo "$(IMAGE_REPO)" $(if $(KUBECONFIG),--kubeconfig "$(KUBECONFIG)"))

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
check: tools ## Check format and lints, and run the tests that need no cluster
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test

.PHONY: test
test: tools ## Run all tests, those on a real cluster included
	cargo xtask test

# What cannot be installed from here. The rest is: see `cargo xtask deps`.
.PHONY: tools
tools:
	@command -v cargo >/dev/null || { echo "make: cargo is missing: install Rust from https://rustup.rs" >&2; exit 1; }
	@command -v go >/dev/null || { echo "make: go is missing: install Go from https://go.dev/doc/install" >&2; exit 1; }
